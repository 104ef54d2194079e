"""What each real store says that it holds of a deleted row: for ``cdc forget``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import deltalake
import pytest
import redis
import requests

from cdc.clock import SYSTEM_CLOCK, ManualClock
from cdc.cuts import RepairRow
from cdc.errors import SinkError
from cdc.forget.document_history import DocumentForm
from cdc.forget.holding import Kept, Trace
from cdc.lsn import Lsn
from cdc.position import Position
from cdc.progress import Watermark
from cdc.read import Cache, ReadRow, Token
from sinks.kinds import beside, open_generations, spec_for
from sinks.mend import StoreRepair
from sinks.registry import SinkSpec, open_sink
from sinks.row_traces import GenerationTraces, PlainTraces, open_traces
from tests.unit.connectors.postgres import written as w
from tests.waiting import wait_until

SHAPE = w.table(w.column("id", "int4", 0), w.column("name", "text"), name="people")
SENTINEL = "sentinel-4410"
Spec = Callable[[str], SinkSpec]


@pytest.fixture
def spec(redis_url: str, opensearch: str, index_prefix: str, tmp_path: Path, topic_prefix: str) -> Spec:
    """A store of a kind, empty."""
    options: dict[str, dict[str, Any]] = {
        "redis": {"url": redis_url},
        "opensearch": {"url": opensearch},
        "delta": {"path": str(tmp_path / "warehouse")},
        "sql": {"url": f"sqlite:///{tmp_path}/reports.db"},
    }

    def of(kind: str) -> SinkSpec:
        prefix = index_prefix if kind == "opensearch" else topic_prefix
        return spec_for(kind, prefix=prefix, options=options[kind])

    return of


def put(spec: SinkSpec, lsn: int, name: str | None, number: int = 1) -> None:
    """The row as of an LSN, or its delete."""
    after = None if name is None else b'{"id":%d,"name":"%b"}' % (number, name.encode())
    with closing(open_sink(spec)) as store:
        assert (
            StoreRepair(store).put(SHAPE, Position(1, lsn, 1).text(), [RepairRow(b'{"id":%d}' % number, after)]) == []
        )
        store.sink.show()


def left(spec: SinkSpec, keys: Sequence[str] = ("1",), others: Sequence[tuple[int, SinkSpec]] = ()) -> list[Trace]:
    with closing(GenerationTraces(spec, others)) as traces:
        return list(traces.of_keys(SHAPE, keys))


KINDS = ("redis", "opensearch", "delta", "sql")


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_then_the_memory_of_its_delete(spec: Spec, kind: str) -> None:
    place = spec(kind)
    assert left(place) == []
    put(place, 8, SENTINEL)
    put(place, 8, "other", 2)
    shown = left(place)
    assert [one.kept for one in shown] == [Kept.ROW]
    assert shown[0].passing
    put(place, 16, None)
    remembered = [one for one in left(place) if one.kept is Kept.KEY]
    now_ms = SYSTEM_CLOCK.now_ns() // 1_000_000
    assert len(remembered) == 1
    until_ms = remembered[0].until_ms
    assert until_ms is not None
    assert abs(until_ms - now_ms - 7 * 86_400_000) < 600_000
    assert not [one for one in left(place) if one.kept is Kept.ROW and "replaced" not in one.what]


@pytest.mark.parametrize("kind", KINDS)
def test_a_generation_beside_is_looked_at(spec: Spec, kind: str) -> None:
    """Readers do not see it. A rollback would show the row again."""
    place = spec(kind)
    older = beside(place, 2)
    put(place, 16, None)
    put(older, 8, SENTINEL)
    found = [one for one in left(place, others=[(2, older)]) if one.what.startswith("generation 2")]
    assert found[0].kept is Kept.ROW
    assert "cdc rebuild" in found[0].until
    with closing(GenerationTraces(place, [(2, older)])) as traces:
        assert [one.kept for one in traces.before(SHAPE, Position(1, 8, 1)) if "generation 2" in one.what] == [
            Kept.MAYBE
        ]
        assert not [one for one in traces.before(SHAPE, Position(1, 0, 1)) if "generation 2" in one.what]


@pytest.mark.slow
def test_segments_with_older_versions_are_told_of(spec: Spec, opensearch: str, index_prefix: str) -> None:
    place = spec("opensearch")
    put(place, 8, SENTINEL)
    put(place, 16, None)
    may = [one for one in left(place) if one.kept is Kept.MAYBE]
    assert "segments" in may[0].what
    assert "_forcemerge" in may[0].cure
    with closing(open_traces(place)) as traces:
        assert [one.kept for one in traces.before(SHAPE, None)] == [Kept.MAYBE]
    index = may[0].cure.split()[1].split("/")[0]

    def merged() -> bool:
        requests.post(f"{opensearch}/{index}/_forcemerge?max_num_segments=1&flush=true", timeout=60).raise_for_status()
        return [one.kept for one in left(place)] == [Kept.KEY]

    wait_until(merged, 60)


def test_a_row_that_expires_says_when(spec: Spec, redis_url: str) -> None:
    place = spec("redis")
    put(place, 8, SENTINEL)
    with redis.Redis.from_url(redis_url) as client:
        (key,) = client.keys(f"{place.prefix}:public.people:*")
        client.pexpire(key, 60_000)
    (found,) = left(place)
    assert (found.kept, found.passing) == (Kept.ROW, True)
    assert found.until_ms is not None


@pytest.mark.parametrize("generation", [1, 2])
def test_h300_a_row_that_a_reader_filled_is_found(spec: Spec, redis_url: str, generation: int) -> None:
    """By the reader that puts it there: in the generation in use, and in one that is not."""
    place = spec("redis")
    if generation > 1:
        with closing(open_generations(place)) as generations:
            generations.switch(generation, [SHAPE])
    found = ReadRow({"id": 1, "name": SENTINEL}, Token("7", 1, Lsn(9)))
    with Cache(redis_url, place.prefix) as cache:
        assert cache.read_through("public.people", [1], lambda: found) == found.row
    (trace,) = left(place)
    assert (trace.kept, trace.passing) == (Kept.ROW, True)
    assert "read through" in trace.what
    others = [(number, beside(place, number)) for number in (1, 2) if number != generation]
    assert len(left(place, others=others)) == 1


def test_h280_the_log_of_a_table_has_bounds_of_the_row(spec: Spec, tmp_path: Path) -> None:
    place, folder = spec("delta"), tmp_path / "warehouse" / "public" / "people"
    put(place, 8, SENTINEL)
    put(place, 16, None)
    kept = {one.kept: one for one in left(place)}
    assert set(kept) == {Kept.ROW, Kept.MAYBE, Kept.KEY}
    assert "replaced" in kept[Kept.ROW].what
    deltalake.DeltaTable(folder).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    assert {one.kept for one in left(place)} == {Kept.MAYBE, Kept.KEY}
    assert any(SENTINEL in file.read_text() for file in folder.rglob("*.json"))
    properties = {"delta.logRetentionDuration": "interval 1 seconds"}
    deltalake.DeltaTable(folder).alter.set_table_properties(properties)

    def cleaned() -> bool:
        with closing(open_traces(place)) as traces:
            traces.clean(SHAPE)
        return [one.kept for one in left(place)] == [Kept.KEY]

    wait_until(cleaned, 60)
    assert not any(SENTINEL.encode() in file.read_bytes() for file in folder.rglob("*") if file.is_file())


def test_h367_a_file_that_a_merge_has_written_is_looked_at(spec: Spec) -> None:
    """The second change of a row, and those that a merge keeps: delta-rs writes them in another type of text."""
    place = spec("delta")
    for lsn, name in ((8, SENTINEL), (16, f"{SENTINEL} again"), (24, None)):
        put(place, lsn, name)
        put(place, lsn, "other", 2)
    found = {one.kept: one for one in left(place)}
    assert {Kept.ROW, Kept.KEY} <= set(found)
    assert "replaced" in found[Kept.ROW].what
    with closing(open_traces(place)) as traces:
        assert {one.kept for one in traces.before(SHAPE, Position(1, 16, 9))} >= {Kept.MAYBE}


def test_cleaning_keeps_what_the_table_keeps(spec: Spec, tmp_path: Path) -> None:
    """By its own settings: an hour of files, ten minutes of versions. A rollback within those goes on."""
    place, folder = spec("delta"), tmp_path / "warehouse" / "public" / "people"
    put(place, 8, SENTINEL)
    put(place, 16, None)
    before = sorted(folder.rglob("*"))
    with closing(open_traces(place)) as traces:
        traces.clean(SHAPE)
    assert sorted(folder.rglob("*")) == before


def test_older_documents_of_a_warehouse_are_found(spec: Spec) -> None:
    place = spec("delta")
    put(place, 8, SENTINEL)
    with closing(open_traces(place)) as traces:
        assert list(traces.before(SHAPE, Position(1, 8, 9))) == [], "it stands as it is"
        put(place, 24, "new")
        assert {one.kept for one in traces.before(SHAPE, Position(1, 8, 9))} == {Kept.MAYBE}
        assert not [one for one in traces.before(SHAPE, Position(1, 4, 9)) if "replaced" in one.what]


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_is_behind_shows_old_documents(spec: Spec, kind: str) -> None:
    place, deleted = spec(kind), Position(1, 8, 9)
    put(place, 8, SENTINEL)

    def shown(ends: dict[int, int]) -> list[str]:
        with closing(GenerationTraces(place, [])) as traces:
            return [one.until for one in traces.shown(SHAPE, deleted, ends, DocumentForm())]

    assert "follows the view again" in shown({0: 5})[0]
    with closing(open_sink(place)) as store:
        store.watermarks.write(Watermark(epoch=1, lsn=9, offsets={SHAPE.topic: {0: 4}}))
    assert shown({0: 5}) == ["cdc sink has read on"]
    assert shown({0: 4}) == []


def test_a_kind_that_says_nothing_may_hold_more(spec: Spec) -> None:
    place = spec("sql")
    put(place, 8, SENTINEL)
    with closing(PlainTraces(open_sink(place), "mine")) as traces:
        assert [one.kept for one in traces.of_keys(SHAPE, ["1"])] == [Kept.ROW, Kept.MAYBE]
        assert [one.kept for one in traces.before(SHAPE, None)] == [Kept.MAYBE]


def test_h109_a_store_that_is_away_raises(no_port: str) -> None:
    place = spec_for("redis", prefix="t", options={"url": f"redis://127.0.0.1:{no_port}/0"})
    with pytest.raises(SinkError):
        open_traces(place, ManualClock())


@pytest.fixture
def no_port() -> str:
    """A port of this machine on which nobody listens."""
    from cdc.stack.free_ports import free_ports  # noqa: PLC0415

    return str(free_ports()["kafka"])
