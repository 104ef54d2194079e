"""One pipeline's connector: deploy it, compare it, look at it, restart it, signal it, remove it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from connectors.debezium.databases import described_address
from connectors.debezium.new_log import begin_new_log, require_no_resnapshot
from connectors.debezium.offsets import Streaming
from connectors.debezium.status import FAILED, ConnectorStates, ConnectorStatus
from connectors.debezium.tables import captured_tables, joined_tables, publish, settled

_EXACTLY_ONCE = "exactly.once.support"

Change = tuple[str | None, str | None]
_Asked = tuple[str, str]
"""The id of the signal that asks for rows. Where none was sent it is empty, and the second says why."""
_NOT_ASKED: _Asked = ("", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """The result of :meth:`Connector.deploy`.

    ``action``: ``created``, ``updated`` or ``unchanged``. ``changes``: option -> (before, now). ``added``: tables that
    joined a connector which runs already. ``signal``: the id of the snapshot of their rows. Empty where they are not
    read, and ``unread`` then says why. ``exact``: it writes in transactions.
    """

    action: str
    changes: dict[str, Change]
    status: ConnectorStatus
    added: tuple[str, ...] = ()
    signal: str = ""
    unread: str = ""
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
        there, asked = running is not None or noted is not None, _NOT_ASKED
        if there:
            # Noted first: whatever fails behind it, the next deploy asks again.
            snapshots.note_unread(self._settings, waiting, added)
        waits = bool(there and added) and not settled(self._settings, self._clock, self._timeout_s)
        if running is None or changes or joined:
            snapshots.make_signal_topic(self._settings)
            with self._standing_still(there, goes_on=running is not None and not halted):
                # While it stands still, and before the configuration and the notes by which the tables count as known.
                # Given to one that says RUNNING, a signal may reach the task of before the change, which passes over a
                # table that it does not know. Given last, it would be forgotten by a deploy that ends between the two.
                stored = self.offsets() if there else []
                if stored and added:
                    asked = self._ask(waiting, added, waits=waits)
                elif there and running is None and not stored:
                    self._refuse_former_rows()
                    snapshots.note_unread(self._settings, {})  # its first snapshot reads every table
                topics.prepare_topics(self._settings, tables)
                if running is None or changes:
                    self.client.put_config(self.name, wanted)
        elif halted:
            self.client.resume(self.name)
        status = self._states.until_running()
        if asked == _NOT_ASKED and running is not None and added and self.offsets():
            # Its offsets came late, or nothing had to stand still: a second reading does no harm, a missing one does.
            asked = self._ask(waiting, added, waits=waits)
        return Deployed(
            action="created" if running is None else "updated" if changes else "unchanged",
            changes=changes,
            status=status,
            added=added if asked != _NOT_ASKED else (),
            signal=asked[0],
            unread=asked[1],
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

    def _due(self, running: dict[str, str] | None, waiting: Mapping[str, int]) -> list[str]:
        """Tables that were asked for a while ago and have no row yet, while no incremental snapshot is under way."""
        late = [table for table, at_ms in waiting.items() if self._now_ms() - at_ms >= snapshots.AGAIN_MS]
        return late if running is not None and late and not offsets.reads_incrementally(self.offsets()) else []

    def _ask(self, waiting: Mapping[str, int], tables: tuple[str, ...], *, waits: bool) -> _Asked:
        """Ask for the rows that tables had when they joined. ``waits``: an older transaction is still open."""
        if waits:
            return "", "a transaction that is older than the table is open"
        try:
            snapshots.require_incremental(self._settings, self.wanted())
        except ConfigError as refusal:
            return "", refusal.message
        signal = snapshots.send(self._settings, "execute-snapshot", snapshots.snapshot_data(tables))
        # Asked behind the last older transaction: rows that come to an empty table are streamed.
        empty = snapshots.empty_tables(self._settings, tables)
        left = {table: at_ms for table, at_ms in waiting.items() if table not in tables}
        snapshots.note_unread(self._settings, left, [table for table in tables if table not in empty], self._now_ms())
        return signal, ""

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

    def snapshot(self, tables: Iterable[str], *, blocking: bool = False, where: str | None = None) -> str:
        """Ask for a snapshot of these tables while streaming. Returns the signal's id.

        UsageError for a table that is not captured. ConfigError for a connector that would not act.
        """
        names = list(tables)
        snapshots.require_captured(self._settings, names)
        running = self.client.running_config(self.name)
        if not blocking:
            snapshots.require_incremental(self._settings, running)
        snapshots.note_signalled(self._settings, self._now_ms())
        return self._send("execute-snapshot", snapshots.snapshot_data(names, blocking=blocking, where=where))

    def snapshot_control(self, word: str, tables: Iterable[str] = ()) -> str:
        """``stop``, ``pause`` or ``resume`` the running incremental snapshot. Returns the signal's id.

        Raises UsageError for any other word.
        """
        return self._send(f"{word}-snapshot", snapshots.steering_data(word, tables))

    def _send(self, kind: str, data: Mapping[str, Any]) -> str:
        snapshots.require_running(self._states.now())
        return snapshots.send(self._settings, kind, data)

    def _now_ms(self) -> int:
        return self._clock.now_ns() // 1_000_000
