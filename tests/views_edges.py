"""Values at the edges of every type, and the expressions of a view that are tried on them."""

from __future__ import annotations

import random

COLUMNS: dict[str, tuple[str, tuple[str | None, ...]]] = {
    "s": ("int2", ("0", "1", "-1", "32767", "-32768", "7", None)),
    "i": ("int4", ("0", "1", "-1", "2147483647", "-2147483648", "3", "-7", "10", None)),
    "k": ("int4", ("0", "1", "-1", "2", "3", "-2", "5", "-5", "20", None)),
    "l": ("int8", ("0", "1", "-1", "9223372036854775807", "-9223372036854775808", "1000000007", None)),
    "n": (
        "numeric",
        ("0", "0.00", "1", "1.0", "-1.5", "2.5", "0.5", "-0.5", "1e-20", "123456789012345678901234567890.123456789",
         "1e30", "0.000000000000000000000000000001", "99999.995", "10000", "9999", "-10000.0001", "NaN", "Infinity",
         "-Infinity", None),
    ),
    "m": ("numeric", ("1", "3", "7.00", "-0.3", "0", "1e-10", "1e20", "10000", "0.0001", "NaN", "Infinity", None)),
    "p": ("numeric(10,2)", ("0.00", "1.50", "-1.50", "99999999.99", "0.05", "2.50", "NaN", None)),
    "f": (
        "float8",
        ("0", "-0", "1", "-1.5", "0.1", "1e15", "1e16", "1e23", "123456789012345678",
         "1e-5", "0.0001", "2.5", "3.5", "1e300",
         "-1e300", "5e-324", "NaN", "Infinity", "-Infinity", None),
    ),
    "g": ("float8", ("0", "2", "-2", "0.5", "3", "1e10", "NaN", "Infinity", "-1", None)),
    "t": (
        "text",
        ("", "a", "abc", "Abc Def", "  pad ", "äÖß", "a%b_c", "a\\b", "a,b,,c", "x" * 12, "it''s", "日本語", "😀a",
         '"quoted"', "tab\there", "line\nbreak",
         "e\u0301", "\u0130i", "{\"a\": 1}", "12", "\u00a0", None),
    ),
    "v": ("text", ("", "a", "b", ",", " ", "ab", "c", "%", "\\", "_b", "a%", "\\%", "a\\", "ß", "A_C", "%b%",
                   "Abc", None)),
    "c": ("char(5)", ("", "a", "ab  ", "abcde", " x", "ä", None)),
    "h": ("char(3)", ("a", "ab", "abc", " x", None)),
    "w": ("varchar(6)", ("", "a", "ab  ", "abcdef", " x", None)),
    "d": (
        "date",
        ("2024-02-29", "2000-01-01", "1999-12-31", "1900-03-01", "0001-01-01", "0001-12-31 BC", "4713-01-01 BC",
         "0100-02-28 BC", "9999-12-31", "20240-06-05", "infinity", "-infinity", "2021-01-03", "2020-12-31", None),
    ),
    "q": ("date", ("2024-03-31", "1970-01-01", "0044-03-15 BC", "2023-01-01", None)),
    "ts": (
        "timestamp",
        ("2024-02-29 23:59:59.999999", "2000-01-01 00:00:00", "1969-12-31 23:59:59.5", "0001-01-01 00:00:00",
         "0001-12-31 12:00:00 BC", "0044-03-15 06:07:08.9 BC", "12345-06-07 08:09:10.000001", "infinity", "-infinity",
         "2021-01-03 10:20:30.123", "2024-01-31 00:00:00", None),
    ),
    "us": ("timestamp", ("2024-03-01 00:00:00", "1970-01-01 00:00:01", "2000-06-15 13:14:15.16", None)),
    "tz": (
        "timestamptz",
        ("2024-02-29 23:59:59.999999+00", "2000-01-01 00:00:00+00", "1969-12-31 23:59:59.5+00",
         "0001-12-31 12:00:00+00 BC", "infinity", "-infinity", "2021-01-03 10:20:30.123+05:30",
         "2024-03-31 01:30:00+00", None),
    ),
    "uz": ("timestamptz", ("2024-03-01 00:00:00+00", "1970-01-01 00:00:01+00", None)),
    "ti": ("time", ("00:00:00", "23:59:59.999999", "24:00:00", "12:30:00.5", None)),
    "iv": (
        "interval",
        ("0", "1 year 2 mons -3 days", "-1 mon", "1 day -00:00:00.5", "25:00:00", "-1 year -2 mons +3 days -04:05:06.7",
         "1 mon", "13 mons", "1000 years", "30 days", "24:00:00", "00:00:00.000001", "-178000000 years", None),
    ),
    "jv": ("interval", ("1 mon", "-1 day", "720:00:00", "1 day", "00:00:01.5", "-1 mon +30 days", None)),
    "u": ("uuid", ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", None)),
    "b": ("bool", ("t", "f", None)),
    "o": ("bool", ("t", "f", None)),
    "e": ("mood", ("zzz", "aaa", "mmm", None)),
    "j": (
        "json",
        ('{"a": 1, "b":[1,2.0,1e2],"a" : 2}', "[1, null, {}]", "null", '"te\\u00e4xt"', "1.50", "-0.0", "1E+3",
         '{"k":{"x":[10,20,{"y":"z"}]},"n":null,"t":true}', " [ ] ", '"\\ud83d\\ude00\\/"', '{"bb":1,"a":{"":2}}',
         "12345678901234567890.10", "true", "1e-7", '{"a": {"k": 1,  "k":[2 , "\\u00e4"]}, "b" : [1 ,{ }, "x\\"]"] }',
         '{"a":"\\ud800"}', '{"b":["\\u0000", 1]}', None),
    ),
    "jb": (
        "jsonb",
        ('{"a": 1, "b":[1,2.0,1e2],"a" : 2}', "[1, null, {}]", "null", '"te\\u00e4xt"', "1.50", "-0.0", "1E+3",
         '{"k":{"x":[10,20,{"y":"z"}]},"n":null,"t":true}', "[]", '"a"', '["a","b"]', '{"bb":1,"a":{"":2}}',
         "12345678901234567890.10", "true", "1e-7", "1.5", '{"a":1.0}', '{"a":1}', '"\\u007f\\u2028\\u0001"', None),
    ),
    "kb": ("jsonb", ("1.5", "0", "[]", "{}", "null", '{"a": 1}', '{"b": [1.00, 2, 100], "a": 2}', None)),
    "y": ("bytea", ("", "\\x00ff", "\\x616263", None)),
    "x": ("int[]", ("{}", "{1,2,NULL}", "{{1,2},{3,4}}", "{0}", None)),
    "z": ("text[]", ("{}", '{a,"b,c",NULL,"q\\"x"}', '{""}', "{NULL}", None)),
    "nn": ("numeric[]", ("{}", "{1.50,NaN,-0.0}", "{1e30}", None)),
    "dd": ("date[]", ("{2024-01-01,infinity}", "{}", None)),
    "ff": ("float8[]", ("{1,NaN,1e20,-0}", None)),
    "bb": ("bool[]", ("{t,f,NULL}", None)),
    "tt": ("timestamptz[]", ("{2024-01-01 00:00:00+00,infinity}", None)),
    "ii": ("interval[]", ("{1 mon,-1 day}", None)),
    "ee": ("mood[]", ("{aaa,zzz}", None)),
    "r4": (
        "float4",
        ("0", "-0", "7", "0.1", "-1.5", "123456.5", "999999.9", "1e6", "1234567", "16777216", "1e-4", "1e-5", "1e15",
         "1e16", "1e23", "3.4028235e38", "1.1754944e-38", "1e-45", "8.5070592e37", "33554432", "NaN", "Infinity",
         "-Infinity", None),
    ),
    "oi": ("oid", ("0", "42", "4294967295", None)),
    "rr": ("float4[]", ("{0.1,NULL,1e6,NaN,-0}", "{}", None)),
    "os": ("oid[]", ("{1,NULL,4294967295}", None)),
    "jj": ("json[]", ('{"{\\"a\\" : 1.0}",NULL,"null","[1 , 2]"}', "{}", None)),
    "kk": ("jsonb[]", ('{"{\\"bb\\":1.0,\\"a\\":2}",NULL,"null"}', None)),
    "yy": ("bytea[]", ('{"\\\\x00ff",NULL}', None)),
    "xb": ("int[]", ("[0:1]={1,2}", "[-1:0][2:3]={{1,2},{3,NULL}}", None)),
    "ir": ("int4range", ("[1,10)", "empty", "(,5)", None)),
    "mr": ("int4multirange", ("{[1,3),[5,7)}", "{}", None)),
    "tq": ("tsquery", ("'a' & !'b c'", None)),
    "ls": ("pg_lsn[]", ("{0/1,NULL}", None)),
    "ip": ("inet", ("10.0.0.1/8", "::1", None)),
    "dn": ("cents", ("1.5", "-0.05", "NaN", None)),
    "de": ("ints", ("{1,NULL}", "{}", None)),
}  # fmt: skip
SETUP = (
    "create type mood as enum ('zzz', 'mmm', 'aaa')",
    "create domain cents as numeric(6, 2)",
    "create domain ints as int[]",
    "create table edge (id int primary key, " + ", ".join(f"{n} {kind}" for n, (kind, _) in COLUMNS.items()) + ")",
)


def rows(count: int, seed: int) -> list[tuple[object, ...]]:
    """Rows of ``edge``: each column goes through its values, in an order of its own."""
    chance = random.Random(seed)
    columns = []
    for _, values in COLUMNS.values():
        column: list[str | None] = []
        while len(column) < count:
            column += chance.sample(values, len(values))
        columns.append(column[:count])
    return [(number, *values) for number, *values in zip(range(count), *columns, strict=True)]


_NUMBERS = ("s", "i", "k", "l", "n", "m", "p", "f", "g")
_PAIRS = (
    "i k", "s i", "i l", "s s", "l k", "n m", "p n", "m n", "n i", "i n", "l n", "p p", "f g", "g f", "f i", "n f",
    "l g",
)  # fmt: skip
_COMPARED = (
    "i k", "i l", "n m", "p n", "n i", "f g", "f n", "f i", "t v", "c h", "c t", "h c", "d q", "d ts", "d tz", "ts us",
    "tz uz", "ti ti", "u u", "b o", "y y", "ts tz", "w t",
)  # fmt: skip


def _of_pairs(pairs: tuple[str, ...], *forms: str) -> list[str]:
    return [form.format(*pair.split()) for pair in pairs for form in forms]


def _each(names: str, *forms: str) -> list[str]:
    return [form.format(name) for name in names.split() for form in forms]


_EVERY = " ".join(COLUMNS)
_C = ' collate "C"'
EXPRESSIONS: tuple[str, ...] = (
    *_each(_EVERY, "{0}", "to_json({0})", "to_jsonb({0})", "json_build_object('k', {0}, 'l', {0})",
           "jsonb_build_object('k', {0}, 'bb', {0}, 'a', {0})", "{0} is null", "coalesce({0}, {0})",
           "json_build_array({0})", "jsonb_build_array({0})"),
    *_each("r4 oi", "{0}::text", "concat({0}, '!')", "{0} || '!'", "array[{0}, {0}]", "json_build_object({0}, {0})"),
    *_each("s i k l n m p f g t c h w d ts tz ti iv u b e j jb y", "{0}::text", "array[{0}, {0}]", "{0}::varchar(3)",
           "{0}::char(4)", "to_jsonb(array[{0}])", "to_json(array[{0}, null])"),
    *_each("s i k l n m p f g", "-{0}", "+{0}", "abs({0})", "{0}::int2", "{0}::int4", "{0}::int8", "{0}::numeric",
           "{0}::float8", "{0}::numeric(8,3)", "{0}::numeric(4,-2)", "{0}::numeric(3,5)", "round({0})", "trunc({0})",
           "ceil({0})", "floor({0})", "sign({0})", "{0}::numeric::text"),
    *_each("s i l n m p", "round({0}, k)", "trunc({0}, k)", "round({0}, 2)"),
    *_of_pairs(_PAIRS, "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / {1}", "{0} % {1}", "mod({0}, {1})",
               "greatest({0}, {1})", "least({0}, {1})"),
    *_of_pairs(("f g", "g f", "i k", "n m"), "power({0}, {1})"),
    *_of_pairs(_COMPARED, "{0} = {1}", "{0} <> {1}", "{0} is distinct from {1}", "{0} is not distinct from {1}",
               "nullif({0}, {1})", "{0} in ({1}, {0})", "{0} not in ({1})", "coalesce({0}, {1})",
               "case when {0} = {1} then {0} else {1} end"),
    *_of_pairs(tuple(p for p in _COMPARED if p[0] not in "tchw"), "{0} < {1}", "{0} >= {1}", "greatest({0}, {1})",
               "{0} between {1} and {0}", "{0} not between {1} and {1}"),
    *_of_pairs(("t v", "c h", "c t", "h c", "w t"), f"{{0}}{_C} < {{1}}{_C}", f"{{0}}{_C} >= {{1}}{_C}",
               f"greatest({{0}}{_C}, {{1}}{_C})", f"least({{0}}{_C}, {{1}}{_C})"),
    *_of_pairs(("iv jv", "jb kb"), "{0} = {1}", "{0} <> {1}", "{0} in ({1})", "nullif({0}, {1})"),
    "e = 'aaa'", "e in ('aaa', 'zzz')", "e::text = 'aaa'", "u = '00000000-0000-0000-0000-000000000000'",
    *_each("t c w v", "length({0})", "char_length({0})", "octet_length({0})", "reverse({0})", "md5({0})", "ascii({0})",
           f"lower({{0}}{_C})", f"upper({{0}}{_C})", f"initcap({{0}}{_C})", "btrim({0})", "ltrim({0})", "rtrim({0})",
           "trim(both 'a ' from {0})", "btrim({0}, v)", "ltrim({0}, v)", "rtrim({0}, v)", "left({0}, k)",
           "right({0}, k)", "substr({0}, k)", "substring({0} from k for 3)", "substr({0}, k, k)", "substr({0}, i, i)",
           "repeat({0}, k)", "replace({0}, v, 'zz')", "split_part({0}, v, k)", "lpad({0}, k, v)", "rpad({0}, k, v)",
           "lpad({0}, k)", "rpad({0}, k)", "lpad({0}, i % 30, 'xy')", "strpos({0}, v)", "position(v in {0})",
           "starts_with({0}, v)", "{0} like v", "{0} not like v", f"{{0}}{_C} ilike v", "{0} like 'a%'",
           "{0} like '%_b%'", "{0} || v", "{0} || k", "{0} || n", "{0} || '-'", "concat({0}, k, b, n, d)",
           "concat_ws(v, {0}, k, null, f)", "split_part({0}, ',', k)", "{0} || {0}"),
    *_each("t c w", "{0}::int4", "{0}::bool", "{0}::date", "{0}::numeric", "{0}::json", "{0}::jsonb"),
    *_each("d ts tz", "date_trunc('day', {0})", "date_trunc('week', {0})", "date_trunc('month', {0})",
           "date_trunc('quarter', {0})", "date_trunc('year', {0})", "date_trunc('hour', {0})",
           "date_trunc('minute', {0})", "date_trunc('second', {0})", "date_trunc('milliseconds', {0})",
           *(f"extract({field} from {{0}})" for field in ("year", "month", "day", "quarter", "week", "isoyear", "dow",
                                                          "isodow", "doy", "epoch")),
           "date_part('year', {0})", "date_part('epoch', {0})", "{0}::date", "{0}::timestamp", "{0}::timestamptz",
           "{0} + iv", "{0} - iv", "{0} + jv", "{0} - interval '1 mon 1 day 02:03:04.5'", "{0} + interval '1 year'",
           "date_bin('15 minutes', {0}, '2000-01-01')", "date_bin(jv, {0}, '2024-01-01 00:00:07')",
           "{0} = '2024-02-29'", "{0} > '2000-01-01'", "date_bin('7 days', {0}, {0})",
           "date({0})", "{0} at time zone 'UTC'"),
    *_each("ts tz", *(f"extract({field} from {{0}})" for field in ("hour", "minute", "second")),
           "date_part('second', {0})", "{0}::time", "{0} at time zone 'UTC'", "{0}::date::text", "date({0})"),
    "d + k", "d - k", "k + d", "d - q", "d + i", "date(d)", "ts - us", "tz - uz", "ts - d", "d - ts", "iv + jv",
    "iv - jv", "jv + jv", "us - ts", "iv + us", "make_date(2024, k, 1)", "make_date(k, 2, 3)", "make_date(2023, 2, k)",
    "ts - tz", "-iv", "iv::text", "iv || ''", "extract(epoch from d)", "d = d + 0",
    *_each("j jb", "{0} -> 'a'", "{0} ->> 'a'", "{0} -> 'k'", "{0} -> 0", "{0} ->> 0", "{0} -> -1", "{0} ->> -1",
           "{0} -> 'k' -> 'x' -> 1", "{0} -> 'k' -> 'x' ->> 2", "{0} -> 'b'", "{0} ->> 'b'", "{0} -> 'b' ->> 2",
           "{0} ->> 'n'", "{0} -> 'n'", "{0} -> v", "{0} ->> k", "{0} -> '0'", "{0}::json", "{0}::jsonb", "{0}::text",
           "{0} -> 'a' -> ''"),
    *_each("j jb", "{0} #> '{{k,x,1}}'", "{0} #>> '{{k, x ,1}}'", "{0} #> '{{}}'", "{0} #>> '{{}}'", "{0} #> '{{0}}'",
           "{0} #>> '{{-1}}'", "{0} #> '{{k,null}}'", "{0} #>> '{{\"k\",x}}'", "{0} #> '{{a}}' -> 0",
           "{0} #>> '{{b,2}}'"),
    *_each("s n p f t c w d ts tz ti iv u b e", "json_build_object(coalesce({0}, {0}, null), 1)",
           "jsonb_build_object({0}, {0})"),
    "json_array_length(j)", "jsonb_array_length(jb)", "json_typeof(j)", "jsonb_typeof(jb)", "jb ? 'a'", "jb ? v",
    "jb -> 'a' = '2'", "(jb ->> 'a')::int4", "(j ->> 'a')::numeric", "jb = jb",
    *_each("x z nn dd ff bb tt ii ee", "cardinality({0})", "array_length({0}, 1)", "to_json({0})", "array_to_json({0})",
           "jsonb_build_array({0}, {0})"),
    "b and o", "b or o", "not b", "b is true", "b is not true", "b is false", "b is unknown", "b is not unknown",
    "b is not false", "b::int4", "k::bool", "b = o", "b < o", "case when b then 1 when o then 2 end",
    "case k when 1 then 'one' when 2 then 'two' else t end", "(b and o) is null", "k in (1, null, 2)",
    "k not in (1, null)", "k = any (array[1, 2])", "case when k <> 0 then i / k end", "k = 1 or i / k > 1",
    "coalesce(i, n, 0)", "coalesce(d, ts)", "coalesce(null, c, 'x')", "greatest(d, q, null)", "coalesce(t, 'x') || c",
    "to_json('x'::text)", "json_build_object('a', null, 'b', json_build_array())", "jsonb_build_object()",
    "jsonb_build_object('b', json_build_object('z', n, 'a', f, 'z', k), 'a', jb)", "jsonb_build_object(t, n, v, f)",
    "json_build_object(t, n)", "json_build_object(k, t)", "json_build_object(v, v, t, t)", "jsonb_build_object(k, j)",
    "to_jsonb(j) = jb", "to_jsonb(n)", "to_jsonb(n) = to_jsonb(m)", "cast(n as numeric(6,1))", "n::numeric(20,4)::text",
    "'2024-01-31'::date + iv", "'1.50'::numeric * k", "1.10 * k", "7 / 2", "-7 / 2", "7 % -3", "1.0 / 3", "k / 2.0",
    "2 ^ 3", "9223372036854775807 + k", "i * 2", "s * 2", "s + 1", "k * 1000000 * 1000000", "l * l", "1e3", "1e400 * n",
    "n / 3 * 3", "(i + k) / 2.0", "round(n * 1.19, 2)", "round(p / 3, 4)", "round(f::numeric, 3)",
)  # fmt: skip
"""What a view may compute of a row of ``edge``."""
REFUSED = frozenset({"power(n, m)", "2 ^ 3"})
"""What Postgres computes and a view refuses."""
