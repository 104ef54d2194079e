"""Rows that no server sends: the functions made for a table say what the long way says, or leave it to it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from cdc.process.errors import DecodeError
from cdc.record.schema import TableSchema
from cdc.settings.mask_rules import NO_MASKS
from cdc.wire.envelope import Stamp
from connectors.postgres.assembly.routes import Route, StreamTable
from connectors.postgres.encoding.encoder import TableEncoder, compile_table
from connectors.postgres.protocol.messages import Delete, Insert, Relation, Tuple, Update
from connectors.postgres.protocol.pgoutput import decode
from tests.faults.counted import KINDS, MOST, check, row, wide
from tests.faults.experiments.decoder import changed
from tests.faults.lab import Found
from tests.faults.recorded import fields, shapes, streams

_HEAD = b"w" + bytes(24)
_STAMP = Stamp(epoch=1, commit_lsn=16, committed_us=1, now_ns=1, xid=7)
_LSN, _SEQ = 11, 5
_CHARACTERS = b"0123456789+-.:eEN aIT\"\\\0\x1f\x7f\x80\xc3\xa9\xff{}[],'()<>/PYMDHSZ"


class Recorded(NamedTuple):
    """A row's message and the way that production would take with it."""

    message: bytes
    route: Route
    encoder: TableEncoder


def trial(seed: int) -> Mapping[str, int]:
    """One recorded row, cut short at each byte and changed in thousands of ways."""
    rng = random.Random(seed)
    _steps(rng)
    message, route, encoder = rng.choice(_rows())
    for length in range(len(message)):
        if _made(route, message[:length]) is not None:
            raise Found(f"a row was made from {message[:length].hex()}, cut short")
    tried = fast = 0
    for payload in (*_values(message, rng), *changed(message, rng)):
        if payload[:5] != message[:5]:
            continue
        tried += 1
        found = _made(route, payload)
        if found is not None:
            fast += 1
            if found != _long_way(route, encoder, payload):
                raise Found(f"{encoder.schema.table}: {payload.hex()} was made into {found!r}")
    return {"inputs": tried + len(message), "made the fast way": fast}


def _steps(rng: random.Random) -> None:
    """A row of any types, width and nulls takes no more steps than its bytes and columns allow (H94)."""
    schema = wide([rng.choice(KINDS) for _ in range(rng.randint(1, 8))], rng.choice((7, 24, 70, 200, 400, MOST)))
    share = rng.random()
    new, old = (row(schema, lambda i: rng.random() < share, rng.randint(1, 2)) for _ in "no")
    check(schema, new, old)


@cache
def _rows() -> tuple[Recorded, ...]:
    found = []
    for stream in streams():
        tables: dict[int, StreamTable | None] = {}
        for message in stream:
            decoded = decode(message)
            if isinstance(decoded, Relation):
                tables[decoded.relation_oid] = _table(decoded)
            elif isinstance(decoded, Insert | Update | Delete):
                table = tables.get(decoded.relation_oid)
                route = None if table is None else table.hot().get(message[:5])
                if route is not None and table is not None:
                    found.append(Recorded(message, route, table.encoder))
    return tuple(found)


@cache
def _table(relation: Relation) -> StreamTable | None:
    for schema in shapes():
        if _same(schema, relation):
            table = StreamTable(
                compile_table(schema, name="shop", database="app", masks=NO_MASKS), 0, 1, lambda key, count: 0
            )
            for route in table.routes:
                route.renew(_STAMP, 1)
            return table
    return None


def _same(schema: TableSchema, relation: Relation) -> bool:
    return (
        schema.oid == relation.relation_oid
        and schema.table == (relation.schema, relation.table)
        and schema.identity == relation.identity
        and [(c.name, c.type_oid) for c in schema.columns] == [(c.name, c.type_oid) for c in relation.columns]
    )


def _made(route: Route, payload: bytes) -> tuple[bytes, bytes] | None:
    """Kind and oid are looked at before, by whoever finds the route."""
    return route.encode(_HEAD + payload, _LSN, _SEQ, route.plain, route.loose)


def _long_way(route: Route, encoder: TableEncoder, payload: bytes) -> tuple[bytes, bytes] | None:
    """What the slow functions make of it; None where they refuse, and where only the assembler knows."""
    try:
        message = decode(payload)
        if isinstance(message, Insert | Update):
            new = _whole(message.new)
            old = None if isinstance(message, Insert) or message.old is None else _whole(message.old)
            before = b"null" if old is None else encoder.row(old)
            key, after = encoder.key(new), encoder.row(new)
            if isinstance(message, Update) and (message.key is not None or (old and encoder.key(old) != key)):
                return None
        elif isinstance(message, Delete):
            values = _whole(message.key or message.old or ())
            key, after = encoder.key(values), b"null"
            before = encoder.row(values) if message.old is not None else encoder.key_row(values)
        else:
            return None
    except (DecodeError, _Unchanged):
        return None
    return key, b'{"before":%b,"after":%b%b' % (before, after, route.tail % (_LSN, _LSN, _SEQ))


class _Unchanged(Exception):
    """A value is left out."""


def _whole(values: Tuple) -> list[bytes | None]:
    found = [value for value in values if value is None or isinstance(value, bytes)]
    if len(found) != len(values):
        raise _Unchanged
    return found


def _values(message: bytes, rng: random.Random) -> Iterator[bytes]:
    """Values with other characters in them, of the same and of another length, that length told rightly."""
    places = [piece for piece in fields(message) if piece.what == "value"]
    for at, width, _ in places if len(places) < 40 else rng.sample(places, 40):
        before, own, after = message[: at - 4], message[at : at + width], message[at + width :]
        for _ in range(60):
            text = bytearray(own)
            for _ in range(rng.randint(1, 3)):
                place = rng.randint(0, len(text))
                text[place : place + rng.randint(0, 2)] = bytes(rng.choices(_CHARACTERS, k=rng.randint(0, 2)))
            yield before + len(text).to_bytes(4) + text + after
