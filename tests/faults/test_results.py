"""The manual quotes the figures that were counted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import experiments
from tests.faults.__main__ import WITHOUT_CONNECTORS
from tests.faults.lab import Lab, Limits
from tests.faults.reach import digest, reached
from tests.faults.readback import Expected, judged
from tests.faults.results import (
    FOLDER,
    Figures,
    NotOfARun,
    failures_table,
    load,
    notes_table,
    save,
    table,
    why_due,
    why_parts_due,
)

MANUAL = Path(__file__).parent / "README.md"


@pytest.mark.parametrize("name", ["results", "mutants", "generated", "failures"])
def test_the_manual_quotes_the_results(name: str, rewrite: bool) -> None:
    made: dict[str, Callable[[], str]] = {
        "results": table,
        "mutants": lambda: notes_table("mutants", ("rule broken", "noticed by")),
        "generated": lambda: notes_table("generated_mutants", ("module", "changes noticed")),
        "failures": failures_table,
    }
    quoted = made[name]()
    marked = re.compile(rf"(<!-- {name} -->\n)(.*?)(<!-- /{name} -->)", re.DOTALL)
    text = MANUAL.read_text(encoding="utf-8")
    if rewrite:
        text = marked.sub(lambda found: found[1] + quoted + found[3], text)
        MANUAL.write_text(text, encoding="utf-8")
    found = marked.search(text)
    assert found is not None
    assert found[2] == quoted, "run pytest tests/faults --rewrite"


def test_figures_add_up_over_runs(tmp_path: Path) -> None:
    assert load("kills", tmp_path) == Figures()
    figures = Figures(next_seed=3, seconds=1.5)
    figures.add({"kills": 3})
    figures.peak({"memory_mb": 71.5})
    save("kills", figures, tmp_path)
    again = load("kills", tmp_path)
    again.add({"kills": 2, "lost": 0})
    again.peak({"memory_mb": 60})
    assert again.sums == {"kills": 5, "lost": 0}
    assert again.peaks == {"memory_mb": 71.5}
    save("kills", again, tmp_path)
    assert "| kills | not kept | 3 | 2 s | 5 kills; 0 lost; at most 71.5 memory_mb |" in table(tmp_path)


def test_h114_only_a_run_writes_a_result() -> None:
    for file in FOLDER.glob("*.json"):
        load(file.stem)


def test_h114_a_result_changed_by_hand_is_refused(tmp_path: Path) -> None:
    figures = Figures(next_seed=3, code="c0de", sums={"lost": 2})
    save("kills", figures, tmp_path)
    assert load("kills", tmp_path) == figures
    file = tmp_path / "kills.json"
    file.write_text(file.read_text(encoding="utf-8").replace('"lost": 2', '"lost": 0'), encoding="utf-8")
    with pytest.raises(NotOfARun):
        load("kills", tmp_path)


def test_h114_figures_of_another_code_are_begun_anew() -> None:
    figures = Figures()
    figures.begin("a", "code a")
    figures.add({"kills": 3, "lost": 0})
    figures.next_seed = 5
    assert why_due(figures, "code a") == ""
    assert "a, and the code has changed" in why_due(figures, "code b")
    figures.begin("b", "code a")
    assert figures.sums == {"kills": 3, "lost": 0}
    figures.begin("c", "code b")
    assert (figures.sums, figures.next_seed, figures.seeds) == ({}, 5, 0)
    assert why_due(figures, "code b") == "no seed was tried on this code"


def test_h114_a_failing_seed_is_counted_and_kept(tmp_path: Path) -> None:
    figures = Figures()
    figures.begin("a", "code")
    lab = Lab(name="kills", limits=Limits(seconds=0, count=0), folder=tmp_path, figures=figures, results=tmp_path)
    lab.seed = 7
    lab.count(lost=2)
    lab.failed("Found: memory public.t lacks 2 rows")
    kept = load("kills", tmp_path)
    assert kept.sums == {"lost": 2, "failed": 1}
    assert "it fails at seed 7" in why_due(kept, "code")
    kept.begin("b", "code")
    again = Lab(
        name="kills", limits=Limits(seconds=0, count=0, mended="a batch was counted twice"), folder=tmp_path,
        figures=kept, results=tmp_path,
    )  # fmt: skip
    assert list(again.seeds()) == [7]
    assert why_due(load("kills", tmp_path), "code") == ""
    assert "| kills | 7 | a | Found: memory public.t lacks 2 rows | b | a batch was counted twice |" in failures_table(
        tmp_path
    )


def test_h114_a_digest_is_of_definitions_and_not_of_their_place(tmp_path: Path) -> None:
    def tree(name: str, files: dict[str, str]) -> str:
        for file, text in files.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return digest("tests.kills", root=tmp_path / name)

    packages = {f"{name}/__init__.py": "" for name in ("tests", "cdc", "cdc/loop")}
    entry = {"tests/kills.py": "from cdc.loop.step import step\nstep()\n"}
    code = 'def step():\n    """One."""\n    return 1\n'
    first = tree("first", {**packages, **entry, "cdc/loop/step.py": code})
    described = code.replace("One.", "A step.") + "# more\n"
    assert tree("described", {**packages, **entry, "cdc/loop/step.py": described}) == first
    moved = {"tests/kills.py": "from cdc.steps import step\nstep()\n", "cdc/steps.py": code}
    assert tree("moved", {**packages, **moved}) == first
    assert tree("beside", {**packages, **entry, "cdc/loop/step.py": code, "cdc/other.py": "x = 1\n"}) == first
    assert tree("changed", {**packages, **entry, "cdc/loop/step.py": code.replace("1\n", "2\n")}) != first
    assert tree("sql", {**packages, **entry, "cdc/loop/step.py": code, "cdc/loop/q.sql": "select 1"}) != first


def test_h114_a_new_command_changes_no_other(tmp_path: Path) -> None:
    """The table of commands is looked up by name. A list of the same name elsewhere is code as any other."""
    found = []
    for number, (file, names) in enumerate(
        [("app", "'run',"), ("app", "'run', 'up'"), ("other", "1,"), ("other", "2,")]
    ):
        root = tmp_path / str(number)
        (root / "cdc" / "cli").mkdir(parents=True)
        (root / "cdc" / "cli" / f"{file}.py").write_text(f"COMMANDS: tuple = ({names})\ndef run(): return COMMANDS\n")
        found.append(digest(f"cdc.cli.{file}", root=root))
    assert found[0] == found[1]
    assert found[2] != found[3]


def test_h114_an_experiment_reaches_what_its_processes_run() -> None:
    found = reached("tests.faults.experiments.reader_kills")
    assert {
        "cdc.cli.run",
        "cdc.capture.advance",
        "connectors.postgres.server.walsender",
        "connectors.kafka.stream_log",
    } <= found
    sinks = {"cdc.cli.sink", "sinks.cache.cache_store", "sinks.search.search_bulk", "spark.stores.store_thread"}
    assert sinks <= reached("tests.faults.experiments.pipeline_kills")
    assert {"sinks.delta.delta_store", "cdc.cli.verify"} <= reached("tests.faults.experiments.disk_full")
    assert "cdc.capture.capture_loop" not in reached("tests.faults.experiments.decoder")
    assert "cdc.views.view_plan" in reached("tests.faults.experiments.views")


def test_h114_no_experiment_has_a_connector() -> None:
    """Modules of Debezium's connectors are left out of every digest."""
    folder = Path(__file__).parent
    texts = [file for file in folder.rglob("*.py") if not {"mutants", "generated"} & {*file.relative_to(folder).parts}]
    own = {Path(__file__).name, "__main__.py"}
    having = ("Connector(", '"debezium": {', '"kind": "debezium"', 'kind = "debezium"', '"connect", "deploy"')
    found = [file.name for file in texts if file.name not in own and any(one in file.read_text() for one in having)]
    assert found == []
    assert "connectors.debezium.connector" in WITHOUT_CONNECTORS


def test_h114_one_experiment_asks_over_http() -> None:
    """What answers there is left out of the digests of all others."""
    texts = {file.name: file.read_text() for file in Path(experiments.__path__[0]).glob("*.py")}
    paths = ("/readyz", "/livez", "/metrics", "/status", "/wait")
    asking = [name for name, text in texts.items() if any(f"}}{path}" in text for path in paths)]
    assert asking == [name for name, text in texts.items() if "\nPAGES = True" in text] == ["fire_drill.py"]


def test_h114_what_a_package_loads_late_counts_for_who_asks(tmp_path: Path) -> None:
    """A function of ``__init__`` that imports when it is called, and a name that is loaded when it is asked for."""
    files = {
        "cdc/__init__.py": "_MODULES = {'Lsn': 'cdc.lsn', 'View': 'cdc.view'}\ndef __getattr__(name): return name\n",
        "cdc/lsn.py": "", "cdc/view.py": "", "cdc/capture.py": "", "cdc/sink.py": "", "cdc/wiring/parts.py": "",
        "cdc/wiring/__init__.py": (
            "from cdc.wiring.parts import x\n"
            "def capture():\n    from cdc.capture import Capture\n    return _lsn()\n"
            "def sink():\n    from cdc.sink import Sink\n"
            "def _lsn():\n    from cdc import Lsn\n"
        ),
        "tests/__init__.py": "",
        "tests/kills.py": "from cdc.wiring import capture\n",
        "tests/whole.py": "import cdc.wiring\n",
    }  # fmt: skip
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    around = {"tests", "cdc", "cdc.wiring", "cdc.wiring.parts", "cdc.capture", "cdc.lsn"}
    assert reached("tests.kills", root=tmp_path) == around | {"tests.kills"}
    assert reached("tests.whole", root=tmp_path) == around | {"tests.whole", "cdc.sink"}
    assert reached("tests.whole", ("cdc.sink", "cdc.lsn", "cdc.w"), root=tmp_path) == around - {"cdc.lsn"} | {
        "tests.whole"
    }


def test_h114_parts_are_due_by_the_code_of_each(tmp_path: Path) -> None:
    figures = Figures()
    figures.begin_parts("a", {"one": "1", "two": "2"})
    lab = Lab(name="rules", limits=Limits(seconds=9), folder=tmp_path, figures=figures, results=tmp_path)
    for name in lab.parts({"one": "1", "two": "2"}):
        lab.part(name, {"one": "1", "two": ""}[name], {name: "test_x"}, caught=int(name == "one"))
    kept = load("rules", tmp_path)
    assert kept.due({"one": "1", "two": "2"}) == ["two"]
    assert why_parts_due(kept, {"one": "1", "two": "2"}).startswith("1 of its 2 parts")
    assert kept.due({"one": "1 changed"}) == ["one"]
    assert (kept.sums, why_parts_due(kept, {"one": "1"})) == ({"caught": 1}, "")
    assert "| two | test_x |" in notes_table("rules", ("rule", "test"), tmp_path)
    kept.begin_parts("b", {"two": "2"})
    assert list(kept.parts) == ["two"]


@pytest.mark.parametrize(
    ("records", "lost", "wrong", "twice"),
    [
        ([(1, "v 1"), (2, "v 2")], 0, 0, 0),
        ([(1, "v 1")], 1, 0, 0),
        ([(1, "v 1"), (2, "v 1")], 0, 1, 0),
        ([(1, "v 1"), (2, "v 2"), (2, "v 2")], 0, 0, 1),
        ([(1, "v 1"), (3, "v 3")], 1, 1, 0),
    ],
)
def test_h114_a_count_of_records_is_not_a_comparison(
    records: list[tuple[int, str]], lost: int, wrong: int, twice: int
) -> None:
    values = [("t", json.dumps({"after": {"id": number, "v": text}}).encode()) for number, text in records]
    found = judged(values, Expected({"t": 2}, lambda _, number: f"v {number}"))
    assert (found.lost, found.wrong, found.duplicates) == (lost, wrong, twice)
    assert found.differs == bool(lost or wrong or twice)
