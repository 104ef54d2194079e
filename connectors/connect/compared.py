"""Postgres, Kafka, Kafka Connect and both captures, as a comparison uses them: :mod:`cdc.comparison.ports`."""

from __future__ import annotations

import subprocess
import threading
from base64 import b64decode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress

import orjson
from confluent_kafka import Message

from cdc.capture import CaptureStop, keep_capturing
from cdc.clock import SYSTEM_CLOCK
from cdc.comparison.compared_record import ComparedRecord, Facts, table_facts
from cdc.comparison.lossless import parse
from cdc.comparison.ports import ComparisonPorts
from cdc.comparison.sides import MARK, Sides
from cdc.cuts import Cut, RepairRow, VerifiedTable
from cdc.errors import UsageError
from cdc.metrics import CaptureFigures
from cdc.ports import CompactedTopic
from cdc.progress import PROGRESS_KEY, Progress
from cdc.settings import LogSettings, Settings
from cdc.state import TopicsState
from cdc.topic import progress_topic, schema_topic, state_topic
from connectors.connect.compared_tables import read_tables
from connectors.connect.connector import Connector
from connectors.debezium.client import MissingConnector
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import KafkaCompactedTopic as KafkaTopic
from connectors.kafka.compacted import read_range
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.postgres.catalog_facts import read_publication
from connectors.postgres.connections import Connection, connect
from connectors.postgres.cut import SourceCut
from connectors.postgres.publication import drop_publication
from connectors.postgres.slot import drop_slot
from connectors.session.opening import Opening
from connectors.verified import open_cut

_APPLICATION = "cdc compare"
_END_S = 60
"""How long the native capture may take to end."""


def published(settings: Settings) -> bool:
    """Whether the server has the pipeline's publication."""
    with closing(_session(settings)) as session:
        return read_publication(session, settings.publication) is not None


def run_command(command: Sequence[str]) -> int:
    """Run a command to its end. Its exit code. UsageError when it cannot be started."""
    try:
        # Its output goes to stderr: our own stdout carries the result alone.
        return subprocess.run(list(command), check=False, stdout=2).returncode
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be run: {error.strerror}") from None


def clean(settings: Settings, sides: Sides) -> Iterator[str]:
    """Remove connector, slots, topics and publication of a comparison, as far as they are there. A sentence each."""
    with suppress(MissingConnector):
        Connector(sides.debezium).withdraw()
        yield f"removed the connector {sides.debezium.name}"
    with closing(_session(settings)) as session:
        for side in (sides.native, sides.debezium):
            if drop_slot(session, side.slot):
                yield f"dropped the slot {side.slot}"
        if sides.publication_made:
            drop_publication(session, sides.native.publication)
    admin = TopicAdmin(settings.log)
    admin.delete(sides.made(admin.names()))


class NativeSide:
    """:class:`cdc.comparison.ports.ComparedNative`: the capture daemon's loop in a thread.

    ``prepare``: makes the pipeline and takes its first snapshot. The flag says whether with rows.
    """

    def __init__(
        self,
        settings: Settings,
        prepare: Callable[[bool], object],
        opening: Callable[[CaptureFigures, CaptureStop], Opening],
        progress: CompactedTopic,
    ) -> None:
        self._prepare = prepare
        self._opening = opening
        self._progress = progress
        self._stop = CaptureStop(SYSTEM_CLOCK, settings.capture.drain_timeout.total_seconds())
        self._figures = CaptureFigures(ticked_s=SYSTEM_CLOCK.monotonic())
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, *, rows: bool) -> None:
        self._prepare(rows)
        self._figures.ticked_s = SYSTEM_CLOCK.monotonic()
        self._thread = threading.Thread(target=self._run, name="native capture", daemon=True)
        self._thread.start()

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._stop.want()
        if self._thread is not None:
            self._thread.join(_END_S)

    def reached(self) -> int:
        value = self._progress.read().get(PROGRESS_KEY)
        return Progress.from_json(value).lsn if value is not None else 0

    def _run(self) -> None:
        opening = self._opening(self._figures, self._stop)
        try:
            keep_capturing(opening.open, figures=self._figures, stop=self._stop, clock=SYSTEM_CLOCK)
        except BaseException as error:
            self._error = error


class DebeziumSide:
    """:class:`cdc.comparison.ports.Debezium` on Kafka Connect."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connector = Connector(settings)

    def start(self, *, rows: bool) -> None:
        self._connector.deploy()

    def check(self) -> None:
        self._connector.require_healthy()

    def close(self) -> None:
        """It runs on until it is removed."""

    def marks(self) -> Collection[str]:
        found = [
            orjson.loads(m.value() or b"null") for m in _messages(self._settings.log, f"{self._settings.name}.message")
        ]
        return {b64decode(told["message"]["content"]).decode() for told in found if told}


class ComparedSource:
    """:class:`cdc.comparison.ports.ComparisonSource` on Postgres. ``verified``: the captured tables, asked through a
    cut."""

    def __init__(
        self,
        settings: Settings,
        cut: Callable[[], SourceCut],
        verified: Callable[[SourceCut], Mapping[str, VerifiedTable]],
    ) -> None:
        self._settings = settings
        self._open_cut = cut
        self._verified = verified
        self._session: Connection | None = None
        self._cut: SourceCut | None = None

    def mark(self, content: str) -> int:
        if self._session is None:
            self._session = _session(self._settings)
        row = self._session.execute(b"select pg_logical_emit_message(true, %s, %s)", [MARK, content]).fetchone()
        assert row is not None
        # Another statement: its answer lies behind the first one's commit.
        behind = self._session.execute(b"select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        assert behind is not None
        return int(behind[0])

    def cut(self) -> Cut:
        return self._reader().cut()

    def tables(self) -> Mapping[str, VerifiedTable]:
        return self._verified(self._reader())

    def records_of(self, table: VerifiedTable, keys: Sequence[str]) -> Iterator[dict[str, RepairRow]]:
        return self._reader().records_of(table, keys)

    def close(self) -> None:
        for opened in (self._session, self._cut):
            if opened is not None:
                opened.close()

    def _reader(self) -> SourceCut:
        if self._cut is None:
            self._cut = self._open_cut()
        return self._cut


class WrittenTopics:
    """:class:`cdc.comparison.ports.ComparedTopics` on Kafka, and on Postgres for what explains differences."""

    def __init__(
        self, settings: Settings, sides: Sides, state: CompactedTopic, schemas: Callable[[], SchemaRegistry]
    ) -> None:
        self._settings = settings
        self._sides = sides
        self._state = state
        self._schemas = schemas
        self._admin = TopicAdmin(settings.log)

    def ends(self) -> object:
        head = f"{self._sides.debezium.name}."
        return self._admin.end_offsets(self._admin.counts(t for t in self._admin.names() if t.startswith(head)))

    def topics(self) -> tuple[Mapping[str, str], Sequence[str]]:
        state = TopicsState.find(self._state.read())
        return state.tables if state is not None else {}, self._admin.names()

    def records(self, topic: str, table: str) -> list[ComparedRecord]:
        return [_record(message, table) for message in _messages(self._settings.log, topic)]

    def facts(self) -> Facts:
        versions = self._schemas().versions()
        with closing(_session(self._settings)) as session:
            return table_facts(read_tables(session), versions)


def _session(settings: Settings) -> Connection:
    return connect(settings.source, application_name=_APPLICATION, autocommit=True)


def _messages(settings: LogSettings, topic: str) -> Iterator[Message]:
    """The records of a topic as far as it goes now, partition by partition. None where there is no such topic."""
    for partition in range(TopicAdmin(settings).counts([topic]).get(topic, 0)):
        yield from read_range(settings, topic, partition)


def _record(message: Message, table: str) -> ComparedRecord:
    key, value, headers = message.key(), message.value(), message.headers() or ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    return ComparedRecord(
        table=table,
        key=parse(key) if isinstance(key, bytes) else None,
        value=parse(value) if isinstance(value, bytes) else None,
        headers=tuple((name, text.decode() if isinstance(text, bytes) else "") for name, text in pairs),
        place=(message.partition() or 0, message.offset() or 0),
    )


def ports_of(
    settings: Settings,
    sides: Sides,
    *,
    prepare: Callable[[bool], None],
    opening: Callable[[CaptureFigures, CaptureStop], Opening],
    verified: Callable[[SourceCut], Mapping[str, VerifiedTable]],
) -> ComparisonPorts:
    """Everything that a comparison of these sides uses. Nothing is opened before it is asked.

    ``prepare`` makes the native side's topics and, with true, its first snapshot. ``opening``: its capture.
    ``verified``: by name, the tables that both sides have.
    """
    native = sides.native

    def topic(name: str) -> KafkaTopic:
        return KafkaTopic(native.log, name)

    return ComparisonPorts(
        native=NativeSide(native, prepare, opening, topic(progress_topic(native.name))),
        debezium=DebeziumSide(sides.debezium),
        source=ComparedSource(native, lambda: open_cut(native), verified),
        written=WrittenTopics(
            settings, sides, topic(state_topic(native.name)), lambda: SchemaRegistry(topic(schema_topic(native.name)))
        ),
        clean=lambda: clean(settings, sides),
        run=run_command,
    )
