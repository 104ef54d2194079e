"""The functions compiled for a table, with every step counted: instructions of Python and steps of expressions."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from types import FrameType, FunctionType
from typing import Any

from cdc.record.schema import Encoding, TableSchema
from cdc.settings.mask_rules import NO_MASKS
from connectors.postgres.encoding.encoder import TableEncoder, compile_table
from connectors.postgres.protocol.pgoutput import decode
from tests.faults.lab import Found
from tests.faults.steps import Steps, TooMany
from tests.unit.connectors.postgres import written as w

Nulls = Callable[[int], bool]
MOST = 1600
"""Columns that a table of Postgres can have."""
_LSN, _SEQ = 16, 1
_TRICKY = (b"n", b"nnnn", b"t", b"tn", b"nt", b"", b"N", b"man", b'"n', b"n" * 40, b"\\N", "é\n".encode())


def bound(columns: int, size_bytes: int) -> int:
    """Steps of a compiled function; ordinary rows take half of it, and the first use of a module some 3,000 more."""
    return 6000 + 150 * columns + 14 * size_bytes


def long_bound(columns: int, size_bytes: int) -> int:
    """Steps of the long way, which decodes, and writes each value by itself; ordinary rows take a third."""
    return 7000 + 1000 * columns + 20 * size_bytes


class Work:
    """``steps`` so far. TooMany, where they pass ``limit``."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.steps = 0

    def of(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What ``function`` returns; its instructions and those of what it calls are counted."""
        before = sys.gettrace()
        sys.settrace(self._traced)
        try:
            return function(*arguments)
        finally:
            sys.settrace(before)

    def bounded(self) -> None:
        if self.steps > self.limit:
            raise TooMany(f"{self.steps} steps of {self.limit}")

    def counting(self, compiled: Any) -> Any:
        """``compiled`` again, its expressions counted too."""
        names = {name: self._counting(value) for name, value in compiled.__globals__.items()}
        return FunctionType(compiled.__code__, names)

    def _counting(self, value: Any) -> Any:
        expression = getattr(value, "__self__", None)
        if not isinstance(expression, re.Pattern):
            return value
        steps = _steps(expression)

        def match(text: bytes, at: int = 0) -> Any:
            before = sys.gettrace()
            sys.settrace(None)
            self.steps += steps.match(text, at, limit=self.limit)[1]
            sys.settrace(before)
            return value(text, at)

        return match

    def _traced(self, frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            self.steps += 1
        return self._traced


@lru_cache(maxsize=64)
def _steps(expression: re.Pattern[bytes]) -> Steps:
    return Steps(expression)


def check(schema: TableSchema, new: Sequence[bytes | None], old: Sequence[bytes | None]) -> None:
    """Found, where a change of this row takes more steps than its bytes and columns allow."""
    try:
        _check(schema, new, old)
    except TooMany as error:
        raise Found(f"{error}: {[column.kind for column in schema.columns][:20]}, {new[:20]}") from error


def _check(schema: TableSchema, new: Sequence[bytes | None], old: Sequence[bytes | None]) -> None:
    encoder = compile_table(schema, name="shop", database="app", masks=NO_MASKS)
    found = encoder.rows
    keyed = [value if i in encoder.key_columns else None for i, value in enumerate(new)]
    line = b"\t".join(map(_copied, new)) + b"\n"
    for function, templates, payload in (
        (found.new, found.new_templates, w.insert(*new)),
        (found.pair, found.pair_templates, w.update(new, old=old)),
        (found.old, found.old_templates, w.delete(old=old)),
        (found.keyed, found.keyed_templates, w.delete(key=keyed)),
    ):
        frame = w.frame(payload)
        allowed = bound(len(schema.columns), len(frame))
        work = Work(allowed)
        made = work.of(work.counting(function), frame, _LSN, _SEQ, *(t + b"%d%d%d" for t in templates))
        work.bounded()
        if made is None:
            work = Work(long_bound(len(schema.columns), len(frame)))
            work.of(_long_way, encoder, payload)
            work.bounded()
    work = Work(bound(len(schema.columns), len(line)))
    made = work.of(work.counting(found.line), line, *found.row_templates)
    work.bounded()
    if made is None:
        work = Work(long_bound(len(schema.columns), len(line)))
        work.of(encoder.snapshot_line, line)
        work.bounded()


def _copied(value: bytes | None) -> bytes:
    """As COPY writes it."""
    if value is None:
        return b"\\N"
    return value.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\t", b"\\t")


def _long_way(encoder: TableEncoder, payload: bytes) -> None:
    message: Any = decode(payload)
    for values in (getattr(message, "old", None), getattr(message, "new", None)):
        if values is not None:
            encoder.key(values)
            encoder.row(values)


def wide(kinds: Sequence[str], columns: int, encoding: Encoding = "readable") -> TableSchema:
    """A key, and columns of these kinds in turn."""
    turns = [w.column("", kind, typmod=12 if kind == "bit" else -1) for kind in kinds]
    others = (replace(turns[i % len(turns)], name=f"c{i}") for i in range(columns - 1))
    return w.table(w.column("id", "text", 0), *others, encoding=encoding)


def row(schema: TableSchema, nulls: Nulls, seed: int) -> list[bytes | None]:
    """Values of which text is what is hard to tell from a null's marker and from a value's head."""
    rng = random.Random(seed)
    found: list[bytes | None] = []
    for i, column in enumerate(schema.columns):
        if column.key_position is not None:
            found.append(b"%dn" % seed)
        elif nulls(i):
            found.append(None)
        else:
            found.append(rng.choice(_TRICKY) if column.kind in ("text", "other", "enum") else _USUAL[column.kind])
    return found


_USUAL: dict[str, bytes] = {
    "int4": b"10", "int8": b"10", "float8": b"1.5e+20", "numeric": b"1.10", "bool": b"t", "jsonb": b'{"n": null}',
    "uuid": b"0b8c2b2e-1b7a-4d7e-9a55-000000000000", "date": b"2026-11-20", "time": b"10:11:12.5",
    "timestamp": b"2026-11-20 10:11:12", "timestamptz": b"2026-11-20 10:11:12.5+00", "interval": b"P1DT2H",
    "bytea": b"\\x00ff", "bit": b"101", "point": b"(1,2)", "money": b"$1.00",
}  # fmt: skip
KINDS = ("text", "other", "enum", *_USUAL)
