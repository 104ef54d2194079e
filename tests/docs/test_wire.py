"""The manual of the wire: its table of types, its rules, its schemas and its consumers."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson
import pytest

from cdc.capture.table_masks import MaskedPartState, MaskState
from cdc.capture.topic_specs import KeyedAnewState
from cdc.jvm.jars import class_path
from cdc.operate.rebuild import RebuildState
from cdc.record.progress import EpochsState, Progress, WriterState
from cdc.record.state import Document
from cdc.record.tables_aside import AsideState, aside_key
from cdc.record.topic_names import dead_topic, progress_topic, schema_topic, state_topic, view_topic, views_topic
from cdc.settings.model import LogSettings
from cdc.views.known_views import KnownView
from cdc.views.view_ports import AskedKeys
from cdc.wire.dead_letter import DeadLetter, Why
from cdc.wire.format import (
    HEADERS,
    KEY_HEADERS,
    OWN_SOURCE,
    RESELECTED,
    RESELECTED_COLUMNS,
    SEEN_LSN,
    SWEEP_KEY,
    TRUNCATE_KEY,
    UNAVAILABLE,
)
from cdc.wire.types import FAMILIES
from connectors.debezium.new_log import ResnapshotState
from connectors.debezium.snapshots import UnreadState
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import read_range
from tests.golden.rules import RULES
from tests.integration.cli.pipeline import Pipeline
from tests.json_schema import faults
from tests.programs import RunCdc, Spawn
from tests.waiting import wait_until

_IMPORTED: tuple[type[Document], ...] = (
    AsideState,
    AskedKeys,
    EpochsState,
    KeyedAnewState,
    MaskedPartState,
    MaskState,
    RebuildState,
    ResnapshotState,
    UnreadState,
    WriterState,
)
"""Those of modules that no import above brings with it: without them the table depends on which tests ran before
here."""
ROOT = Path(__file__).parents[2]
MANUAL = ROOT / "cdc" / "wire" / "README.md"
PLACE = "cdc/wire/README.md"


def manual() -> str:
    return MANUAL.read_text(encoding="utf-8")


def marked(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name} -->\n)(.*?)(<!-- /{name} -->)", re.DOTALL)


def code(name: str) -> str:
    """A program of the manual."""
    found = marked(name).search(manual())
    assert found is not None
    return found[2].partition("\n")[2].rpartition("```")[0]


def types_table() -> str:
    lines = [
        "| Postgres | `readable` | `debezium`, where it differs | example: readable, debezium | warehouse | search |"
    ]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for family in FAMILIES:
        shown = dict.fromkeys((f"`{family.example.readable}`", f"`{family.example.debezium}`"))
        cells = [
            " ".join(family.names), family.form, family.debezium, ", ".join(shown), family.warehouse, family.search,
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def schema(of: str) -> Any:
    return json.loads((files("cdc.wire") / f"{of}.schema.json").read_text(encoding="utf-8"))


def test_the_table_of_types_is_that_of_the_code(rewrite: bool) -> None:
    if rewrite:
        text = marked("types").sub(lambda found: found[1] + types_table() + found[3], manual())
        MANUAL.write_text(text, encoding="utf-8")
    found = marked("types").search(manual())
    assert found is not None
    assert found[2] == types_table(), "run pytest tests/docs --rewrite"


def test_every_difference_from_debezium_has_its_reason() -> None:
    rows = re.findall(r"^\| (D\d+) \| (.+) \| (.+) \| (yes|no) \|$", manual(), re.MULTILINE)
    assert [rule for rule, *_ in rows] == [f"D{number}" for number in range(1, 27)]
    assert {rule for rule, _, _, tested in rows if tested == "yes"} == {rule.name for rule in RULES}


def test_every_name_of_a_record_is_in_the_manual() -> None:
    names = (*HEADERS, *KEY_HEADERS, *OWN_SOURCE, SEEN_LSN, RESELECTED, UNAVAILABLE)
    assert [name for name in names if f"`{name}`" not in manual()] == []
    assert [name for name in (TRUNCATE_KEY, SWEEP_KEY) if f'"{name}"' not in manual()] == []


def test_every_topic_and_document_of_a_pipeline_is_in_the_manual() -> None:
    topics = [make("<name>") for make in (schema_topic, state_topic, progress_topic, dead_topic, views_topic)]
    topics.append(view_topic("<name>", "<view>", 1).replace("1", "<generation>"))
    assert [topic for topic in topics if f"| `{topic}` |" not in manual()] == []
    members = [field.name for kind in (KnownView, Progress) for field in fields(kind)]
    assert [name for name in members if f"`{name}`" not in manual()] == []


def documents_table() -> str:
    """A row for each kind of document in the state topic: its name, its key, its members, and what it is about."""
    lines = [
        "| `what` | more members of the key | members of the value | what it is about |",
        "| --- | --- | --- | --- |",
    ]
    kinds = {kind.WHAT: kind for kind in (*Document.__subclasses__(), *_IMPORTED)}
    # By name: the order of subclasses is that in which modules were imported.
    kinds = dict(sorted(kinds.items()))
    for what, kind in kinds.items():
        own = inspect.getsource(aside_key if kind is AsideState else kind.key)
        members = [field.name for field in fields(kind)]
        key = [name for name in members if f'"{name}":' in own]
        about = re.split(r"(?<=[.:]) ", " ".join(str(kind.__doc__).split()))[0].rstrip(".:").replace("``", "`")
        cells = [f"`{what}`", _names(key), _names(["format", *members]), re.sub(r":class:`(\w+)`", r"\1", about)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _names(members: list[str]) -> str:
    return " ".join(f"`{name}`" for name in members)


def test_the_table_of_documents_is_that_of_the_code(rewrite: bool) -> None:
    if rewrite:
        text = marked("documents").sub(lambda found: found[1] + documents_table() + found[3], manual())
        MANUAL.write_text(text, encoding="utf-8")
    found = marked("documents").search(manual())
    assert found is not None
    assert found[2] == documents_table(), "run pytest tests/docs --rewrite"


def test_every_header_of_a_dead_letter_is_in_the_manual() -> None:
    letter = DeadLetter(sink="s", why=Why.REFUSED, topic="t", partition=0, offset=0, reason="r", key=None, value=None)
    names = [name for name, _ in letter.record_headers()] + [why.value for why in Why]
    assert [name for name in names if f"`{name}`" not in manual()] == []


def test_who_refers_to_the_wire_manual_says_where_it_is(run_cdc: RunCdc) -> None:
    texts = [
        run_cdc("config", "example").stdout.replace("\n#", " "),
        (ROOT / "cdc" / "README.md").read_text(encoding="utf-8"),
    ]
    assert [PLACE in " ".join(text.split()) for text in texts] == [True] * 2
    assert "(cdc/wire/README.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert (files("cdc.wire") / "README.md").is_file()


def test_golden_records_of_debezium_fit_the_schema() -> None:
    """What Debezium wrote, with the fields of ours that it lacks (D15)."""
    count = 0
    ours = dict.fromkeys(OWN_SOURCE, 1)
    for path in sorted((ROOT / "tests" / "golden" / "cases").glob("sh_*/expected.jsonl")):
        for line in path.read_text(encoding="utf-8").rstrip("\n").split("\n"):
            record = orjson.loads(re.sub(rb'"<(?:ts|lsn|tx)[^"]*>"', b"1", line.encode()))
            value = record["value"]
            if not isinstance(record["key"], dict) or (value is not None and "after" not in value):
                continue  # without a key, and of other topics
            if None in record["key"].values() or (value is not None and value["transaction"] is not None):
                continue  # a nullable key (D10), and members of Debezium's transaction topic (D25)
            if value is not None:
                value["source"] |= ours | {SEEN_LSN: 1, RESELECTED: {RESELECTED_COLUMNS: ["doc"], SEEN_LSN: 1}}
            assert faults(schema("key"), record["key"]) == [], line
            assert faults(schema("value"), value) == [], line
            count += 1
    assert count > 200


@pytest.mark.parametrize(
    ("of", "value"),
    [
        ("key", []),
        ("key", {"id": None}),
        ("key", {SWEEP_KEY: "t", "id": 1}),
        ("value", {"before": None, "after": {}, "op": "c"}),
        ("value", {}),
        ("value", {"source": {RESELECTED: {RESELECTED_COLUMNS: []}}}),
    ],
)
def test_what_is_no_record_fits_no_schema(of: str, value: Any) -> None:
    assert faults(schema(of), value) != []


def test_the_consumer_in_python_has_twenty_lines_at_most() -> None:
    assert len(code("python").splitlines()) <= 20


@pytest.fixture(params=["readable", "debezium"])
def pipeline(
    request: pytest.FixtureRequest, database: str, kafka: str, topic_prefix: str, tmp_path: Path, run_cdc: RunCdc
) -> Pipeline:
    """A pipeline of one table in each encoding."""
    return Pipeline(
        tmp_path,
        run_cdc,
        {
            "name": topic_prefix,
            "source": {"dsn": database, "tables": ["public.orders"]},
            "log": {"bootstrap_servers": kafka, "partitions": 3, "encoding": request.param},
            "capture": {"http_address": ""},
        },
    )


@pytest.mark.slow
def test_live_records_fit_the_schema_and_consumers_print_them(
    pipeline: Pipeline, kafka: str, topic_prefix: str, tmp_path: Path, spawn: Spawn, subtests: pytest.Subtests
) -> None:
    """The sweep mark of a later snapshot and a truncate are among the records."""
    pipeline.sql(
        "create table orders (id int primary key, status text, total numeric(8,2), placed timestamptz)",
        "insert into orders values (1, 'gone by the truncate', 1, now())",
    )
    pipeline.good("init")
    pipeline.good("snapshot")
    run = spawn("cdc", "--config", pipeline.config, "run")
    pipeline.sql(
        "truncate orders",
        "insert into orders select n, 'open', n, '2026-11-20 10:00+00' from generate_series(2, 6) n",
        "update orders set status = 'paid' where id = 2",
        "update orders set id = 7 where id = 3",
        "delete from orders where id = 4",
    )
    topic = f"{topic_prefix}.public.orders"
    settings = LogSettings(bootstrap_servers=kafka)

    def ops() -> list[str]:
        return sorted(dict(record.headers() or ())["op"].decode() for record in records(settings, topic))

    wait_until(lambda: ops().count("d") == 4 and ops().count("c") == 6, 60, "every change in the topic")
    pipeline.good("snapshot", "public.orders")
    wait_until(lambda: any(SWEEP_KEY.encode() in record.key() for record in records(settings, topic)), 60, "the sweep")
    seen = set()
    for record in records(settings, topic):
        value = orjson.loads(record.value() or b"null")
        assert faults(schema("key"), orjson.loads(record.key())) == []
        assert faults(schema("value"), value) == [], record.value()
        seen.add((value["op"], "sweep" in value) if value is not None else None)
    assert seen == {None, ("r", False), ("c", False), ("u", False), ("d", False), ("t", False), ("t", True)}
    (tmp_path / "consumer.py").write_text(code("python"), encoding="utf-8")
    (tmp_path / "Reader.java").write_text(code("java"), encoding="utf-8")
    programs: list[list[str | Path]] = [[sys.executable, tmp_path / "consumer.py"]]
    compiler = java_with_compiler()
    with subtests.test("the consumer in Java"):
        if compiler is None:
            pytest.skip("this Java has no compiler, so it cannot run a source file")
        programs.append([compiler, "-cp", f"{class_path('kafka')}/*", tmp_path / "Reader.java"])
    printed = [
        subprocess.run([*map(str, argv), kafka, topic], capture_output=True, text=True, check=True, timeout=120).stdout
        for argv in programs
    ]
    wanted = [(2, "paid", 2), (5, "open", 5), (6, "open", 6), (7, "open", 3)]
    placed, encoding = "2026-11-20T10:00:00.000000Z", pipeline.document["log"]["encoding"]
    lines = [
        f'{{"id":{key}}} {{"id":{key},"status":"{status}","total":{text(encoding, total)},"placed":"{placed}"}}\n'
        for key, status, total in wanted
    ]
    assert printed == ["".join(lines)] * len(programs)
    assert run.terminate() == 0


def text(encoding: str, total: int) -> str:
    """A total of whole units as ``numeric(8,2)`` stands in a record."""
    unscaled = total * 100
    whole = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big")
    return f'"{total}.00"' if encoding == "readable" else f'"{b64encode(whole).decode()}"'


def java_with_compiler() -> str | None:
    """A ``java`` that runs a source file."""
    found = shutil.which("java")
    if found is None:
        return None
    modules = subprocess.run([found, "--list-modules"], capture_output=True, text=True, check=False, timeout=60)
    return found if re.search(r"^jdk[.]compiler\b", modules.stdout, re.MULTILINE) else None


def records(settings: LogSettings, topic: str) -> list[Any]:
    """Every record that a topic holds."""
    facts = TopicAdmin(settings).describe([topic])[topic]
    return [record for partition in range(facts.partitions) for record in read_range(settings, topic, partition)]
