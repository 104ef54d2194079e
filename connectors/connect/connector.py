"""One pipeline's connector: deploy it, compare it, look at it, restart it, signal it, remove it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.crash_points import crash_point
from cdc.process.errors import CdcError, ConfigError, UsageError
from cdc.record.writers import require_settled, require_turn
from cdc.settings.model import Settings
from cdc.status.facts import ConnectorFacts
from connectors.connect import signalling
from connectors.connect.connector_publication import Known, Published, makes_publication, publish, require_whole_rows
from connectors.connect.connector_states import Asked, Change, ConnectorStates, Deployed, ask_for_rows, joined_tables
from connectors.connect.joined_tables import (
    AGAIN_MS,
    empty_tables,
    note_unread,
    unread_cautions,
    unread_tables,
)
from connectors.connect.new_log import (
    delete_topics,
    drop_lost_slot,
    note_resnapshot,
    require_no_native_writer,
    require_no_resnapshot,
)
from connectors.connect.signalling import (
    Signal,
    make_signal_topic,
    note_signalled,
    require_captured,
    require_running,
    require_snapshots,
    send,
    waiting_snapshot,
)
from connectors.connect.streaming import Streaming, read_lag, watch_connector
from connectors.connect.topics import noted_documents, noted_ends, noted_topics, prepare_topics, require_topics
from connectors.debezium.address import described_address
from connectors.debezium.client import ConnectClient, MissingConnector
from connectors.debezium.connector_config import (
    ConnectorConfig,
    changed_options,
    connector_config,
    connector_name,
    debezium_settings,
)
from connectors.debezium.connector_status import FAILED, ConnectorStatus, advice
from connectors.debezium.source_progress import (
    reads_incrementally,
    shown_lsn,
    shown_position,
    snapshot_state,
)

_EXACTLY_ONCE = "exactly.once.support"


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
        timeout_s = self._debezium.deploy_timeout.total_seconds()
        self._states = ConnectorStates(self.name, self.client, clock, timeout_s=timeout_s)

    @property
    def address(self) -> str:
        """Where the source is, as the settings name it. Without a login."""
        return described_address(self._settings)

    def condition(self) -> ConnectorStatus:
        """State and tasks alone: nothing but Kafka Connect is asked."""
        return self._states.now()

    def facts(self) -> ConnectorFacts:
        """The connector's state in Kafka Connect, for the pipeline's status. ConnectError where it does not answer."""
        status, stored = self.condition(), self.offsets()
        return ConnectorFacts(
            name=self.name,
            database=self.database,
            address=self.address,
            state=status.state if status.runs or status.fault or status.state != "RUNNING" else "STARTING",
            fault=status.fault,
            snapshot=snapshot_state(stored),
            position=shown_position(stored),
            lsn=shown_lsn(stored) if self.database == "postgres" else None,
        )

    def remedy(self, fault: str) -> str:
        """The remedy for a task's failure."""
        return advice(fault)

    def wanted(self) -> ConnectorConfig:
        """The configuration as the settings want it."""
        return connector_config(self._settings)

    def wanted_here(self) -> ConnectorConfig:
        """The same with transactions, where the worker has them: records of a worker that was fenced never show."""
        wanted, exact = self.wanted(), {_EXACTLY_ONCE: "required"}
        if _EXACTLY_ONCE in wanted or self.client.validate({**wanted, **exact, "name": self.name}).get(_EXACTLY_ONCE):
            return wanted
        return wanted | exact

    def validate(self) -> dict[str, list[str]]:
        """The server's own validation of it: option -> what is wrong."""
        return self.client.validate({**self.wanted(), "name": self.name})

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
        wanted = self.wanted_here()
        running = self._running()
        changes = changed_options(wanted, running or {})
        if running is None or changes:
            self._refuse_invalid()
        require_topics(self._settings)
        halted, waiting = running is not None and self._halted(), unread_tables(self._settings)
        known = Known(topics=noted_topics(self._settings), running=running, due=tuple(self._due(running, waiting)))
        published = self._publish(known)
        joined = joined_tables(self._settings, published, known)
        added, asked = tuple(dict.fromkeys([*joined, *known.due])), Asked()
        if running is not None or known.topics is not None:
            # Noted first: whatever fails behind it, the next deploy asks again.
            note_unread(self._settings, waiting, added)
        if running is None or changes or joined:
            make_signal_topic(self._settings)
            with self._standing_still(known, goes_on=running is not None and not halted) as there:
                if there and self.offsets():
                    asked = self._ask(waiting, added, published)
                elif there and running is None:
                    self._refuse_former_rows()
                    note_unread(self._settings, {})  # its first snapshot reads every table
                prepare_topics(self._settings, published.tables)
                if running is None or changes:
                    self.client.put_config(self.name, wanted)
        elif halted:
            self.client.resume(self.name)
        status = self._states.until_running()
        if asked == Asked() and running is not None and added and self.offsets():
            # Its offsets came late, or nothing had to stand still: a second reading does no harm, a missing one does.
            asked = self._ask(waiting, added, published)
        return Deployed(
            action="created" if running is None else "updated" if changes else "unchanged",
            changes=changes,
            status=status,
            added=added if asked != Asked() else (),
            signal=asked.signal,
            unread=asked.unread,
            exact=wanted.get(_EXACTLY_ONCE) == "required",
        )

    def diff(self) -> dict[str, Change]:
        """option -> (running, wanted) where they differ, secrets masked. MissingConnector where none runs."""
        return changed_options(self.wanted_here(), self.client.running_config(self.name))

    def status(self) -> ConnectorStatus:
        """State, tasks, stored offsets and the slot's lag (None where the source cannot be asked)."""
        status = self._states.now()
        lag, unknown = read_lag(self._settings)
        return replace(status, offsets=tuple(self.client.offsets(self.name)), lag=lag, lag_unknown=unknown)

    def streaming(self) -> Streaming | None:
        """Whether it reads, watched for up to 66 s. None for a database without a slot. SourceError where Postgres
        cannot be asked."""
        if self._debezium.database != "postgres":
            return None
        return watch_connector(self._settings, self.offsets, self._clock)

    def unread(self) -> list[tuple[str, str]]:
        """See :func:`connectors.connect.joined_tables.unread_cautions`."""
        return unread_cautions(self._settings, self._clock.now_ns() // 1_000_000)

    def waiting_snapshot(self, status: ConnectorStatus) -> str:
        """See :func:`connectors.connect.signalling.waiting_snapshot`."""
        return waiting_snapshot(self._settings, status.offsets)

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

    def offsets(self) -> list[dict[str, Any]]:
        """The stored source offsets."""
        return self.client.offsets(self.name)

    def running_config(self) -> dict[str, str]:
        """The configuration in force. MissingConnector where there is none."""
        return self.client.running_config(self.name)

    def resnapshot(self) -> ConnectorStatus:
        """Begin anew in new topics: every table is read again, and each store is to be filled anew from them. Returns
        when the connector runs. Safe to repeat, also where it was killed at any step.

        Looks first whether the source can be read and each table be captured. A slot that the server gave up is made
        anew. ConfigError while the native capture writes.
        """
        require_settled(noted_documents(self._settings))
        require_no_native_writer(self._settings)
        self._refuse_invalid()
        published = self._publish(Known())
        make_signal_topic(self._settings)
        note_resnapshot(self._settings, begun=True)
        try:
            self.stop()
        except MissingConnector:
            self._make_stopped()
        drop_lost_slot(self._settings)
        crash_point("resnapshot_stopped")
        deleted = delete_topics(self._settings, self._clock)
        prepare_topics(self._settings, published.tables, deleted)
        crash_point("resnapshot_made")
        self.client.put_config(self.name, self.wanted_here())
        self._states.until_stopped()
        self.client.reset_offsets(self.name)
        note_unread(self._settings, {})
        crash_point("resnapshot_reset")
        note_resnapshot(self._settings, begun=False)
        self.client.resume(self.name)
        return self._states.until_running()

    def delete(self) -> None:
        """Remove the connector, its stored offsets first: nothing would forget them once it is gone. Slot, publication
        and topics stay. MissingConnector where there is none."""
        self.stop()
        self.client.reset_offsets(self.name)
        self.client.delete(self.name)

    def require_healthy(self) -> ConnectorStatus:
        """Its status. ConnectError when it or a task has failed."""
        status = self._states.now()
        if status.fault:
            raise self._states.failed(status)
        return status

    def snapshot(self, tables: Iterable[str], *, blocking: bool = False, where: str | None = None) -> str:
        """Ask for a snapshot of these tables while streaming. Returns the signal's id.

        UsageError for a table that is not captured. ConfigError for a connector that would not act.
        """
        names = list(tables)
        kind: signalling.SnapshotKind = "blocking" if blocking else "incremental"
        require_captured(self._settings, names)
        require_snapshots(self._settings, self.client.running_config(self.name), kind)
        note_signalled(self._settings, self._clock.now_ns() // 1_000_000)
        return self._send(signalling.execute_snapshot(signalling.new_identifier(), names, kind=kind, where=where))

    def snapshot_control(self, word: str, tables: Iterable[str] = ()) -> str:
        """``stop``, ``pause`` or ``resume`` the running incremental snapshot. Returns the signal's id.

        Raises UsageError for any other word.
        """
        match word:
            case "stop":
                return self._send(signalling.stop_snapshot(signalling.new_identifier(), tables))
            case "pause":
                return self._send(signalling.pause_snapshot(signalling.new_identifier()))
            case "resume":
                return self._send(signalling.resume_snapshot(signalling.new_identifier()))
        raise UsageError(f"there is no signal {word}", hint="snapshot, stop, pause or resume")

    def _due(self, running: ConnectorConfig | None, waiting: Mapping[str, int]) -> list[str]:
        """Tables that were asked for a while ago and have no row yet, while no incremental snapshot is under way."""
        now_ms = self._clock.now_ns() // 1_000_000
        late = [table for table, at_ms in waiting.items() if now_ms - at_ms >= AGAIN_MS]
        return late if running is not None and late and not reads_incrementally(self.offsets()) else []

    def _ask(self, waiting: Mapping[str, int], tables: tuple[str, ...], published: Published) -> Asked:
        asked = ask_for_rows(self._settings, self.wanted(), tables, waits=published.open)
        if asked.signal:
            # Asked behind the last older transaction: rows that come to an empty table are streamed.
            rest = [table for table in tables if table not in empty_tables(self._settings, tables)]
            left = {table: at_ms for table, at_ms in waiting.items() if table not in tables}
            note_unread(self._settings, left, rest, self._clock.now_ns() // 1_000_000)
        return asked

    @contextmanager
    def _standing_still(self, known: Known, *, goes_on: bool) -> Iterator[bool]:
        """Stop the connector while the body runs, so that it stores its offsets, and let it go on. Whether it is there:
        a missing one may have offsets of before, and is made where tables were noted.

        ``goes_on``: also where the body fails.
        """
        there = known.running is not None or known.topics is not None
        try:
            if known.running is not None:
                self.stop()
            elif there:
                self._make_stopped()
            yield there
            if there:
                self.client.resume(self.name)
        except BaseException as failure:
            if goes_on:
                self._go_on(failure)
            raise

    def _go_on(self, failure: BaseException) -> None:
        try:
            self.client.resume(self.name)
        except CdcError:
            if isinstance(failure, CdcError):
                failure.hint = f"the connector is left stopped: cdc connect resume; {failure.hint}".rstrip("; ")

    def _make_stopped(self) -> None:
        self.client.create_stopped(self.name, self.wanted())
        self._states.until_stopped()

    def _halted(self) -> bool:
        try:
            return self.condition().halted
        except MissingConnector:
            return False

    def _publish(self, known: Known) -> Published:
        if not makes_publication(self._settings):
            require_whole_rows(self._settings)
            return Published()
        return publish(self._settings, self._clock, known, wait_s=self._debezium.deploy_timeout.total_seconds())

    def _running(self) -> ConnectorConfig | None:
        try:
            return self.client.running_config(self.name)
        except MissingConnector:
            return None

    def _require_own_turn(self) -> None:
        """ConfigError while the native capture writes the topics, or a handover or a resnapshot is under way."""
        documents = noted_documents(self._settings)
        require_turn(documents, "debezium")
        require_no_resnapshot(documents)

    def _refuse_former_rows(self) -> None:
        """ConfigError where a first snapshot would be laid over records of before. The connector is gone again."""
        if any(end for parts in noted_ends(self._settings).values() for end in parts.values()):
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

    def _send(self, signal: Signal) -> str:
        require_running(self._states.now())
        send(signal, self._settings)
        return signal.identifier
