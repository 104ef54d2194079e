"""One pipeline's connector: deploy it, compare it, look at it, restart it, signal it, remove it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, ConfigError
from cdc.record.position import Lsn
from cdc.record.progress import require_turn
from cdc.settings.model import Settings
from cdc.status.facts import ConnectorFacts
from connectors.debezium import offsets, snapshots, topics
from connectors.debezium.client import ConnectClient, MissingConnector
from connectors.debezium.config import changed_options, connector_config, connector_name, debezium_settings
from connectors.debezium.databases import captures_collection, described_address, spelled
from connectors.debezium.new_log import begin_new_log, require_no_resnapshot
from connectors.debezium.offsets import Streaming
from connectors.debezium.status import FAILED, ConnectorStates, ConnectorStatus
from connectors.debezium.tables import (
    captured_tables,
    joined_tables,
    publish,
    require_condition,
    unparted_tables,
)

_EXACTLY_ONCE = "exactly.once.support"

Change = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """The result of :meth:`Connector.deploy`.

    ``action``: ``created``, ``updated`` or ``unchanged``. ``changes``: option -> (before, now). ``added``: tables that
    joined, or wait for their rows since an earlier deploy. ``snapshot``: the id of the snapshot that was asked for
    their rows, empty where none was. ``unread``: those that could not be asked for -> why, and what to do. ``exact``:
    it writes in transactions.
    """

    action: str
    changes: dict[str, Change]
    status: ConnectorStatus
    added: tuple[str, ...] = ()
    snapshot: str = ""
    unread: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False


class Connector:
    """The connector that the settings describe, on the Kafka Connect that they name.

    Every method raises ConnectError or ConfigError with a hint. None shows a secret.
    """

    def __init__(self, settings: Settings, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings
        self._debezium = debezium_settings(settings)
        self._clock = clock
        self.name = connector_name(settings)
        self.database = self._debezium.database
        self.client = ConnectClient(self._debezium, clock=clock)
        self._timeout_s = self._debezium.deploy_timeout.total_seconds()
        self._states = ConnectorStates(self.name, self.client, clock, timeout_s=self._timeout_s)

    # Looking at it.

    def wanted(self) -> dict[str, str]:
        """The configuration as the settings want it."""
        return connector_config(self._settings)

    def validate(self) -> dict[str, list[str]]:
        """The server's own validation of it: option -> what is wrong."""
        return self.client.validate({**self.wanted(), "name": self.name})

    def diff(self) -> dict[str, Change]:
        """option -> (running, wanted) where they differ, secrets masked. MissingConnector where none runs."""
        return changed_options(self._wanted_here(), self.client.running_config(self.name))

    def condition(self) -> ConnectorStatus:
        """State and tasks alone: nothing but Kafka Connect is asked."""
        return self._states.now()

    def status(self) -> ConnectorStatus:
        """State, tasks, stored offsets and the slot's lag (None where the source cannot be asked)."""
        lag, unknown = offsets.read_lag(self._settings)
        return replace(self._states.now(), offsets=tuple(self.offsets()), lag=lag, lag_unknown=unknown)

    def facts(self) -> ConnectorFacts:
        """The connector's state in Kafka Connect, for the pipeline's status. ConnectError where it does not answer."""
        status, stored = self._states.now(), self.offsets()
        lsn = offsets.shown_lsn(stored) if self.database == "postgres" else None
        return ConnectorFacts(
            name=self.name,
            database=self.database,
            address=described_address(self._settings),
            state=status.state if status.runs or status.fault or status.state != "RUNNING" else "STARTING",
            fault=status.fault,
            snapshot=offsets.snapshot_state(stored),
            position=str(Lsn(lsn)) if lsn is not None else "",
            lsn=lsn,
        )

    def require_healthy(self) -> None:
        """ConnectError when it or a task has failed."""
        status = self._states.now()
        if status.fault:
            raise status.error()

    def streaming(self) -> Streaming | None:
        """Whether it reads, watched for up to 66 s. None for a database without a slot. SourceError where Postgres
        cannot be asked."""
        if self.database != "postgres":
            return None
        return offsets.watch_connector(self._settings, self.offsets, self._clock)

    def offsets(self) -> list[dict[str, Any]]:
        """The stored source offsets."""
        return self.client.offsets(self.name)

    def unread(self) -> list[tuple[str, str]]:
        """See :func:`connectors.debezium.snapshots.unread_cautions`."""
        return snapshots.unread_cautions(self._settings, self._now_ms())

    def waiting_snapshot(self, status: ConnectorStatus) -> str:
        """See :func:`connectors.debezium.snapshots.waiting_snapshot`."""
        return snapshots.waiting_snapshot(self._settings, status.offsets)

    # Deploying it.

    def deploy(self) -> Deployed:
        """Create or update the connector and return when it runs. Nothing is touched when nothing differs.

        A Postgres publication is made, or gets the tables that it lacks. Their rows are read by an incremental
        snapshot, because Debezium's own is over. A stopped connector goes on. One that is changed is stopped
        meanwhile, so that no task of before the change is taken for a new one.

        ConfigError where the server's validation finds a fault or a table cannot be captured, ConnectError where
        the connector does not come up in time or a task fails, in its own words.
        """
        if self._settings.source.kind != "debezium":
            raise ConfigError(
                "[source] kind is not debezium: two writers in one topic would undo each other",
                hint='set [source] kind = "debezium", and stop cdc run',
            )
        self._require_own_turn()
        wanted, running = self._wanted_here(), self._running()
        changes = changed_options(wanted, running or {})
        if running is None or changes:
            self._refuse_invalid()
        tables = captured_tables(self._settings)
        topics.require_topics(self._settings, tables)
        halted = running is not None and self._states.now().halted
        noted, waiting = topics.noted_topics(self._settings), snapshots.unread_tables(self._settings)
        joined = joined_tables(tables, publish(self._settings), noted, running)
        added = tuple(dict.fromkeys([*joined, *self._due(running, waiting)]))
        there = running is not None or noted is not None
        snapshot: str | None = ""
        if there:
            # Noted first: whatever fails behind it, the next deploy asks again.
            snapshots.note_unread(self._settings, waiting, joined)
        asked, unread = self._askable(added) if there and added else ((), {})
        if running is None or changes or joined or asked:
            snapshots.make_signal_topic(self._settings)
            with self._standing_still(there, goes_on=running is not None and not halted):
                # Asked before the configuration and the notes by which the tables count as known: given last, the
                # request would be forgotten by a deploy that ends between the two.
                if there:
                    snapshot = self._ask(waiting, asked, unread, gone=running is None)
                topics.prepare_topics(self._settings, tables)
                if running is None or changes:
                    self.client.put_config(self.name, wanted)
        elif halted:
            self.client.resume(self.name)
        return Deployed(
            action="created" if running is None else "updated" if changes else "unchanged",
            changes=changes,
            status=self._states.until_running(),
            added=added if there and snapshot is not None else (),
            snapshot=snapshot or "",
            unread=unread if snapshot is not None else {},
            exact=wanted.get(_EXACTLY_ONCE) == "required",
        )

    def _wanted_here(self) -> dict[str, str]:
        """The same with transactions, where the worker has them: records of a worker that was fenced never show."""
        wanted, exact = self.wanted(), {_EXACTLY_ONCE: "required"}
        if _EXACTLY_ONCE in wanted or self.client.validate({**wanted, **exact, "name": self.name}).get(_EXACTLY_ONCE):
            return wanted
        return wanted | exact

    def _running(self) -> dict[str, str] | None:
        try:
            return self.client.running_config(self.name)
        except MissingConnector:
            return None

    def _askable(self, tables: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, str]]:
        return snapshots.askable_tables(self._settings, tables, self.wanted(), self._clock, self._timeout_s)

    def _due(self, running: dict[str, str] | None, waiting: Iterable[str]) -> list[str]:
        """Tables that wait for their rows, while no incremental snapshot is under way that would bring them."""
        late = [*waiting] if running is not None else []
        return late if late and not offsets.reads_incrementally(self.offsets()) else []

    def _ask(
        self, waiting: Mapping[str, int], tables: tuple[str, ...], unread: Mapping[str, str], *, gone: bool
    ) -> str | None:
        """Ask the connector, which stands still, for the rows that ``tables`` had when they joined. Returns the
        snapshot's id. Empty where none is asked for, None where its first one, which reads every table, is still to
        come. ``unread``: tables that cannot be asked for now. ``gone``: it had to be made again."""
        stored = self.offsets()
        if not stored:
            if gone:
                self._refuse_former_rows()
            snapshots.note_unread(self._settings, {})
            return None
        snapshot = self._read_again(stored, tables)
        if snapshot:
            # After the last older transaction: rows that come to an empty table are streamed.
            rows = {*tables} - snapshots.empty_tables(self._settings, tables)
            left = {**dict.fromkeys(unread, 0), **{table: at for table, at in waiting.items() if table not in tables}}
            snapshots.note_unread(self._settings, left, sorted(rows), self._now_ms())
        return snapshot

    def _read_again(self, stored: list[dict[str, Any]], tables: Iterable[str], where: str = "") -> str:
        """Note in its offsets that the connector, which stands still, reads these tables by an incremental snapshot,
        and none that is captured no more. Returns the snapshot's id. Empty where nothing is asked for.

        From its offsets it begins the snapshot before it streams. A signal would be carried out by a thread beside the
        one that streams, into the same window: on a busy database that ended tasks. And a task that ended
        before Kafka Connect had stored an offset forgot it.
        """
        identifier, names = str(uuid.uuid4()), [*map(spelled, tables)]
        keep = partial(captures_collection, self._settings)
        given = offsets.with_snapshot(stored, names, identifier, keep=keep, where=where)
        if given != stored:
            self.client.put_offsets(self.name, given)
        return identifier if names else ""

    @contextmanager
    def _standing_still(self, there: bool, *, goes_on: bool) -> Iterator[None]:
        """Stop the connector that is ``there`` while the body runs, so that it stores its offsets, and let it go on.
        ``goes_on``: also where the body fails."""
        try:
            if there:
                self._stop_or_make()
            yield
            if there:
                self.client.resume(self.name)
        except BaseException as failure:
            try:
                if goes_on:
                    self.client.resume(self.name)
            except CdcError:
                if isinstance(failure, CdcError):
                    failure.hint = f"the connector is left stopped: cdc connect resume; {failure.hint}".rstrip("; ")
            raise

    def _stop_or_make(self) -> None:
        """Stop it. One that is missing is made, stopped: it may have offsets of before."""
        try:
            self.stop()
        except MissingConnector:
            self.client.create_stopped(self.name, self.wanted())
            self._states.until_stopped()

    def _require_own_turn(self) -> None:
        """ConfigError while the native capture writes the topics, or a handover or a resnapshot is under way."""
        documents = topics.noted_documents(self._settings)
        require_turn(documents, "debezium")
        require_no_resnapshot(documents)

    def _refuse_former_rows(self) -> None:
        """ConfigError where a first snapshot would be laid over records of before. The connector is gone again."""
        if any(end for parts in topics.noted_ends(self._settings).values() for end in parts.values()):
            self.client.delete(self.name)
            raise ConfigError(
                "the topics hold records of a connector that is gone with its offsets, and a new snapshot would leave "
                "rows of before in them",
                hint="cdc connect resnapshot begins anew in new topics",
            )

    def _refuse_invalid(self) -> None:
        errors = self.validate()
        if errors:
            option, words = next(iter(errors.items()))
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            raise ConfigError(
                f"Kafka Connect refuses {option}: {words[0].rstrip('.')}{more}",
                hint="cdc connect validate lists every option that does not fit",
            )

    # Steering it.

    def restart(self, *, failed_only: bool = True) -> tuple[int, ...]:
        """Restart what failed (or all). The numbers of the tasks restarted. Returns when the connector runs."""
        before = self._states.now()
        tasks = tuple(task.task for task in (before.failed if failed_only else before.tasks))
        if failed_only and not tasks and before.state != FAILED:
            return ()
        self.client.restart(self.name, failed_only=failed_only)
        self._states.until_running(before.fault)
        return tasks

    def resume(self) -> ConnectorStatus:
        """Go on after a stop. Returns when it runs."""
        self._require_own_turn()
        self.client.resume(self.name)
        return self._states.until_running()

    def stop(self) -> None:
        """End the tasks. Returns when they have ended. The slot stays, and keeps WAL."""
        self.client.stop(self.name)
        self._states.until_stopped()

    def delete(self) -> None:
        """Remove the connector, its stored offsets first: nothing would forget them once it is gone. Slot, publication
        and topics stay. MissingConnector where there is none."""
        self.stop()
        self.client.reset_offsets(self.name)
        self.client.delete(self.name)

    def resnapshot(self) -> ConnectorStatus:
        """Begin anew in new topics: every table is read again, and each store is to be filled anew from them. Returns
        when the connector runs. Safe to repeat, also where it was killed at any step.

        See :func:`connectors.debezium.new_log.begin_new_log`.
        """

        def forget() -> None:
            self.client.put_config(self.name, self._wanted_here())
            self._states.until_stopped()
            self.client.reset_offsets(self.name)

        begin_new_log(
            self._settings, self._clock, validated=self._refuse_invalid, stop=self._stop_or_make, forget=forget
        )
        self.client.resume(self.name)
        return self._states.until_running()

    def snapshot(self, tables: Iterable[str], *, blocking: bool = False, where: str = "") -> str:
        """Read these tables again: while streaming goes on after a short stop, or ``blocking``, by a signal, while it
        is paused. ``where``: only rows for which this SQL condition holds, of one table. Returns the snapshot's id.

        UsageError for a table that is not captured. ConfigError for a connector that would not act.
        """
        names = snapshots.require_nameable(tables, where)
        snapshots.require_captured(self._settings, names)
        running = self.client.running_config(self.name)
        snapshots.require_running(self._states.now())
        if blocking:
            snapshots.note_signalled(self._settings, names, self._clock, self._timeout_s)
            return self._send("execute-snapshot", snapshots.blocking_data(names, where))
        snapshots.require_incremental(self._settings, running)
        for problem in unparted_tables(self._settings, [*map(spelled, names)]).values():
            raise ConfigError(problem.message, hint=problem.hint)
        if where:
            require_condition(self._settings, spelled(names[0]), where)
        snapshots.require_first_snapshot_over(self.offsets())
        with self._standing_still(True, goes_on=True):
            identifier = self._read_again(self.offsets(), names, where)
        self._states.until_running()
        return identifier

    def snapshot_control(self, word: str, tables: Iterable[str] = ()) -> str:
        """``pause`` or ``resume`` the running incremental snapshot by a signal, of which the id is returned. ``stop``
        takes these tables out of it, or all, also of a connector that has failed by it.

        Raises UsageError for any other word. ConfigError for a connector that would not act.
        """
        names = {*map(spelled, tables)}
        if word != "stop":
            return self._send(f"{word}-snapshot", snapshots.steering_data(word, names))
        snapshots.require_captured(self._settings, names)
        before = self._states.now()
        if not before.fault:
            snapshots.require_running(before)
            snapshots.require_first_snapshot_over(self.offsets())
        with self._standing_still(True, goes_on=True):
            left = offsets.with_snapshot(self.offsets(), [], keep=lambda one: bool(names) and one not in names)
            self.client.put_offsets(self.name, left)
        self._states.until_running(before.fault)
        return ""

    def _send(self, kind: str, data: Mapping[str, Any]) -> str:
        snapshots.require_running(self._states.now())
        return snapshots.send(self._settings, kind, data)

    def _now_ms(self) -> int:
        return self._clock.now_ns() // 1_000_000
