"""One pipeline's connector: deploy it, compare it, look at it, restart it, signal it, remove it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.errors import CdcError, ConfigError, UsageError
from cdc.settings import Settings
from cdc.status.facts import ConnectorFacts
from connectors.connect.connector_epochs import next_epoch, require_own_turn, settle_epoch
from connectors.connect.deployed import Change, Deployed
from connectors.connect.joined import Asked, ask_for_rows, joined_tables
from connectors.connect.lag import read_lag
from connectors.connect.moved import ask_moved, begins_anew, noted_topics, require_filled
from connectors.connect.published import Published, makes_publication, publish, with_unread
from connectors.connect.signal_rules import require_captured, require_running, require_snapshots, waiting_snapshot
from connectors.connect.signalling import make_signal_topic, send
from connectors.connect.streaming import Streaming, watch_connector
from connectors.connect.topics import prepare_topics
from connectors.debezium import signals
from connectors.debezium.address import described_address
from connectors.debezium.assignments import require_assignable
from connectors.debezium.client import ConnectClient, ConnectError, MissingConnector
from connectors.debezium.connector_config import (
    ConnectorConfig,
    changed_options,
    connector_config,
    connector_name,
    debezium_settings,
)
from connectors.debezium.connector_status import FAILED, STOPPED, ConnectorStatus, parse_status
from connectors.debezium.faults import advice
from connectors.debezium.signals import Signal
from connectors.debezium.source_progress import offset_at, shown_lsn, shown_position, snapshot_state

_POLL_S = 0.2
_STEADY_POLLS = 5
"""A connector that runs at so many looks in a row has started: right after an update the old tasks still show."""
_OLD_FAULT_S = 10.0


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

    @property
    def address(self) -> str:
        """Where the source is, as the settings name it. Without a login."""
        return described_address(self._settings)

    def condition(self) -> ConnectorStatus:
        """State and tasks alone: nothing but Kafka Connect is asked."""
        return parse_status(self.client.status(self.name))

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
        return advice(fault, self.database)

    def wanted(self) -> ConnectorConfig:
        """The configuration as the settings want it."""
        return connector_config(self._settings)

    def validate(self) -> dict[str, list[str]]:
        """The server's own validation of it: option -> what is wrong."""
        return self.client.validate({**self.wanted(), "name": self.name})

    def deploy(self) -> Deployed:
        """Create or update the connector and return when it runs. Nothing is touched when nothing differs.

        A Postgres publication is made, or gets the tables that it lacks. Their rows are read by an incremental
        snapshot, because Debezium's own is over: see :mod:`connectors.connect.joined`. A paused or stopped connector
        goes on. One that is changed is stopped meanwhile, so that no task of before the change is taken for a new one.

        ConfigError where the server's validation finds a fault or a table cannot be captured, ConnectError where
        the connector does not come up in time or a task fails, in its own words.
        """
        wanted = self.wanted()
        if self._settings.source.kind != "debezium":
            raise ConfigError(
                "[source] kind is not debezium: two writers in one topic would undo each other",
                hint='set [source] kind = "debezium", and stop cdc run',
            )
        require_own_turn(self._settings, self.offsets)
        running = self._running()
        changes = changed_options(wanted, running or {})
        if running is None or changes:
            self._refuse_invalid()
        halted = stands = self._refuse_moved(running)
        published = self._publish(running)
        added, asked = joined_tables(self._settings, published, running), Asked()
        # A new task reads the catalog at its start alone, and passes over a snapshot of a table that it does not know.
        if running is None or changes or added:
            make_signal_topic(self._settings)
            stands = self._stand_still(running)
            with self._going_on(unless=halted or running is None):
                if stands and self.offsets():
                    asked = ask_for_rows(self._settings, wanted, added, waits=published.open)
                prepare_topics(self._settings, published.tables)
                if running is None or changes:
                    self.client.put_config(self.name, wanted)
        if stands:
            self.client.resume(self.name)
        return Deployed(
            action="created" if running is None else "updated" if changes else "unchanged",
            changes=changes,
            status=self._until_running(),
            cautions=published.cautions,
            added=added if asked != Asked() else (),
            signal=asked.signal,
            unread=asked.unread,
        )

    def diff(self) -> dict[str, Change]:
        """option -> (running, wanted) where they differ, secrets masked. MissingConnector where none runs."""
        return changed_options(self.wanted(), self.client.running_config(self.name))

    def status(self) -> ConnectorStatus:
        """State, tasks, stored offsets and the slot's lag (None where the source cannot be asked)."""
        status = parse_status(self.client.status(self.name))
        lag, unknown = read_lag(self._settings)
        return replace(status, offsets=tuple(self.client.offsets(self.name)), lag=lag, lag_unknown=unknown)

    def streaming(self) -> Streaming | None:
        """Whether it reads, watched for up to 66 s. None for a database without a slot. SourceError where Postgres
        cannot be asked."""
        if self._debezium.database != "postgres":
            return None
        return watch_connector(self._settings, self.offsets, self._clock)

    def waiting_snapshot(self, status: ConnectorStatus) -> str:
        """See :func:`connectors.connect.signal_rules.waiting_snapshot`."""
        return waiting_snapshot(self._settings, status.offsets)

    def restart(self, *, failed_only: bool = True) -> tuple[int, ...]:
        """Restart what failed (or all). The numbers of the tasks restarted. Returns when the connector runs."""
        before = parse_status(self.client.status(self.name))
        tasks = tuple(task.task for task in (before.failed if failed_only else before.tasks))
        if failed_only and not tasks and before.state != FAILED:
            return ()
        self.client.restart(self.name, failed_only=failed_only)
        self._until_running(before.fault)
        return tasks

    def pause(self) -> None:
        """Hold the tasks: the slot stays in use, and keeps WAL."""
        self.client.pause(self.name)

    def resume(self, *, handing_over: bool = False) -> ConnectorStatus:
        """Go on after a pause or a stop. Returns when it runs. ``handing_over``: as a handover's own step."""
        if not handing_over:
            require_own_turn(self._settings, self.offsets)
        self.client.resume(self.name)
        return self._until_running()

    def stop(self) -> None:
        """End the tasks. Returns when they have ended. The slot stays, and keeps WAL."""
        self.client.stop(self.name)
        self._until_stopped()

    def offsets(self) -> list[dict[str, Any]]:
        """The stored source offsets."""
        return self.client.offsets(self.name)

    def running_config(self) -> dict[str, str]:
        """The configuration in force. MissingConnector where there is none."""
        return self.client.running_config(self.name)

    def reset_offsets(self) -> int:
        """Forget the offsets, so that the next start takes a new snapshot. The connector is left stopped.

        Positions start over then, so records from here on belong to a new epoch, which is noted in the state
        topic before the offsets go. Returns it. That they are gone is noted behind: from then on what the connector
        says of its snapshot is about the new epoch.
        """
        self.stop()
        epoch = next_epoch(self._settings)
        self.client.reset_offsets(self.name)
        settle_epoch(self._settings, epoch)
        return epoch

    def delete(self) -> None:
        """Remove the connector, its stored offsets first (see there). Slot, publication and topics stay."""
        self.reset_offsets()
        self.client.delete(self.name)

    def withdraw(self) -> None:
        """Remove the connector with its stored offsets, and begin no epoch: for one whose topics it leaves to others.

        MissingConnector where there is none.
        """
        self.stop()
        self.client.reset_offsets(self.name)
        self.client.delete(self.name)

    def place_stopped(self, lsn: int) -> None:
        """Create the connector, or stop the one that is there, and let its next start read from ``lsn`` on.

        Every change below ``lsn`` counts as written, and no snapshot is taken. Call it before anything runs.
        """
        wanted = self.wanted()
        self._refuse_invalid()
        require_filled(self._settings, ask_moved(self._settings, {}), begins=False)
        make_signal_topic(self._settings)
        if self._running() is None:
            self._make_stopped()
        else:
            self.stop()
            self.client.put_config(self.name, wanted)
            self._until_stopped()
        self.client.alter_offsets(self.name, {"server": self._settings.name}, offset_at(lsn, self._clock.now_ns()))

    def require_healthy(self) -> ConnectorStatus:
        """Its status. ConnectError when it or a task has failed."""
        status = parse_status(self.client.status(self.name))
        if status.fault:
            raise self._failed(status)
        return status

    def snapshot(self, tables: Iterable[str], *, blocking: bool = False, where: str | None = None) -> str:
        """Ask for a snapshot of these tables while streaming. Returns the signal's id.

        UsageError for a table that is not captured. ConfigError for a connector that would not act on it.
        """
        names = list(tables)
        kind: signals.SnapshotKind = "blocking" if blocking else "incremental"
        require_captured(self._settings, names)
        require_snapshots(self._settings, self.client.running_config(self.name), kind)
        return self._send(signals.execute_snapshot(_new_id(), names, kind=kind, where=where))

    def snapshot_control(self, word: str, tables: Iterable[str] = ()) -> str:
        """``stop``, ``pause`` or ``resume`` the running incremental snapshot. Returns the signal's id.

        Raises UsageError for any other word.
        """
        match word:
            case "stop":
                return self._send(signals.stop_snapshot(_new_id(), tables))
            case "pause":
                return self._send(signals.pause_snapshot(_new_id()))
            case "resume":
                return self._send(signals.resume_snapshot(_new_id()))
        raise UsageError(f"there is no signal {word}", hint="snapshot, stop, pause or resume")

    def _stand_still(self, running: ConnectorConfig | None) -> bool:
        """Stop the connector, so that it stores its offsets. One that is missing may have some of before, and is made
        where tables were noted. Whether it stands now: not where nothing was there."""
        if running is not None:
            self.stop()
        elif noted_topics(self._settings) is not None:
            self._make_stopped()
        else:
            return False
        return True

    @contextmanager
    def _going_on(self, *, unless: bool) -> Iterator[None]:
        """Let the connector go on where the body fails, ``unless`` somebody else had halted it."""
        try:
            yield
        except BaseException:
            if not unless:
                with suppress(CdcError):
                    self.client.resume(self.name)
            raise

    def _refuse_moved(self, running: ConnectorConfig | None) -> bool:
        """Whether the connector is paused or stopped. ConfigError where a table's topic changes and would lack rows.

        One that is missing may have offsets, and is asked for them where a topic changes: it is made, and not started.
        """
        require_assignable(self._settings, asked=makes_publication(self._settings))
        moved = ask_moved(self._settings, running or {})
        if moved and running is None:
            self._make_stopped()
        if moved:
            require_filled(self._settings, moved, begins=begins_anew(self.condition(), self.offsets()))
        return (running is not None or bool(moved)) and self._halted()

    def _make_stopped(self) -> None:
        self.client.create_stopped(self.name, self.wanted())
        self._until_stopped()

    def _halted(self) -> bool:
        try:
            return self.condition().halted
        except MissingConnector:
            return False

    def _publish(self, running: ConnectorConfig | None) -> Published:
        if not makes_publication(self._settings):
            return Published()
        done = publish(self._settings, self._clock, wait_s=self._debezium.deploy_timeout.total_seconds())
        return with_unread(done, noted_topics(self._settings), running)

    def _running(self) -> ConnectorConfig | None:
        try:
            return self.client.running_config(self.name)
        except MissingConnector:
            return None

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
        require_running(parse_status(self.client.status(self.name)))
        send(signal, self._settings)
        return signal.identifier

    def _fault(self) -> str:
        try:
            return parse_status(self.client.status(self.name)).fault
        except MissingConnector:
            return ""

    def _until_stopped(self) -> None:
        self._until(lambda status: status.state == STOPPED and not status.tasks, "stop")

    def _until_running(self, old_fault: str = "") -> ConnectorStatus:
        """``old_fault`` is what had failed before: it still shows for a moment, until the restart is noted."""
        steady, began = 0, self._clock.monotonic()

        def runs(status: ConnectorStatus) -> bool:
            nonlocal steady, old_fault
            steady = steady + 1 if status.runs else 0
            if status.halted and self._clock.monotonic() - began > _OLD_FAULT_S:
                raise ConnectError(
                    f"the connector {self.name} is {status.state.lower()}, and does not go on by itself",
                    hint="cdc connect resume",
                )
            if not status.fault or self._clock.monotonic() - began > _OLD_FAULT_S:
                old_fault = ""
            if status.fault and status.fault != old_fault:
                raise self._failed(status)
            return steady >= _STEADY_POLLS

        return self._until(runs, "run")

    def _failed(self, status: ConnectorStatus) -> ConnectError:
        return ConnectError(f"the connector {self.name} failed: {status.fault}", hint=self.remedy(status.fault))

    def _until(self, reached: Callable[[ConnectorStatus], bool], verb: str) -> ConnectorStatus:
        deadline = self._clock.monotonic() + self._debezium.deploy_timeout.total_seconds()
        words = "it has no status yet"
        while self._clock.monotonic() < deadline:
            try:
                status = parse_status(self.client.status(self.name))
            except MissingConnector:
                status = None
            if status is not None:
                if reached(status):
                    return status
                words = f"it is {status.state} with {len(status.tasks)} tasks"
            self._clock.sleep(_POLL_S)
        raise ConnectError(
            f"the connector {self.name} did not {verb} in {self._debezium.deploy_timeout.total_seconds():g} s: {words}",
            hint="cdc connect status shows how it goes on; [debezium] deploy_timeout sets the time",
        )


def _new_id() -> str:
    return str(uuid.uuid4())
