"""A column of every type, texts that Postgres takes for it, and the way back from our JSON into Postgres."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Make = Callable[[random.Random], str]
_WORDS = (
    "a",
    "Z",
    " ",
    "é",
    "😀",
    "\\",
    '"',
    "'",
    "\n",
    "\t",
    "\r",
    "\b",
    "\x1f",
    "\x7f",
    ",",
    "{",
    "}",
    "0",
    "null",
    "%",
)


@dataclass(frozen=True, slots=True)
class Typed:
    """``back``: SQL that makes the value from ``v``, our JSON's text of it; empty: only compared as text, between the
    snapshot, the stream and the store. ``same``: SQL of two equal values, ``a`` and ``b``, as text unless given."""

    name: str
    type: str
    make: Make
    back: str = ""
    same: str = "a::text is not distinct from b::text"


def _pick(*choices: str) -> Make:
    return lambda rng: rng.choice(choices)


def _either(*makes: Make) -> Make:
    return lambda rng: rng.choice(makes)(rng)


def _int(bits: int, *, signed: bool = True) -> Make:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return lambda rng: str(
        rng.choice((0, 1, low, high, rng.randint(low, high), rng.getrandbits(rng.randint(1, bits - 1))))
    )


def _float(rng: random.Random) -> str:
    wide = rng.uniform(-1, 1) * 10.0 ** rng.randint(-30, 30)
    near = (repr(rng.uniform(-1e6, 1e6)), str(rng.randint(-99, 99)))
    return rng.choice(("0", "-0", "NaN", "Infinity", "-Infinity", repr(wide), *near))


def _digits(rng: random.Random, most: int) -> str:
    return "".join(rng.choices("0123456789", k=rng.randint(1, most)))


def _numeric(whole: int, fraction: int) -> Make:
    def make(rng: random.Random) -> str:
        sign, point = rng.choice(("", "-")), f".{_digits(rng, fraction)}" if fraction and rng.random() < 0.7 else ""
        return sign + _digits(rng, whole) + point

    return make


def _text(rng: random.Random) -> str:
    return "".join(rng.choices(_WORDS, k=rng.randint(0, 12)))


def _name(rng: random.Random) -> str:
    return "".join(rng.choices("abcXYZ_ é", k=rng.randint(1, 20)))


def _json(rng: random.Random, depth: int = 0) -> object:
    kind = rng.randrange(5 if depth > 2 else 7)
    if kind == 5:
        return [_json(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    if kind == 6:
        return {_text(rng): _json(rng, depth + 1) for _ in range(rng.randint(0, 3))}
    return (None, True, rng.randint(-(10**20), 10**20), rng.uniform(-1e9, 1e9), _text(rng))[kind]


def _json_text(rng: random.Random) -> str:
    return json.dumps(_json(rng), ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, 1)))


def _date(rng: random.Random) -> str:
    year = rng.choice((rng.randint(1, 9999), rng.randint(1900, 2100), rng.randint(1, 4713), rng.randint(10000, 200000)))
    day = f"{year:04d}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
    return f"{day} BC" if year < 4713 and rng.random() < 0.1 else day


def _clock(rng: random.Random, *, most: int = 23) -> str:
    fraction = rng.choice(("", ".5", ".123", ".000001", ".999999", f".{rng.randint(0, 999999):06d}"))
    return f"{rng.randint(0, most):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 58):02d}{fraction}"


def _stamp(rng: random.Random) -> str:
    day, _, bc = _date(rng).partition(" ")
    return f"{day} {_clock(rng)}{' BC' if bc else ''}"


def _zoned(rng: random.Random) -> str:
    stamp = _stamp(rng)
    zone = f"{rng.choice('+-')}{rng.randint(0, 15):02d}:{rng.choice(('00', '30'))}"
    return f"{stamp.removesuffix(' BC')}{zone} BC" if stamp.endswith(" BC") else stamp + zone


def _clock_zoned(rng: random.Random) -> str:
    return f"{_clock(rng)}{rng.choice('+-')}{rng.randint(0, 15):02d}"


def _interval(rng: random.Random) -> str:
    parts = [f"{rng.randint(-9999, 9999)} {unit}" for unit in ("years", "months", "days") if rng.random() < 0.5]
    return " ".join([*parts, f"{rng.choice(('', '-'))}{_clock(rng)}"])


def _bytes(rng: random.Random) -> str:
    return "\\x" + rng.randbytes(rng.randint(0, 40)).hex()


def _bits(most: int, *, exactly: bool = False) -> Make:
    return lambda rng: "".join(rng.choices("01", k=most if exactly else rng.randint(0, most)))


def _uuid(rng: random.Random) -> str:
    raw = rng.randbytes(16).hex()
    return f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"


def _inet(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return ":".join(f"{rng.getrandbits(16):x}" for _ in range(8)) + rng.choice(("", "/64"))
    return ".".join(str(rng.randrange(256)) for _ in range(4)) + rng.choice(("", "/32", "/8"))


def _mac(octets: int) -> Make:
    return lambda rng: ":".join(f"{rng.randrange(256):02x}" for _ in range(octets))


def _range(make: Callable[[random.Random], str]) -> Make:
    def found(rng: random.Random) -> str:
        low, high = sorted((make(rng), make(rng)))
        return rng.choice(("empty", f"[{low},{high}]", f"({low},)", f"(,{high})", "(,)"))

    return found


def _ordered(rng: random.Random) -> str:
    return f"{rng.randint(10000, 99999)}"


def _plain_date(rng: random.Random) -> str:
    return f"{rng.randint(1900, 2100)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def _plain_stamp(rng: random.Random) -> str:
    return f'"{_plain_date(rng)} {_clock(rng)}"'


def _number(rng: random.Random) -> str:
    return repr(round(rng.uniform(-1000, 1000), rng.randint(0, 6)))


def _points(count: int, form: str) -> Make:
    return lambda rng: form.format(*(f"({_number(rng)},{_number(rng)})" for _ in range(count)))


def _array(make: Make, *, depths: Sequence[int] = (1, 1, 1, 2)) -> Make:
    def element(rng: random.Random) -> str:
        if rng.random() < 0.15:
            return "NULL"
        return '"' + make(rng).replace("\\", "\\\\").replace('"', '\\"') + '"'

    def found(rng: random.Random) -> str:
        count = rng.randint(0, 4)
        if rng.choice(depths) == 1 or not count:
            return "{" + ",".join(element(rng) for _ in range(count)) + "}"
        return "{" + ",".join("{" + ",".join(element(rng) for _ in range(count)) + "}" for _ in range(2)) + "}"

    return found


def _day(name: str, text: str = "rtrim(v, 'Z')") -> str:
    """ISO's year 0 is 1 BC; years before it and beyond 9999 Postgres does not read as ISO has them."""
    bc = f"('0001' || substr({text}, 5) || ' BC')::{name}"
    return f"case when v ~ '^0000-' then {bc} when v ~ '^[0-9]{{4}}-|infinity' then {text}::{name} else a end"


_FLAT = (
    "case when v is null then null when v ~ '^\\[ *\\[' then a else (select coalesce(array_agg(e order by n), '{}')"
    " from jsonb_array_elements_text(v::jsonb) with ordinality j(e, n))::%s end"
)
_INFINITE = _pick("infinity", "-infinity")
_TRUTH = _pick("t", "f")
_STRANGE = _pick("NaN", "Infinity", "-Infinity", "1e-20", "1e30")
_UTC = "a at time zone 'UTC' is not distinct from b"

TYPES: Sequence[Typed] = (
    Typed("bo", "bool", _TRUTH, "v::bool"),
    Typed("i2", "int2", _int(16), "v::int2"),
    Typed("i4", "int4", _int(32), "v::int4"),
    Typed("i8", "int8", _int(64), "v::int8"),
    Typed("oi", "oid", _int(32, signed=False), "v::oid"),
    Typed("f4", "float4", _float, "v::float4", "a = b or a is null and b is null"),
    Typed("f8", "float8", _float, "v::float8", "a = b or a is null and b is null"),
    Typed("nu", "numeric", _either(_numeric(60, 60), _numeric(5, 3), _STRANGE), "v::numeric"),
    Typed("n2", "numeric(12,2)", _numeric(9, 2), "v::numeric"),
    Typed("nn", "numeric(6,-3)", _numeric(8, 0), "v::numeric", "a = b or a is null and b is null"),
    Typed("ns", "numeric(3,6)", _pick("0", "0.000123", "-0.000999"), "v::numeric"),
    Typed("mo", "money", _numeric(15, 2), "v::money"),
    Typed("te", "text", _text, "v"),
    Typed("vc", "varchar(200)", _text, "v"),
    Typed("bp", "char(90)", _text, "v::char(90)"),
    Typed("na", "name", _name, "v::name"),
    Typed("ch", '"char"', _pick("a", "Z", "7"), 'v::"char"'),
    Typed("by", "bytea", _bytes, "decode(v, 'base64')"),
    Typed("uu", "uuid", _uuid, "v::uuid"),
    Typed("js", "json", _json_text, "v::json"),
    Typed("jb", "jsonb", _json_text, "v::jsonb"),
    Typed("ip", "inet", _inet, "v::inet"),
    Typed("ci", "cidr", _pick("10.0.0.0/8", "::/0", "192.168.1.0/24"), "v::cidr"),
    Typed("m6", "macaddr", _mac(6), "v::macaddr"),
    Typed("m8", "macaddr8", _mac(8), "v::macaddr8"),
    Typed("b1", "bit(1)", _bits(1, exactly=True), "(v::bool::int)::bit(1)"),
    Typed("b9", "bit(9)", _bits(9, exactly=True)),
    Typed("vb", "varbit", _bits(40)),
    Typed("da", "date", _either(_date, _INFINITE), _day("date")),
    Typed("ti", "time", _either(_clock, _pick("24:00:00", "00:00:00")), "rtrim(v, 'Z')::time"),
    Typed("t3", "time(3)", _clock, "rtrim(v, 'Z')::time(3)"),
    Typed("tz", "timetz", _clock_zoned, "v::timetz", _UTC),
    Typed("ts", "timestamp", _either(_stamp, _INFINITE), _day("timestamp")),
    Typed("s3", "timestamp(3)", _stamp, _day("timestamp(3)")),
    Typed("sz", "timestamptz", _either(_zoned, _INFINITE), _day("timestamptz", "v")),
    Typed("z0", "timestamptz(0)", _zoned, _day("timestamptz(0)", "v")),
    Typed("iv", "interval", _interval, "v::interval"),
    Typed("ir", "int4range", _range(_ordered), "v::int4range"),
    Typed("nr", "numrange", _range(_ordered), "v::numrange"),
    Typed("dr", "daterange", _range(_plain_date), "v::daterange"),
    Typed("tr", "tsrange", _range(_plain_stamp), "v::tsrange"),
    Typed("tv", "tsvector", _pick("'a':1 'b':2A", "", "'it''s':3"), "v::tsvector"),
    Typed("en", "mood", _pick("sad", "it's ok", "ö"), "v::mood"),
    Typed("dm", "price", _numeric(6, 2), "v::price"),
    Typed("co", "pair", _pick('(1,"x,""y")', "(,)", "(5,é)"), "v::pair"),
    Typed("ls", "pg_lsn", _pick("0/0", "16/B374D848"), "v::pg_lsn"),
    Typed("mr", "int4multirange", _pick("{}", "{[1,3),[5,9)}"), "v::int4multirange"),
    Typed(
        "po", "point", _points(1, "{}"), "point((v::jsonb->>'x')::float8, (v::jsonb->>'y')::float8)",
        # jsonb, through which it comes back, knows no minus zero.
        "a ~= b or a is null and b is null",
    ),
    Typed("bx", "box", _points(2, "{},{}")),
    Typed("sg", "lseg", _points(2, "[{},{}]")),
    Typed("pa", "path", _either(_points(3, "[{},{},{}]"), _points(2, "({},{})"))),
    Typed("pg", "polygon", _points(3, "({},{},{})")),
    Typed("cr", "circle", lambda rng: f"<({_number(rng)},{_number(rng)}),{abs(float(_number(rng)))!r}>"),
    Typed("ln", "line", lambda rng: f"{{{_number(rng)},1,{_number(rng)}}}"),
    Typed("ai", "int4[]", _array(_int(32)), _FLAT % "int4[]"),
    Typed("at", "text[]", _array(_text), _FLAT % "text[]"),
    Typed("an", "numeric[]", _array(_numeric(9, 4)), _FLAT % "numeric[]"),
    Typed("ab", "bool[]", _array(_TRUTH), _FLAT % "bool[]"),
    Typed("au", "uuid[]", _array(_uuid), _FLAT % "uuid[]"),
    Typed("aj", "jsonb[]", _array(_json_text), _FLAT % "jsonb[]"),
    Typed("ad", "date[]", _array(_date)),
    Typed("az", "timestamptz[]", _array(_zoned)),
    Typed("ay", "bytea[]", _array(_bytes)),
    Typed("ae", "mood[]", _array(_pick("sad", "ö")), _FLAT % "mood[]"),
)  # fmt: skip

SETUP = (
    "create type mood as enum ('sad', 'it''s ok', 'ö')",
    "create domain price as numeric(10, 2)",
    "create type pair as (a int, b text)",
    f"create table every (id int primary key, {', '.join(f'{t.name} {t.type}' for t in TYPES)})",
)


def rows(rng: random.Random, count: int) -> list[list[object]]:
    """Rows to be given to Postgres as text: the key, then a value of each type, some null."""
    return [[n, *(None if rng.random() < 0.05 else typed.make(rng) for typed in TYPES)] for n in range(count)]


def differences() -> str:
    """SQL over ``every`` and ``read`` (id, doc jsonb): id and column of each value that does not come back."""
    checks = [
        f"select id, '{t.name}' as name from (select id, a, {t.back} as b from (select e.id, e.{t.name} as a,"
        f" r.doc->>'{t.name}' as v from every e join read r using (id)) j offset 0) x where not ({t.same})"
        for t in TYPES
        if t.back
    ]
    return " union all ".join(checks)
