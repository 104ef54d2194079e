"""Each step of a rebuild's switch is killed, in each warehouse; it is repeated, and claims no more than it has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import orjson
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from cdc.process.crash_points import CRASH_EXIT
from cdc.process.errors import Exit
from cdc.record.progress import Watermark
from cdc.record.schema import TableSchema
from sinks.contract.kinds import beside, open_generations, spec_for
from sinks.contract.port import OpenSink
from sinks.contract.sink_spec import SinkSpec, open_sink
from tests.contract.conftest import postgres_url
from tests.contract.stores import rows
from tests.contract.topics import Shapes, Topic, at, batch, column, shape
from tests.fresh import drop_database, fresh_name

ROOT = Path(__file__).parents[3]
TABLES = tuple(shape(column("id", "int8", key=1), column("status", "text"), table=name) for name in ("a", "b", "c"))
_SQL = ("sql_staged", "sql_before_commit", "sql_after_commit")
POINTS = {"delta": ("delta_note_written", "delta_table_made"), "sqlite": _SQL, "postgres": _SQL}
URL = "url"
"""The file in a warehouse's folder that says where its database is, where it is not a file in the folder."""
OLD, NEW = {"1": "old", "2": "only old"}, {"1": "new", "3": "only new"}
STEP = """
import sys
from contextlib import closing
from pathlib import Path
from sinks.contract.kinds import open_generations
from tests.integration.sinks.test_generations_killed import TABLES, place

kind, folder, step, number = sys.argv[1:]
with closing(open_generations(place(kind, Path(folder)))) as generations:
    getattr(generations, step)(int(number), TABLES)
"""


def place(kind: str, folder: Path) -> SinkSpec:
    """A warehouse in a folder."""
    match kind:
        case "delta":
            options = {"path": str(folder / "delta")}
        case "sqlite":
            options = {"url": f"sqlite:///{folder}/store.db"}
        case _:
            options = {"url": (folder / URL).read_text(encoding="utf-8")}
    return spec_for("delta" if kind == "delta" else "sql", prefix="shop", options=options)


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
    """A step; one that may end in the middle of it in a process of its own."""
    if crash_at:
        command = [sys.executable, "-c", STEP, kind, str(folder), step, str(number)]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, "CDC_CRASH_AT": crash_at}, check=False)
        return done.returncode
    with closing(open_generations(place(kind, folder))) as generations:
        getattr(generations, step)(number, TABLES)
    return Exit.OK


@pytest.fixture(params=sorted(POINTS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@dataclass
class Made:
    """A warehouse with an old generation in use and a newer one beside it, three tables each."""

    kind: str
    folder: Path
    exits: ExitStack
    postgres: str = ""
    database: str = ""

    def copy(self, name: str) -> Path:
        """Another one like it, in a folder of that name."""
        folder = self.folder.parent / name
        if self.kind != "postgres":
            shutil.copytree(self.folder, folder)
            return folder
        folder.mkdir()
        self._in_database(folder, self.database)
        return folder

    def fill(self) -> None:
        self.folder.mkdir()
        if self.kind == "postgres":
            self.database = self._in_database(self.folder)
        spec = place(self.kind, self.folder)
        fill(open_sink(spec), OLD, 5)
        fill(open_sink(beside(spec, 2)), NEW, 7)

    def _in_database(self, folder: Path, template: str = "template1") -> str:
        """The folder leads to a new database."""
        name = fresh_name()
        statement = sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(template))
        with psycopg.connect(self.postgres, autocommit=True) as admin:
            admin.execute(statement)
        self.exits.callback(self._drop, name)
        (folder / URL).write_text(postgres_url(conninfo_to_dict(self.postgres, dbname=name)), encoding="utf-8")
        return name

    def _drop(self, name: str) -> None:
        with psycopg.connect(self.postgres, autocommit=True) as admin:
            drop_database(admin, name)


@pytest.fixture
def made(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Made]:
    with ExitStack() as exits:
        postgres = request.getfixturevalue("postgres") if kind == "postgres" else ""
        warehouse = Made(kind, tmp_path / "made", exits, postgres)
        warehouse.fill()
        yield warehouse


@pytest.mark.long
@pytest.mark.slow
def test_h84_a_switch_killed_at_each_step_is_repeated(made: Made) -> None:
    kills = 0
    for step, number in (("keep", 1), ("switch", 2)):
        if step == "switch":
            assert run(made.kind, made.folder, "keep", 1) == Exit.OK
        for point in POINTS[made.kind]:
            for nth in range(1, 10):
                if not killed_and_repeated(made, step, number, f"{point}:{nth}"):
                    break
                kills += 1
    assert kills >= 4


@pytest.mark.slow
def test_h84_a_switch_killed_once_is_repeated(made: Made) -> None:
    assert run(made.kind, made.folder, "keep", 1) == Exit.OK
    assert killed_and_repeated(made, "switch", 2, f"{POINTS[made.kind][0]}:1")


def killed_and_repeated(made: Made, step: str, number: int, crash_at: str) -> bool:
    """A step is killed there and done again, and the old generation comes back. False where it passes no such point."""
    folder, kind = made.copy(crash_at.replace(":", "")), made.kind
    ended = run(kind, folder, step, number, crash_at)
    if ended == Exit.OK:
        return False
    assert ended == CRASH_EXIT
    claims_no_more_than_it_shows(kind, folder)
    assert run(kind, folder, step, number) == Exit.OK
    whole(kind, folder, NEW if step == "switch" else OLD, 7 if step == "switch" else 5)
    if step == "keep":
        assert run(kind, folder, "switch", 2) == Exit.OK
    assert run(kind, folder, "switch", 1) == Exit.OK
    whole(kind, folder, OLD, 5)
    return True


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
