"""Records that real connectors wrote, through the translation of the sinks, into an eager view."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson
import pytest

from cdc.clock import ManualClock
from cdc.epochs import EpochsState
from cdc.errors import ConfigError, TopicError, UsageError
from cdc.settings import Settings, parse
from cdc.testing import MemoryCompactedTopic
from cdc.views.eager import TopicsReach
from cdc.views.fences import Fence
from cdc.views.keeper import Keeper, KeeperParts
from cdc.views.memory_views import Change, MemoryEagerInput, MemoryEagerOutput, MemoryViewTopic
from cdc.views.sql_types import INT4, NUMERIC, TEXT, SqlType
from cdc.views.state_reach import Reached
from cdc.views.view_plan import planned
from cdc.views.view_records import ViewRecords
from cdc.views.view_state import ViewState
from cdc.wire.records import Lot
from connectors.kafka.schema_registry import EmbeddedShapes, SchemaRegistry
from connectors.view_consistency import promises, refuse_to_wait, require_consistency
from connectors.view_eager import (
    require_epoch,
    require_kept_key,
    require_places,
    require_within,
    translated_lot,
)
from connectors.view_embedded import shape_in
from connectors.view_topics import ViewTopicsChanged
from spark.debezium_feed import Translation
from spark.known_epochs import KnownEpochs
from tests.unit.cdc.views.view_histories import shown
from tests.unit.cdc.wire.debezium.recorded import Recorded, recorded
from tests.unit.connectors.postgres import written as w
from tests.unit.spark.test_rekeyed import row
from tests.unit.spark.translating import Earlier

ORDERS = """select o.id, o.status, o.total, o.big, o.at, o.d, (select count(*) from orders x where x.status = o.status)
 as same from orders o"""
WANTED = {
    1: ("new file", "12.50", "18446744073709551615", "2024-01-02T03:04:05.678901Z", "2024-01-02Z", 1),
    4: ("t2", None, None, None, None, 1),
    100: ("t1b", None, None, None, None, 1),
}


def as_mysql(record: Recorded) -> Recorded:
    """The same as MySQL's connector writes it: its name, and a GTID of its form."""
    if record.value is None:
        return record
    named = record.value.replace(b'"connector":"mariadb"', b'"connector":"mysql"')
    value = re.sub(rb'"gtid":"0-1-(\d+)"', rb'"gtid":"db58b0ae-2c10-11e6-b284-0242ac110002:\1"', named)
    return record._replace(value=value)


def lots_of(records: list[Recorded], most: int) -> Iterator[Lot]:
    """Partition by partition, in pieces."""
    for (topic, partition), found in groupby(records, lambda r: (r.topic, r.partition)):
        mine = list(found)
        for first in range(0, len(mine), most):
            part = mine[first : first + most]
            none: list[bytes | None] = [None] * len(part)
            offsets, keys, values = ([r[i] for r in part] for i in (2, 3, 4))
            yield Lot(topic, partition, offsets, [1] * len(part), keys, values, none, none, none, {})  # type: ignore[arg-type]


class Kept:
    """A view over recorded topics, in memory."""

    def __init__(
        self, records: list[Recorded], sql: str, folder: Path, schema: str, *, most: int = 3, age_ms: int = 0
    ) -> None:
        clock = ManualClock()
        self._registry = SchemaRegistry(MemoryCompactedTopic())
        translation = Translation(EmbeddedShapes(self._registry), KnownEpochs())
        partitions: dict[tuple[str, int], list[tuple[int, Change]]] = {}
        for lot in lots_of(records, most):
            done = translated_lot(translation, lot)
            place = partitions.setdefault((lot.topic, lot.partition), [])
            for number, offset in enumerate(done.offsets):
                cells = (column[number] for column in (done.keys, done.values, done.pos, done.op, done.ver))
                place.append((offset, tuple(cells)))  # type: ignore[arg-type]
        shapes = {shape.topic: shape for shape in self._registry.versions()}
        plan = planned(sql, shapes.values(), search_path=(schema,))
        self.topic = MemoryViewTopic()
        state = ViewState(folder / "state", plan, 1)
        ends = {t: {p: found[-1][0] + 1 for (of, p), found in partitions.items() if of == t} for t, _ in partitions}
        topics = {shape.table: topic for topic, shape in shapes.items()}
        written_ms = clock.now_ns() // 1_000_000 - age_ms
        times_ms = {(*place, offset): written_ms for place, found in partitions.items() for offset, _ in found}
        source = MemoryEagerInput(
            shapes,
            partitions,
            times_ms=times_ms,
            progress_ms=written_ms + age_ms,
            looked=TopicsReach(offsets=ends),
            kept=state,
            topics=topics,
        )
        records_of = ViewRecords(plan, "v", "v", 1, name="t", database="d")
        parts = KeeperParts(plan, state, source, MemoryEagerOutput(self.topic), records_of, topics)
        self.keeper = Keeper(parts, clock=clock)
        self.keeper.begin()
        self.state = state

    def documents(self) -> dict[bytes, Any]:
        for _ in range(5):
            self.keeper.turn()
        return shown(self.topic)


@pytest.mark.parametrize("most", [1, 3, 100])
@pytest.mark.parametrize("database", ["mariadb", "mysql"])
def test_recorded_orders_of_mysql_and_mariadb(database: str, most: int, tmp_path: Path) -> None:
    records = recorded("mariadb")
    if database == "mysql":
        records = [as_mysql(record) for record in records]
    kept = Kept(records, ORDERS, tmp_path, "shop", most=most)
    names = ("status", "total", "big", "at", "d", "same")
    found = {row["id"]: tuple(row[name] for name in names) for row in kept.documents().values()}
    assert found == WANTED
    assert kept.keeper.level
    kept.state.close()


def test_recorded_snapshots_of_postgres(tmp_path: Path) -> None:
    kept = Kept(recorded("snapshots_schemas"), "select a.id, a.v, a.n + 1 as n from a", tmp_path, "public")
    found = {(row["id"], row["v"], row["n"]) for row in kept.documents().values()}
    assert found == {(1, "e2c", "4.00"), (3, "t2", "4.00"), (10, "ten", "4.00")}
    kept.state.close()


@pytest.mark.parametrize("age_ms", [0, 3_600_000])
def test_h38_an_unchanged_value_is_kept_or_not_known(age_ms: int, tmp_path: Path) -> None:
    """Of an old record nobody knows whether the cleaner took one before it, which held another value."""
    sql = "select t.id, t.x, length(t.t) as size from toasty t"
    kept = Kept(recorded("toast_schemas"), sql, tmp_path, "public", age_ms=age_ms)
    found = [(row["x"], row["size"] > 2000) for row in kept.documents().values()]
    assert found == ([(2, True)] if age_ms == 0 else [])
    assert bool(kept.state.parked()[0]) is (age_ms > 0)
    kept.state.close()


def test_a_record_of_somebody_else_is_logged_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    strange = Recorded("t", 0, 7, b'{"id":1}', b"no JSON")
    translation = Translation(EmbeddedShapes(SchemaRegistry(MemoryCompactedTopic())), KnownEpochs())
    (lot,) = lots_of([strange], 1)
    assert translated_lot(translation, lot).offsets == []
    assert [record.getMessage() for record in caplog.records] == ["view_record_unreadable"]
    assert caplog.records[0].__dict__["offset"] == 7


def test_types_come_from_the_first_row_that_has_them() -> None:
    found = [(r.offset, r.key, r.value) for r in recorded("mariadb") if r.partition == 0]
    # A tombstone and a delete say nothing of a key.
    shape = shape_in("mshop.shop.orders", 0, found[4:])
    assert shape is not None
    assert str(shape.table) == "shop.orders"
    assert [column.name for column in shape.key] == ["id"]
    kinds = {column.name: column.kind for column in shape.columns}
    assert (kinds["total"], kinds["at"], kinds["status"]) == ("numeric", "timestamp", "varchar")
    assert shape_in("t", 0, [(0, b'{"id":1}', orjson.dumps({"id": 1}))]) is None


def settings_of(said: str, kind: str = "debezium", close: str = "0s", **debezium: str) -> Settings:
    return parse(
        {
            "name": "shop",
            "source": {"kind": kind, "dsn": "host=db", "tables": ["public.*"]},
            "log": {"bootstrap_servers": "k:1"},
            "views": {"v": {"sql": "v.sql", "close": close, "consistency": said}},
            **({"debezium": debezium} if kind == "debezium" else {}),
        }
    )


@pytest.mark.parametrize(
    ("given", "said", "sentence"),
    [
        ({}, "", "Debezium's topics do not say which records are whole transactions"),
        ({"kind": "postgres"}, "eager", "is eager, and cdc run captures its tables"),
        ({"database": "mongodb"}, "eager", "is over topics of mongodb"),
        ({"close": "7d"}, "eager", "is eager and closes windows"),
    ],
)
def test_a_consistency_that_the_source_cannot_give(given: dict[str, str], said: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as refused:
        require_consistency(settings_of(said, **given), "v")
    assert refused.value.hint


def test_a_consistency_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="consistency"):
        settings_of("strict")


def test_an_eager_view_is_not_waited_for() -> None:
    settings = settings_of("eager", database="mariadb")
    assert require_consistency(settings, "v")
    with pytest.raises(UsageError, match="no LSN of it can be waited for"):
        refuse_to_wait(settings, "view.v")
    refuse_to_wait(settings, "view.other")
    refuse_to_wait(settings, "public.v")
    assert "does not compare it" in list(promises(settings, eager=True))[-1]
    assert list(promises(settings, eager=False)) == []
    own = settings_of("", kind="postgres")
    assert not require_consistency(own, "v")
    refuse_to_wait(own, "view.v")


def test_h213_a_table_that_is_noted_with_another_topic() -> None:
    """Its rows of the next epoch come there, and a sweep would leave none of them."""
    require_places({"public.a": "x", "public.b": "y"}, {"public.a": "x"})
    with pytest.raises(ViewTopicsChanged, match=r"the rows of public\.a are in the topic y, and were read from x"):
        require_places({"public.a": "x"}, {"public.a": "y"})


def test_h213_a_topic_that_ends_below_what_was_read() -> None:
    """It was made anew or put back older: what it gets now would be passed over."""
    reach = TopicsReach(epoch=2, offsets={"t": {0: 5, 1: 0}}, begun={1: {"t": {0: 4, 1: 0}}})
    require_within(reach, {"t": {0: 5}, "former": {0: 9}}, 2)
    with pytest.raises(TopicError, match="ends at 5, and 6 of its partition 0 was read") as refused:
        require_within(reach, {"t": {0: 6}}, 2)
    assert "offsets --reset" in refused.value.hint
    require_within(reach, {"t": {0: 6, 1: 7}}, 1)


class Numbered(KnownEpochs):
    """Counts how many shapes had numbers when a key was noted."""

    def __init__(self, registry: SchemaRegistry) -> None:
        super().__init__()
        self._registry = registry
        self.told: list[int] = []

    def keyed_anew(self, topic: str, epoch: int) -> None:
        super().keyed_anew(topic, epoch)
        self.told.append(len(self._registry.versions()))


def test_h234_an_eager_view_notes_a_key_before_its_number() -> None:
    """It stops itself then, and by the number alone a sink could not tell that the key is another one."""
    former, latter = row(0, ("id",)), row(0, ("id", "v"), partition=1)
    registry = SchemaRegistry(MemoryCompactedTopic())
    known = Numbered(registry)
    (first,) = lots_of([former], 1)
    translated_lot(Translation(EmbeddedShapes(registry), known), first)
    known.ends_at = {0: 1, 1: 1}
    later = Translation(EmbeddedShapes(registry), known, earlier=lambda: Earlier([former, latter]))
    (second,) = lots_of([latter], 1)
    assert translated_lot(later, second).offsets == [0]
    assert (known.state.rekeyed(), known.told) == (frozenset({former.topic}), [1])
    assert len(registry.versions()) == 2


def test_h237_a_state_of_another_epoch_of_that_number_ends() -> None:
    """The log was put back to before the epoch, and the next one got its number: a view would pass its beginning by."""
    second = EpochsState().begin({}, "second")
    state = Reached(plan="p", generation=1, fence=Fence(2, 8), epoch_id="second")
    require_epoch(second.begin({}, "third"), state)
    require_epoch(EpochsState().begin({}, "other"), replace(state, epoch_id=""))
    for put_back in (EpochsState(), EpochsState().begin({}, "other"), EpochsState().begin({}, "other").begin({}, "x")):
        with pytest.raises(TopicError, match="made in another epoch 2 than the log's") as refused:
            require_epoch(put_back, state)
    assert "cdc view rebuild" in refused.value.hint


def test_h214_another_key_stops_a_view_of_the_former_one() -> None:
    former = w.table(w.column("id", "int4", 0), w.column("v", "text"), name="b")
    newest = w.table(w.column("id", "int4", 0), w.column("v", "text", 1), name="b")
    require_kept_key(former, former, {"id": INT4})
    require_kept_key(former, newest, {"id": INT4, "v": TEXT})
    require_kept_key(newest, newest, None)
    with pytest.raises(ConfigError, match=r"is \(id int4, v text\) now, and the view keeps its rows by \(id int4\)"):
        require_kept_key(newest, newest, {"id": INT4})


def test_h563_a_key_of_another_type_stops_a_view() -> None:
    """No row of a later record has a key of the former type: all of them would be passed over."""
    newest = w.table(w.column("id", "text", 0), name="b")
    for kind in (TEXT, SqlType("varchar"), SqlType("bpchar"), NUMERIC, SqlType("inet")):
        require_kept_key(newest, newest, {"id": kind})
    with pytest.raises(ConfigError, match=r"is \(id text\) now, and the view keeps its rows by \(id int4\)"):
        require_kept_key(newest, newest, {"id": INT4})
