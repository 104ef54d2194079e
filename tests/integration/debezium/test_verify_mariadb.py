"""``cdc verify`` of a real MariaDB: every type against what its connector writes, and what the comparison finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from cdc.clock import SYSTEM_CLOCK
from cdc.errors import ConfigError, UsageError
from cdc.progress import Watermark
from cdc.schema import TableSchema
from cdc.settings import Settings
from cdc.state import TopicsState
from cdc.topic import TableName
from cdc.verification.known_pipeline import KnownPipeline
from cdc.verification.ports import VerificationPorts, VerifiedStore
from cdc.verification.result import Kind
from cdc.verification.run import Verification
from cdc.wire.debezium.reading import DebeziumChange, PartitionReader
from cdc.wiring import open_schemas, open_state
from cdc.wiring.verification import read_known
from connectors.connect.connector import Connector
from connectors.freshness_binlog import wait_until_in_log
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import read_range
from connectors.verified_binlog import BinlogSource
from sinks.batch import Event, events_of
from sinks.memory import MemoryStore
from sinks.mend import StoreRepair
from tests.contract.topics import Shapes
from tests.integration.debezium.mariadb import SKIPPED, MariaDb
from tests.unit.cdc.verification.test_rounds import Silent
from tests.waiting import wait_until

pytestmark = SKIPPED
WIDE = TableName("shop", "wide")
COLUMNS = (
    "id bigint unsigned, k varchar(10), ti tinyint, tu tinyint unsigned, flag bool, su smallint unsigned, "
    "mi mediumint, iu int unsigned zerofill, bi bigint, bu bigint unsigned, de decimal(30,5), d double, "
    "d72 double(7,2), c char(5), "
    "v varchar(20) character set utf8mb4, vl varchar(20) character set latin1, lt longtext, bin binary(4), "
    "vb varbinary(10), bl blob, da date, dn date not null, dt datetime, dt6 datetime(6), ts timestamp(6) null, "
    "tm time, tm6 time(6), y year, bt1 bit(1), bt10 bit(10), en enum('a','b c',''), se set('x','y','z'), js json, "
    "f float, f73 float(7,3), gv int as (ti + 1) virtual, primary key (k, id)"
)
ROWS = (
    "(%d, 'a:', -128, 255, 2, 65535, -8388608, 4294967295, -9223372036854775808, 18446744073709551615, "
    "-1234567890123456789012345.12345, 0.1, 12345.67, 'ab ', 'é€😀', 'é', 'l', x'01020000', x'00ff', x'ff00', "
    "'2024-02-29', '2024-01-02', '2024-01-02 03:04:05', '2024-01-02 03:04:05.123450', '2024-01-02 03:04:05.12', "
    "'-838:59:59', '-00:00:00.000001', 2024, b'1', b'1000000001', 'b c', 'x,z', '{\"b\": 1.10}', 16777217, 1234.567, "
    "default)",
    "(%d, 'B', 0, 0, 0, 0, 0, 0, 0, 0, 0, 1e300, 0, '', '', '', '', '', '', '', '0000-00-00', '0000-00-00', "
    "'0000-00-00', '1000-01-01', '1970-01-01 00:00:01', '00:00:00', '838:59:59.999999', 1901, b'0', b'10', '', '', "
    "'null', 0.1, 0.1, default)",
    "(%d, 'c', null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, "
    "null, null, '9999-12-31', null, null, null, null, null, null, null, null, null, null, null, null, null, default)",
)


class Followed:
    """A store in memory that reads the whole topic whenever its watermark is asked for."""

    def __init__(self, settings: Settings, topics: dict[str, str]) -> None:
        self.store = MemoryStore()
        self.shapes: dict[tuple[str, int], TableSchema] = {}
        self._settings, self._topics = settings, topics
        self._read: dict[tuple[str, int], tuple[PartitionReader, int]] = {}

    def read(self) -> Watermark:
        admin = TopicAdmin(self._settings.log)
        facts = admin.describe(self._topics.values())
        ends = admin.end_offsets({topic: found.partitions for topic, found in facts.items()})
        events = [event for topic, parts in ends.items() for part in parts for event in self._events(topic, part)]
        if events:
            assert not self.store.open().sink.apply(events_of(events), Shapes(*self.shapes.values())).refused
        return Watermark(epoch=1, lsn=0, offsets=ends)

    def count(self) -> int:
        """How many rows it holds after another look at the topic."""
        self.read()
        return len(self.store.table(WIDE))

    def _events(self, topic: str, partition: int) -> Iterator[Event]:
        reader, start = self._read.get((topic, partition), (PartitionReader(topic, partition), 0))
        for message in read_range(self._settings.log, topic, partition):
            offset = message.offset() or 0
            found = reader.read(offset, message.key(), message.value()) if offset >= start else None
            if isinstance(found, DebeziumChange):
                assert found.schema is not None
                self.shapes[topic, found.ver] = found.schema
                place = (topic, partition, offset)
                yield Event(*place, found.key, found.value, found.pos.text(), found.op, found.ver)
            start = max(start, offset + 1)
        self._read[topic, partition] = (reader, start)


@contextmanager
def verification(settings: Settings, store: Followed, known: KnownPipeline) -> Iterator[Verification]:
    with closing(BinlogSource(settings, known.topics)) as source:
        opened = store.store.open()
        verified = VerifiedStore(
            reader=opened.reader, watermarks=store, target=StoreRepair(opened), tables=sorted(source.tables)
        )
        ports = VerificationPorts(
            source=source.reader, stores={"memory": verified}, tables=source.tables, passed=source.passed
        )
        yield Verification(known, ports, Silent(), SYSTEM_CLOCK, timeout_s=90)


def taking(settings: Settings) -> Settings:
    """The wide table alone; the server sends a heartbeat every second or two, so that an idle one is followed."""
    assert settings.debezium is not None
    quick = {**settings.debezium.options, "connect.keep.alive.interval.ms": "2000"}
    debezium = settings.debezium.model_copy(update={"options": quick, "heartbeat": timedelta(seconds=1)})
    source = settings.source.model_copy(update={"tables": (str(WIDE),)})
    return settings.model_copy(update={"debezium": debezium, "source": source})


def test_h132_every_type_is_compared_or_named_as_not_compared(mariadb: MariaDb, shop: Settings) -> None:
    settings = taking(shop)
    pinned = "set names utf8mb4; set sql_mode = 'allow_invalid_dates', time_zone = '+00:00'; use shop; "
    rows = [row % number for number, row in enumerate(ROWS, start=1)]
    mariadb.run(f"{pinned} create table wide ({COLUMNS}); insert into wide values {', '.join(rows)}")
    connector = Connector(settings)
    connector.deploy()
    topics = TopicsState.find(open_state(settings).read())
    assert topics is not None
    store = Followed(settings, {str(WIDE): topics.tables[str(WIDE)]})
    wait_until(lambda: store.count() == 3, 60)
    rows = [row % number for number, row in enumerate(ROWS, start=11)]
    mariadb.run(f"{pinned} insert into wide values {', '.join(rows)}; update wide set da = '0012-05-06' where id = 13")
    wait_until(lambda: store.count() == 6, 60)
    schemas = open_schemas(settings)
    for shape in store.shapes.values():
        schemas.register(shape, new_key=True)

    with verification(settings, store, read_known(settings)) as verified:
        report = verified.compare()
        assert (report.differences, report.undecided) == (0, 0), report.document()
        (verdict,) = report.verdicts
        assert (verdict.source_rows, verdict.store_rows) == (6, 6)
        assert report.columns_left_out.keys() == {str(WIDE)}
        assert report.columns_left_out[str(WIDE)].keys() == {"f", "f73"}
        assert report.reached.startswith("0-1-")

        # A row that the store lacks, one that it has as it never was, and one that the source does not have.
        held = store.store.rows[WIDE]
        wrong = held["a%3A:1"]
        del held["B:2"]
        held["a%3A:1"] = replace(wrong, row=(wrong.row or b"").replace(b'"iu":4294967295', b'"iu":4294967294'))
        held["c:99"] = replace(held["c:3"], key="c:99")
        (verdict,) = verified.compare().verdicts
        assert {kind: keys for kind, keys in verdict.keys.items() if keys} == {
            Kind.MISSING: ["B:2"],
            Kind.STALE: ["a%3A:1"],
            Kind.EXTRA: ["c:99"],
        }

        mariadb.run("insert into shop.wide (k, id, dn) values ('token', 7, '2024-01-01')")
        token = mariadb.run("select @@global.gtid_binlog_pos").strip()
        in_log = wait_until_in_log(settings, token, 90)
        assert in_log.place == f"GTID {token}"
        assert sum(in_log.ends[topics.tables[str(WIDE)]].values()) == 8, "the row lies below the ends"
        with pytest.raises(UsageError, match="is not in the server's log"):
            wait_until_in_log(settings, "0-1-999999", 90)

    # GTIDs are counted from 1 again: the stored offset covers transactions that the connector never saw.
    mariadb.run("reset master; insert into shop.wide (k, id, dn) values ('unseen', 8, '2024-01-01')")
    with pytest.raises(ConfigError, match="behind the end of the server's log"):
        wait_until_in_log(settings, "0-1-1", 1)
