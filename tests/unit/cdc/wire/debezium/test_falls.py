"""An order that begins anew is noticed; records that are sent again are not taken for one (H124).

The model is a connector under MySQL: transactions with GTIDs at growing places of a binlog, a stored offset some way
behind, and kills of the worker, after which all since that offset is sent again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.epochs import EpochsState
from cdc.position import Position
from cdc.wire.debezium.falls import BOUND_MS, Falls, ServerMove, TransactionOrigin, origin_of
from cdc.wire.debezium.reading import DebeziumChange, PartitionReader

TOPIC = "d.s.t"
Source = dict[str, Any]


class Transaction(NamedTuple):
    server: str
    number: int
    file: int
    pos: int
    key: int

    def source(self, connector: str) -> Source:
        named = {"connector": connector, "db": "s", "table": "t", "snapshot": "false"}
        gtid = f"{self.server}:{self.number}" if connector == "mysql" else f"0-{self.server}-{self.number}"
        return named | {"gtid": gtid, "file": f"bin.{self.file:06d}", "pos": self.pos, "row": 0, "server_id": 1}


def value(source: Source, op: str = "u") -> bytes:
    return orjson.dumps({"before": None, "after": {"id": 1, "v": 1}, "op": op, "source": source})


def faults(sources: Iterator[tuple[Source, int]], reader: PartitionReader | None = None) -> list[str]:
    """What a reader says of records, in their order; with the topic's time of each."""
    reader = reader or PartitionReader(TOPIC, 0)
    found = []
    for offset, (source, time_ms) in enumerate(sources):
        assert isinstance(reader.read(offset, b'{"id":1}', value(source), time_ms=time_ms), DebeziumChange)
        found.append(reader.fell)
    return [fault for fault in found if fault]


def binlog(sizes: list[int], server: str = "a1", file: int = 7, number: int = 100) -> list[Transaction]:
    """Transactions one behind another; a new file now and then."""
    made, pos = [], 4
    for step, size in enumerate(sizes):
        if size == 0:
            file, pos = file + 1, 4
        made.append(Transaction(server, number + step, file, pos, step % 3))
        pos += 100 + size
    return made


def told(log: list[Transaction], kills: list[tuple[int, int]]) -> list[Transaction]:
    """As a worker writes it that is killed: at so many records, with an offset stored so many before."""
    written: list[Transaction] = []
    at = 0
    for run, behind in kills:
        written += log[at : at + run]
        at = max(0, min(len(log), at + run) - behind)
    return written + log[at:]


@pytest.mark.parametrize("connector", ["mysql", "mariadb"])
@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 30)), max_size=4),
    st.integers(1, 3),
)
@settings(max_examples=150)
def test_h124_records_sent_again_raise_no_alarm(
    connector: str, sizes: list[int], kills: list[tuple[int, int]], partitions: int
) -> None:
    written = told(binlog(sizes), kills)
    for partition in range(partitions):
        mine = [one for one in written if one.key % partitions == partition]
        assert faults((one.source(connector), 1000 * number) for number, one in enumerate(mine)) == []


@pytest.mark.parametrize("connector", ["mysql", "mariadb"])
@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=20),
    st.lists(st.integers(0, 50), min_size=1, max_size=20),
    st.integers(1, 6),
    st.booleans(),
)
@settings(max_examples=150)
def test_h124_a_failover_to_lower_positions_is_noticed_at_once(
    connector: str, before: list[int], after: list[int], file: int, promoted: bool
) -> None:
    """``promoted``: the other server writes under its own name. Else it still relays what the first one wrote."""
    first = binlog(before)
    second = binlog(after, "b2" if promoted else "a1", file=0, number=first[-1].number + 1)
    sources = [one.source(connector) for one in first] + [
        one._replace(file=file % 2).source(connector) for one in second
    ]
    (fault, *_) = faults((source, number) for number, source in enumerate(sources))
    assert ("another server" in fault) == promoted


def test_h124_a_higher_binlog_of_another_server_is_no_fall() -> None:
    """It is told all the same, at its first change, and so is another domain of a MariaDB's GTIDs."""
    log = [*binlog([1, 2, 3]), *binlog([1, 2, 3], "b2", file=9)]
    assert faults((one.source("mysql"), 0) for one in log) == []
    for connector, names in (("mysql", ("a1", "b2")), ("mariadb", ("0-a1", "0-b2"))):
        reader, moves = PartitionReader(TOPIC, 0), []
        for offset, one in enumerate(log):
            reader.read(offset, b'{"id":1}', value(one.source(connector)))
            moves.append(reader.moved)
        assert moves == [None, None, None, ServerMove(*names), None, None]


def test_h124_transactions_of_one_server_may_have_tags() -> None:
    """Each tag is numbered by itself, and an order that falls back to what was sent before is a re-send."""
    reader, fell = PartitionReader(TOPIC, 0), []
    for offset, (place, name) in enumerate([(1, "a1:7"), (2, "a1:billing:90"), (1, "a1:7"), (2, "a1:billing:90")]):
        source = binlog([place])[0].source("mysql") | {"gtid": name, "pos": 100 + place}
        reader.read(offset, b'{"id":1}', value(source))
        assert reader.moved is None
        fell.append(reader.fell)
    assert fell == [""] * 4


def test_h124_a_server_without_gtids_is_heard_by_its_id() -> None:
    reader = PartitionReader(TOPIC, 0)
    for offset, server in enumerate((1, 1, 2)):
        source = binlog([1] * 3)[offset].source("mysql") | {"gtid": None, "server_id": server}
        reader.read(offset, b'{"id":1}', value(source))
        assert reader.moved == (ServerMove("1", "2") if server == 2 else None)


def test_h124_a_fall_that_does_not_climb_back_is_noticed_in_time() -> None:
    """Oracle names no server. As after a database that was restored from an older copy."""

    def sources(step_ms: int) -> Iterator[tuple[Source, int]]:
        for number, scn in enumerate([50, 60, 70, 20, 21, 22, 23]):
            named = {"connector": "oracle", "schema": "s", "table": "t", "snapshot": "false"}
            yield named | {"scn": str(scn), "commit_scn": str(scn)}, number * step_ms

    assert faults(sources(1000)) == []
    (fault, *_) = faults(sources(BOUND_MS // 2))
    assert "after 5 minutes" in fault


@pytest.mark.parametrize(("snapshot_lsn", "fell"), [(500, True), (799, True), (800, False), (900, False)])
def test_h124_a_first_snapshot_below_streamed_changes_is_noticed(snapshot_lsn: int, fell: bool) -> None:
    named = {"connector": "oracle", "schema": "s", "table": "t"}
    streamed = named | {"snapshot": "false", "commit_scn": "800", "scn": "799"}
    again = named | {"snapshot": "first", "scn": str(snapshot_lsn)}
    assert bool(faults(iter([(streamed, 0), (again, 1)]))) == fell


def test_h124_what_ended_an_epoch_is_no_alarm_in_the_next() -> None:
    log = [*binlog([1, 2, 3]), *binlog([1, 2, 3], "b2", file=1)]
    epochs = EpochsState().begin({TOPIC: {0: len(log)}})
    reader = PartitionReader(TOPIC, 0, epochs=epochs)
    assert faults(((one.source("mysql"), 0) for one in log), reader) == []
    assert EpochsState().fallen("it fell").begin({}).fell == ""


def test_h124_a_reader_that_looked_back_notices_the_first_record() -> None:
    first, second = binlog([1, 2, 3]), binlog([1], "b2", file=1)
    reader = PartitionReader(TOPIC, 0)
    for offset, one in enumerate(first):
        reader.look_back(offset, b'{"id":1}', value(one.source("mysql")))
    reader.read(9, b'{"id":1}', value(second[0].source("mysql")))
    assert "another server" in reader.fell


def test_h126_a_flat_tombstone_first_after_a_start_is_a_delete() -> None:
    """Its form is known by the records before it alone."""
    reader = PartitionReader(TOPIC, 0)
    reader.look_back(3, b'{"id":1}', orjson.dumps({"id": 1, "v": "a"}))
    found = reader.read(4, b'{"id":1}', None)
    assert isinstance(found, DebeziumChange)
    assert (found.op, found.value) == ("d", None)


@pytest.mark.parametrize(
    ("source", "origin"),
    [
        ({"connector": "mysql", "gtid": "db58b0ae:199", "server_id": 1}, TransactionOrigin("db58b0ae", 199)),
        ({"connector": "mariadb", "gtid": "0-7-41", "server_id": 1}, TransactionOrigin("0-7", 41)),
        ({"connector": "mysql", "gtid": "db58b0ae:automatic", "server_id": 9}, TransactionOrigin("9", 0)),
        ({"connector": "mysql", "gtid": "db58b0ae:billing:199", "server_id": 1}, TransactionOrigin("db58b0ae", 0)),
        ({"connector": "mysql", "gtid": ":199", "server_id": 9}, TransactionOrigin("9", 0)),
        ({"connector": "mysql", "gtid": "199", "server_id": 9}, TransactionOrigin("9", 0)),
        ({"connector": "mysql", "gtid": None, "server_id": 9}, TransactionOrigin("9", 0)),
        ({"connector": "mysql", "server_id": 0}, None),
        ({"connector": "oracle", "gtid": "db58b0ae:199", "server_id": 9}, None),
    ],
)
def test_h124_a_gtid_that_is_none_leaves_the_servers_id(source: Source, origin: TransactionOrigin | None) -> None:
    assert origin_of(source) == origin


def gtid(server: str, number: int) -> Source:
    return {"connector": "mysql", "gtid": f"{server}:{number}"}


NAMELESS: Source = {"connector": "mysql"}
"""A change that names no server."""


def streamed(falls: Falls, *steps: tuple[int, Source, int]) -> list[str]:
    """What is said of changes of epoch 1: log position, source, the topic's time."""
    return [falls.streamed(Position(1, lsn, 0), source, time_ms) for lsn, source, time_ms in steps]


@pytest.mark.parametrize("began_ms", [0, 1_700_000_000_000])
def test_h124_a_fall_is_one_after_five_minutes_and_no_sooner(began_ms: int) -> None:
    falls, five_minutes = Falls(), 5 * 60 * 1000
    first, below = (900, NAMELESS, began_ms), (100, NAMELESS, began_ms)
    assert streamed(falls, first, below, (101, NAMELESS, began_ms + five_minutes)) == ["", "", ""]
    (fault,) = streamed(falls, (102, NAMELESS, began_ms + five_minutes + 1))
    assert fault == "its positions fell, and are below where they were after 5 minutes"


def test_h124_changes_at_one_position_are_in_order_however_long() -> None:
    """A transaction of an hour has one SCN, or one GTID."""
    falls, hour_ms = Falls(), 3_600_000
    assert streamed(falls, *((900, gtid("a1", 7), step * hour_ms) for step in range(3))) == ["", "", ""]


def test_h124_events_of_the_newest_transaction_may_come_again() -> None:
    falls = Falls()
    assert streamed(falls, (100, gtid("a1", 7), 0), (200, gtid("a1", 7), 1), (100, gtid("a1", 7), 2)) == ["", "", ""]
    assert streamed(falls, (100, gtid("a1", 8), 3)) == ["its positions fell, and the transactions are newer (of a1)"]


def test_h124_a_change_that_names_no_server_is_judged_by_time() -> None:
    falls = Falls()
    assert streamed(falls, (100, gtid("a1", 7), 0), (200, NAMELESS, 1), (50, NAMELESS, 2)) == ["", "", ""]
    assert falls.moved is None
    other = Falls()
    assert streamed(other, (100, NAMELESS, 0), (50, gtid("a1", 7), 1)) == ["", ""]


def test_h124_records_of_the_server_before_a_move_may_come_again() -> None:
    falls = Falls()
    assert streamed(falls, (100, gtid("a1", 7), 0), (200, gtid("b2", 1), 1)) == ["", ""]
    assert falls.moved == ServerMove("a1", "b2")
    assert streamed(falls, (100, gtid("a1", 7), 2), (200, gtid("b2", 1), 3)) == ["", ""]
    assert falls.moved is None


def test_h124_an_epoch_counts_its_transactions_anew() -> None:
    """The same server after its binlogs were reset: transactions begin at 1 again."""
    falls = Falls()
    assert streamed(falls, (900, gtid("a1", 5000), 0)) == [""]
    assert falls.streamed(Position(2, 100, 0), gtid("a1", 1), 1) == ""
    assert falls.streamed(Position(2, 50, 0), gtid("a1", 2), 2) != ""


@pytest.mark.parametrize(("servers", "remembered"), [(256, True), (257, False)])
def test_h124_what_is_remembered_of_servers_has_a_bound(servers: int, remembered: bool) -> None:
    falls = Falls()
    heard = [(lsn, gtid(f"s{lsn}", 1), 0) for lsn in range(1, servers + 1)]
    assert not any(streamed(falls, *heard, heard[-1]))
    assert streamed(falls, heard[0]) == [
        "" if remembered else "its positions fell, and the changes are of another server (s1)"
    ]


def test_h124_a_snapshot_before_any_change_is_in_order() -> None:
    assert Falls().first_snapshot(Position(1, 0, 0)) == ""
