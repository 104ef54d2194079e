"""A source, a log and both writers in memory. Every piece keeps what a killed command leaves behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cdc.operate.handover import Handover
from cdc.operate.handover_rules import ConnectorState, HandoverPlan, HandoverPorts, KeyQuestion, LockedSession
from cdc.process.clock import ManualClock
from cdc.record.position import Position
from cdc.record.progress import PROGRESS_KEY, Progress, WriterState
from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.server_facts import ServerFacts, SlotFacts
from cdc.record.state import TopicsState
from cdc.record.topic_names import TableName, state_topic
from tests.killing import Steps
from tests.memory_log import MemoryBroker, MemoryCompactedTopic, MemoryTopics

NAME = "shop"
TOPIC = "shop.public.t"
PARTITIONS = 2
EPOCH = 1
PLAN = HandoverPlan(name=NAME, slot="cdc_shop", publication="cdc_shop", connector="shop-connector")
SHAPE = TableSchema(
    table=TableName("public", "t"),
    topic=TOPIC,
    version=1,
    oid=1,
    encoding="readable",
    identity=Identity.DEFAULT,
    columns=(Column(name="k", attnum=1, type="int8", type_oid=20, kind="int8", nullable=False, key_position=1),),
)
SERVER = ServerFacts(
    version=170000,
    version_text="17.0",
    database="shop",
    database_oid=5,
    role="cdc",
    granted_replication=True,
    in_recovery=False,
    encoding="UTF8",
    wal_level="logical",
    system_identifier="7",
    timeline=1,
    wal_lsn=None,
    slots_max=10,
    slots_used=1,
    senders_max=10,
    senders_used=1,
    max_slot_wal_keep_bytes=None,
    synchronous_standby_names="",
)
SLOT = SlotFacts(
    slot=PLAN.slot,
    plugin="pgoutput",
    database="shop",
    active_pid=None,
    wal_status="reserved",
    restart_lsn=None,
    confirmed_flush_lsn=0,
    retained_bytes=0,
    safe_wal_bytes=None,
    invalidation_reason=None,
)
_STEP = 0x100
_COMMIT = 0x10
"""How far a commit lies below the end of its transaction."""


class World:
    """The source commits a transaction of one row by :meth:`commit`; its number is its key.

    ``steps``: of the command that runs. ``wanted``: what the schema topic and the tables say, to be set by a test.
    """

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.steps = Steps()
        self.said: list[str] = []
        self.ends: list[int] = []
        """Where each transaction ends, marks of a handover too."""
        self.rows: list[int] = []
        """Ends of the transactions that have a row."""
        self.slot: SlotFacts | None = SLOT
        self.writer: LockedSession | None = None
        self.truncates = False
        self.shapes = [SHAPE]
        self.primary: Mapping[str, Sequence[str]] = {"public.t": ["k"]}
        self.odd = False
        self.broker = MemoryBroker({TOPIC: PARTITIONS, state_topic(NAME): 1})
        self.topics = MemoryTopics(self.broker)
        self.state = MemoryCompactedTopic()
        self.progress = MemoryCompactedTopic()
        self.debezium = Debezium(self)
        self.native = Native(self)

    # -- the source

    def commit(self, count: int = 1) -> None:
        for _ in range(count):
            self.rows.append(self.end())

    def end(self) -> int:
        """Where the next transaction ends, begun and ended here."""
        self.ends.append(_STEP * (len(self.ends) + 1))
        return self.ends[-1]

    def confirmed(self) -> int:
        assert self.slot is not None
        return self.slot.confirmed_flush_lsn or 0

    def confirm(self, lsn: int) -> None:
        assert self.slot is not None
        if lsn > self.confirmed():
            self.slot = replace(self.slot, confirmed_flush_lsn=lsn)

    # -- the log

    def append(self, writer: str, end: int) -> None:
        number = end // _STEP
        pos = Position(EPOCH, end - _COMMIT, 1).text().encode()
        self.broker.append(TOPIC, number % PARTITIONS, b"%d" % number, writer.encode(), [("pos", pos)])

    def written(self) -> list[int]:
        """Ends of the transactions whose rows the topic holds, once for each time that it does."""
        return sorted(int(record.key) * _STEP for record in self.broker.of(TOPIC))

    # -- the command

    def ports(self) -> HandoverPorts:
        over = self.steps.over
        return HandoverPorts(
            source=over("source", Source(self)),
            keys=over("keys", Source(self)),
            connector=over("connector", self.debezium),
            native=over("native", self.native),
            topics=over("topics", self.topics),
            state=over("state", self.state),
            progress=over("progress", self.progress),
        )

    def hand_over(self, plan: HandoverPlan = PLAN) -> WriterState:
        return Handover(plan, self.ports(), self.said.append, self.clock).run()


class Source:
    def __init__(self, world: World) -> None:
        self._world = world

    def facts(self) -> tuple[ServerFacts, SlotFacts | None]:
        return SERVER, self._world.slot

    def writer(self) -> LockedSession | None:
        return self._world.writer

    def publish_everything(self) -> bool:
        before, self._world.truncates = self._world.truncates, True
        return not before

    def primary(self) -> Mapping[str, Sequence[str]]:
        return self._world.primary

    def answer(self, questions: Sequence[KeyQuestion]) -> Sequence[KeyQuestion]:
        return questions if self._world.odd else []


class Debezium:
    """A connector. Its slot stays behind what it has written, as a real one's does between two flushes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.exists = False
        self.runs = False
        self.offset = 0
        self.differing: tuple[str, ...] = ()
        self.reading = ""
        self.complete = True
        self.messages = ""

    def write(self) -> None:
        """Write every transaction so far, if it runs."""
        for end in self._world.rows if self.runs else ():
            if end > self.offset:
                self._world.append("debezium", end)
        if self.runs:
            self.offset = self._world.ends[-1]
            self._world.confirm(self._world.ends[-4])

    def facts(self) -> ConnectorState:
        return ConnectorState(self.differing, self.reading, self.offset if self.complete else None, self.messages)

    def unread(self) -> str:
        return self.reading

    def stop(self) -> bool:
        if self.exists:
            self.write()
        self.runs = False
        return self.exists

    def withdraw(self) -> bool:
        there, self.exists = self.exists, False
        return there

    def resume(self) -> None:
        assert self.exists
        self.runs = True


class Native:
    """Capture that goes on from its progress record."""

    def __init__(self, world: World) -> None:
        self._world = world

    def prepare(self) -> None:
        made = {TOPIC: {"id": "x", "partitions": PARTITIONS}}
        noted = TopicsState(cluster_id="c", topics=made, tables={"public.t": TOPIC})
        if TopicsState.find(self._world.state.read()) is None:
            self._world.state.write([(noted.key(), noted.to_json())])

    def shapes(self) -> Sequence[TableSchema]:
        return self._world.shapes

    def write(self) -> None:
        """Write every transaction behind the progress record, up to here."""
        world = self._world
        progress = Progress.from_json(world.progress.read()[PROGRESS_KEY])
        assert world.confirmed() <= progress.lsn, "the server would begin behind what the log lacks"
        for end in world.rows:
            if progress.lsn < end:
                world.append("native", end)
        grown = Progress(epoch=EPOCH, lsn=world.ends[-1], offsets=world.topics.end_offsets({TOPIC: PARTITIONS}))
        world.progress.write([(PROGRESS_KEY, grown.to_json())])
        world.confirm(grown.lsn)
