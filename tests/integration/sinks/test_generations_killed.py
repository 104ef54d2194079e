"""Each step of a rebuild's switch is killed, in each warehouse; it is repeated, and claims no more than it has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import orjson
import pytest

from cdc.crash import CRASH_EXIT
from cdc.errors import Exit
from cdc.progress import Watermark
from cdc.schema import TableSchema
from sinks.kinds import beside, spec_for
from sinks.port import OpenSink
from sinks.registry import SinkSpec, open_sink
from tests.contract.stores import rows
from tests.contract.topics import Shapes, Topic, at, batch, column, shape

ROOT = Path(__file__).parents[3]
TABLES = tuple(shape(column("id", "int8", key=1), column("status", "text"), table=name) for name in ("a", "b", "c"))
POINTS = {
    "delta": ("delta_note_written", "delta_table_made"),
    "sql": ("sql_staged", "sql_before_commit", "sql_after_commit"),
}
OLD, NEW = {"1": "old", "2": "only old"}, {"1": "new", "3": "only new"}
STEP = """
import sys
from contextlib import closing
from pathlib import Path
from sinks.kinds import open_generations
from tests.integration.sinks.test_generations_killed import TABLES, place

kind, folder, step, number = sys.argv[1:]
with closing(open_generations(place(kind, Path(folder)))) as generations:
    getattr(generations, step)(int(number), TABLES)
"""


def place(kind: str, folder: Path) -> SinkSpec:
    """A warehouse in a folder."""
    options = {"path": str(folder / "delta")} if kind == "delta" else {"url": f"sqlite:///{folder}/store.db"}
    return spec_for(kind, prefix="shop", options=options)


def mark(offset: int) -> Watermark:
    return Watermark(epoch=1, lsn=offset, offsets={table.topic: {0: offset} for table in TABLES})


def fill(sink: OpenSink, statuses: dict[str, str], offset: int) -> None:
    for table in TABLES:
        topic = Topic(table)
        changes = [topic.upsert({"id": int(key), "status": status}, at(offset)) for key, status in statuses.items()]
        sink.sink.apply(batch(*changes), Shapes(*TABLES))
    sink.commit(mark(offset))
    sink.close()


def shown(sink: OpenSink, table: TableSchema) -> dict[str, str]:
    return {key: orjson.loads(row.row)["status"] for key, row in rows(sink, table).items() if row.row is not None}


def run(kind: str, folder: Path, step: str, number: int, crash_at: str = "") -> int:
    """A step in a process of its own, which may end in the middle of it."""
    command = [sys.executable, "-c", STEP, kind, str(folder), step, str(number)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "CDC_CRASH_AT": crash_at}, check=False)
    return done.returncode


@pytest.fixture(params=sorted(POINTS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def made(kind: str, tmp_path: Path) -> Path:
    """A warehouse with an old generation in use and a newer one beside it, three tables each."""
    folder = tmp_path / "made"
    folder.mkdir()
    spec = place(kind, folder)
    fill(open_sink(spec), OLD, 5)
    fill(open_sink(beside(spec, 2)), NEW, 7)
    return folder


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("step", "number"), [("keep", 1), ("switch", 2)])
def test_h84_a_switch_killed_at_each_step_is_repeated(
    kind: str, made: Path, tmp_path: Path, step: str, number: int
) -> None:
    if step == "switch":
        assert run(kind, made, "keep", 1) == Exit.OK
    kills = 0
    for point in POINTS[kind]:
        for nth in range(1, 10):
            folder = tmp_path / f"{point}{nth}"
            shutil.copytree(made, folder)
            ended = run(kind, folder, step, number, f"{point}:{nth}")
            if ended == Exit.OK:
                break
            assert ended == CRASH_EXIT
            kills += 1
            claims_no_more_than_it_shows(kind, folder)
            assert run(kind, folder, step, number) == Exit.OK
            whole(kind, folder, NEW if step == "switch" else OLD, 7 if step == "switch" else 5)
            if step == "keep":
                assert run(kind, folder, "switch", 2) == Exit.OK
            assert run(kind, folder, "switch", 1) == Exit.OK
            whole(kind, folder, OLD, 5)
    assert kills >= 2


def claims_no_more_than_it_shows(kind: str, folder: Path) -> None:
    with closing(open_sink(place(kind, folder))) as sink:
        found = sink.watermarks.read()
        tables = [shown(sink, table) for table in TABLES]
    assert all(one in (OLD, NEW) for one in tables)
    assert found is None or found.lsn <= (7 if all(one == NEW for one in tables) else 5)


def whole(kind: str, folder: Path, statuses: dict[str, str], offset: int) -> None:
    with closing(open_sink(place(kind, folder))) as sink:
        assert [shown(sink, table) for table in TABLES] == [statuses] * len(TABLES)
        assert sink.watermarks.read() == mark(offset)
