"""The rooms whose modules are changed, the tests that should notice, and the changes that none can."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
PACKAGES = ("cdc", "connectors", "snapshot", "sinks", "spark")
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
_UNIT = "tests/unit"


class Room(NamedTuple):
    """``modules``: ends of paths, each of one file; ``tests``: folders and files of tests, as patterns."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]

    @property
    def files(self) -> list[Path]:
        return [found(module) for module in self.modules]

    @property
    def test_files(self) -> list[str]:
        return sorted(str(path.relative_to(ROOT)) for pattern in self.tests for path in ROOT.glob(pattern))


_CDC = f"{_UNIT}/cdc"
_OPERATE = f"{_CDC}/operate"
_RECORD = f"{_CDC}/record"
_WIRE = f"{_CDC}/wire/test_*.py"
_DEBEZIUM = f"{_CDC}/wire/debezium/test_*.py"
_POSTGRES = f"{_UNIT}/connectors/postgres/*"
_SESSION = f"{_UNIT}/connectors/session"
_SNAPSHOT = f"{_UNIT}/snapshot"
_FIRST = f"{_SNAPSHOT}/first"
_LATER = f"{_SNAPSHOT}/later"
_SINKS = f"{_UNIT}/sinks/*"
_SPARK = f"{_UNIT}/spark"
_CONTRACT = "tests/contract"


def _of(folder: str, *names: str) -> tuple[str, ...]:
    """Files of tests: ``test_<name>.py`` in the folder, each name a pattern."""
    return tuple(f"{folder}/test_{name}.py" for name in names)


ROOMS: Mapping[str, Room] = {
    "position": Room(
        ("cdc/record/position.py", "cdc/record/topic_names.py"),
        (*_of(_RECORD, "position", "topic", "progress"), *_of(f"{_CDC}/capture", "stale")),
    ),
    "progress": Room(
        ("cdc/record/progress.py", "cdc/capture/advance.py"),
        (
            *_of(_RECORD, "progress", "epochs", "stored", "aside", "schema"),
            *_of(f"{_CDC}/capture", "advance", "capture"),
        ),
    ),
    "aside": Room(
        ("cdc/record/tables_aside.py", "cdc/capture/late_record_rules.py"),
        (
            *_of(_RECORD, "aside*"), *_of(f"{_CDC}/capture", "stale"),
            *_of(_SESSION, "asides", "mending"), *_of(_POSTGRES, "aside"),
        ),
    ),
    "waiting": Room(
        ("connectors/postgres/assembly/waiting_tables.py", "connectors/postgres/assembly/pending_records.py"),
        _of(_POSTGRES, "waiting*", "held", "aside", "spilled")
    ),
    "windows": Room(
        ("cdc/capture/windows.py", "cdc/capture/transaction_visibility.py"),
        (*_of(f"{_CDC}/capture", "windows*"), *_of(_POSTGRES, "reselect"), *_of(_LATER, "window_read")),
    ),
    "floors": Room(
        ("sinks/contract/store_notes.py", "sinks/contract/store.py", "sinks/contract/missing_values.py"),
        (
            *_of(_SINKS, "notes", "store_steps", "rows", "plan"),
            *_of(_CONTRACT, "boundaries", "floors", "watermarks", "order", "refusals", "filled"),
        ),
    ),
    "place": Room(("spark/stores/place_check.py",), _of(_SPARK, "place", "its_place")),
    "sinks": Room(
        ("sinks/contract/batch_plan.py", "sinks/contract/store.py", "sinks/contract/newest.py"),
        (
            *_of(_SINKS, "plan", "fill", "newest", "rows", "unread_records"),
            *_of(_CONTRACT, "order", "filled", "boundaries", "floors", "refusals", "unavailable"),
        ),
    ),
    "spark": Room(
        ("spark/stores/watermark.py", "spark/stores/holds.py", "spark/stores/apply.py", "spark/queries/micro_batch.py"),
        _of(
            _SPARK, "watermark", "log_view", "heads", "view_claims", "foreign_records", "holds", "hold_rules", "store",
            "apply", "batch", "parked", "retry", "place", "its_place",
        ),
    ),
    "debezium": Room(
        ("debezium/reading.py", "cdc/wire/debezium/wrapped.py"),
        (_DEBEZIUM, *_of(_SINKS, "debezium"), *_of(_SPARK, "debezium")),
    ),
    "assembly": Room(
        (
            "connectors/postgres/assembly/assembler.py", "connectors/postgres/assembly/transaction.py",
            "connectors/postgres/server/cut_reader.py",
        ),
        _of(
            _POSTGRES, "assemble*", "transaction", "cut", "held", "netting", "waiting", "aside", "incoming", "unread",
            "row_steps",
        ),
    ),
    "decoder": Room(
        ("connectors/postgres/protocol/pgoutput.py", "wire/envelope.py"),
        _of(_POSTGRES, "pgoutput", "encoder", "abridge", "recorded", "assemble"),
    ),
    "record": Room(
        ("wire/canonical.py", "wire/plain.py", "wire/records.py"),
        (_WIRE, *_of(_POSTGRES, "encoder", "values"), *_of(_SINKS, "rows"), *_of(_SPARK, "batch")),
    ),
    "values": Room(
        ("wire/types.py", "wire/records.py", "wire/jsontree.py", "wire/envelope.py"),
        (_WIRE, _DEBEZIUM, *_of(_SINKS, "rows", "plan"), *_of("tests/docs", "wire")),
    ),
    "netting": Room(("connectors/postgres/assembly/net_changes.py",), _of(_POSTGRES, "netting", "assemble", "unread")),
    "condition": Room(
        ("cdc/record/row_condition.py", "snapshot/later/window_read.py"),
        (*_of(_RECORD, "condition"), *_of(_LATER, "condition_sql"))
    ),
    "stored": Room(
        ("cdc/record/state.py", "cdc/record/documents.py", "cdc/record/schema.py"),
        (
            *_of(_RECORD, "stored", "stored_shapes", "state_documents", "schema", "aside", "condition"),
            *_of(_FIRST, "ledger", "manifest"), *_of(_LATER, "chunk_queue", "watch_rules"),
            *_of(_OPERATE, "rereads", "masked_requests"), *_of(f"{_CDC}/status", "run"),
        ),
    ),
    "dead": Room(
        ("cdc/wire/dead_letter.py",),
        (
            *_of(f"{_CDC}/wire", "dead_letters", "orders"), *_of(_RECORD, "stored"),
            *_of(_OPERATE, "letters", "rebuild*"),
        ),
    ),
    "store": Room(
        ("spark/stores/store_thread.py", "spark/stores/store_calls.py"),
        _of(_SPARK, "store", "store_rest", "store_orders", "holds", "place", "retry", "worker", "parked"),
    ),
    "verification": Room(
        ("verification/passes.py", "verification/spool.py", "verification/repair.py", "verification/result.py"),
        (*_of(f"{_CDC}/verification", "*"), *_of(_RECORD, "aside")),
    ),
    "handover": Room(
        (
            "cdc/operate/handover_rules.py", "cdc/operate/rebuild.py",
            "cdc/operate/snapshot_requests.py",
        ),
        _of(_OPERATE, "handover*", "rebuild*", "rereads", "masked_requests"),
    ),
    "status": Room(
        ("freshness/rules.py", "status/rules.py"),
        (*_of(f"{_CDC}/freshness", "*"), *_of(f"{_CDC}/status", "*"), *_of(_RECORD, "aside")),
    ),
    "snapshot": Room(
        ("snapshot/source/planned_tables.py", "snapshot/first/manifest.py", "later/chunk_queue.py"),
        (_SNAPSHOT,),
    ),
}  # fmt: skip
"""In the order of the seeds. A module stands in one room. ``tests``: the smallest set that states its rules."""


@cache
def found(end: str) -> Path:
    """The one module whose path ends so. ValueError where there is none, or more."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if f"/{path}".endswith(f"/{end}")]
    if len(files) != 1:
        raise ValueError(f"{len(files)} modules end with {end}")
    return files[0]


class Listed(NamedTuple):
    """Changes of a module that no test can notice, or need not, and why. A ``*`` in ``change`` stands for anything."""

    module: str
    change: str
    why: str

    def meets(self, file: str, change: str) -> bool:
        return f"/{file}".endswith(f"/{self.module}") and _pattern(self.change).fullmatch(change) is not None


@cache
def _pattern(change: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, change.split("*"))))


def listed() -> Iterator[Listed]:
    """The list that is kept: a table for each module, ``change = reason``."""
    for module, reasons in tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).items():
        yield from (Listed(module, change, why) for change, why in reasons.items())
