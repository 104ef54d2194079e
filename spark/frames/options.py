"""The options of a read, one by one: pure, and refused in one sentence where it makes no sense.

Spark shows options in plans, on its pages and in its event log. So none may be a secret: a secret is named by
``env:NAME``, ``file:PATH`` or ``command:PROGRAM``, and read where it is used.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import orjson

from cdc.process.errors import ConfigError, UsageError
from cdc.record.position import Lsn
from cdc.record.progress import Offsets
from cdc.settings.secret_reference import REFERENCES
from cdc.wire.records import BEGINNING

Retyped = Literal["fail", "cast"]
Edge = Literal["earliest", "latest"]
NAMES = {
    "config": "the pipeline's settings file, which then gives the three below",
    "bootstrap_servers": "Kafka's host:port, several by comma",
    "pipeline": "the pipeline's name, as in its settings",
    "kafka.*": "an option of librdkafka; a secret as env:NAME, file:PATH or command:PROGRAM",
    "table": "schema.table, for typed columns",
    "tables": "several by comma, * for any characters; with raw = true alone",
    "events": "a topic of events, raw, up to what is whole: outbox, history, or another program's",
    "shown_by": "of events that are joined with a history: the store whose claim a batch waits for. cdc stream sets it",
    "raw": "true: the records as they stand in the topics",
    "retyped": "fail or cast: what to do with a value of an older version that the column's type does not hold",
    "as_of": "an LSN: only what was committed before it",
    "starting_offsets": "earliest, latest, or JSON: topic, partition, offset",
    "ending_offsets": "JSON, of a batch; where the topics end unless given",
    "slots": "tasks that run at once; the driver's cores unless given",
    "max_offsets_per_trigger": "records of one batch of a stream at most",
}
"""Every option, with what it is. The manual's table is made from it."""
_SECRET = re.compile(r"(?i)password|passwd|secret|jaas|key\.pem|oauthbearer\.config|(^|[._])token$")
_LOGIN = re.compile(r"(?i)://[^/\s]*:[^/\s]*@|password\s*=")
_CLIENT = "kafka."


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameOptions:
    """The options of one read. ``client``: options of librdkafka as text, ``secrets``: those to be read by reference.

    ``shown_by``: see :class:`spark.frames.history_watermarks.KeptHistory`. ``slots``: 0 for the cores of the driver.
    ``max_offsets``: 0 for no limit. ``ending`` None: where the topics end.
    """

    servers: str
    pipeline: str
    tables: tuple[str, ...]
    events: str = ""
    shown_by: str = ""
    raw: bool = False
    retyped: Retyped = "fail"
    as_of: Lsn | None = None
    starting: Edge | Offsets = "earliest"
    starting_floors: Mapping[int, str] = field(default_factory=dict)
    ending: Offsets | None = None
    ending_at_us: int = 0
    slots: int = 0
    max_offsets: int = 0
    client: tuple[tuple[str, str], ...] = ()
    secrets: tuple[tuple[str, str], ...] = ()


def read_options(given: Mapping[str, str], *, streaming: bool = False) -> FrameOptions:
    """Check options. ConfigError or UsageError in one sentence that shows no value that may be secret."""
    options = {name.lower(): value for name, value in given.items()}
    refuse_secrets(options)
    _known(options)
    raw = _flag("raw", options.get("raw", "false"))
    as_of, ending = _bounds(options, streaming)
    client = {name[len(_CLIENT) :]: value for name, value in options.items() if name.startswith(_CLIENT)}
    return FrameOptions(
        servers=_required("bootstrap_servers", options),
        pipeline=_required("pipeline", options),
        tables=_tables(options, raw),
        events=options.get("events", "").strip(),
        shown_by=options.get("shown_by", ""),
        raw=raw,
        retyped=cast("Retyped", _one_of("retyped", options.get("retyped", "fail"), ("fail", "cast"))),
        as_of=as_of,
        starting=_start(options.get("starting_offsets", "earliest")),
        starting_floors=_floors(options.get("starting_offsets", "{}")),
        ending=ending,
        ending_at_us=_at_us(options.get("ending_offsets", "{}")),
        slots=_number("slots", options.get("slots", "0")),
        max_offsets=_number("max_offsets_per_trigger", options.get("max_offsets_per_trigger", "0")),
        client=tuple(sorted((n, v) for n, v in client.items() if not v.startswith(REFERENCES))),
        secrets=tuple(sorted((n, v) for n, v in client.items() if v.startswith(REFERENCES))),
    )


def _bounds(options: Mapping[str, str], streaming: bool) -> tuple[Lsn | None, Offsets | None]:
    as_of = _lsn(options["as_of"]) if "as_of" in options else None
    ending = _offsets("ending_offsets", options["ending_offsets"]) if "ending_offsets" in options else None
    if streaming and "events" not in options and (as_of is not None or ending is not None):
        name = "as_of" if as_of is not None else "ending_offsets"
        raise UsageError(f"a stream has no end, so {name} does not go with readStream", hint=f"spark.read takes {name}")
    if streaming and "events" in options and "starting_offsets" in options:
        raise UsageError("a stream of events begins where its topic begins", hint="leave starting_offsets out")
    if as_of is not None and (ending is not None or "starting_offsets" in options):
        raise UsageError("as_of reads a table from its beginning, so it takes no offsets", hint="leave the offsets out")
    return as_of, ending


def refuse_secrets(options: Mapping[str, str]) -> None:
    """ConfigError for an option whose value is a secret itself. It names the option and never the value."""
    for name, value in options.items():
        named = _SECRET.search(name) is not None and not value.startswith(REFERENCES)
        if named or _LOGIN.search(value):
            raise ConfigError(
                f"the option {name} holds a secret, and Spark shows options in its plans and pages",
                hint='write "env:NAME" or "file:PATH" there: the tasks read it where they run',
            )


def _known(options: Mapping[str, str]) -> None:
    for name in options:
        if name in NAMES or (name.startswith(_CLIENT) and name != _CLIENT):
            continue
        near = difflib.get_close_matches(name, NAMES, 1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(NAMES))}"
        if name == "path":
            hint = 'name the table by .option("table", "schema.table"), and call load() without a path'
        raise UsageError(f"headrace knows no option {name}", hint=hint)


def _tables(options: Mapping[str, str], raw: bool) -> tuple[str, ...]:
    if options.get("events", "").strip() and not {"table", "tables"} & set(options):
        return ()
    if ("table" in options) == ("tables" in options):
        raise UsageError(
            "name the table by the option table, or several by tables", hint='.option("table", "public.orders")'
        )
    named = tuple(part.strip() for part in options.get("tables", "").split(",") if part.strip())
    tables = named or (options.get("table", "").strip(),)
    for table in tables:
        if "." not in table.strip("."):
            raise UsageError(f"the table {table!r} lacks its schema", hint=f'write "public.{table}"')
    if not raw and (len(tables) > 1 or ("tables" in options and "*" in tables[0])):
        raise UsageError(
            "several tables have no columns in common, so they are read with raw = true alone",
            hint='.option("raw", "true"), or one DataFrame per table',
        )
    return tables


def _required(name: str, options: Mapping[str, str]) -> str:
    if not options.get(name, "").strip():
        raise UsageError(f"the option {name} is missing", hint=f"{name}: {NAMES[name]}; or config: {NAMES['config']}")
    return options[name].strip()


def _flag(name: str, value: str) -> bool:
    return _one_of(name, value.lower(), ("true", "false")) == "true"


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise UsageError(f"the option {name} is {value!r}", hint=f"it is one of {', '.join(known)}")
    return value


def _number(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise UsageError(f"the option {name} is {value!r}", hint="it is a whole number that is not negative")
    return int(value)


def _lsn(value: str) -> Lsn:
    try:
        return Lsn.parse(value.strip())
    except ValueError:
        raise UsageError(
            f"the option as_of is {value!r}, which is no LSN", hint="select pg_current_wal_insert_lsn() gives one"
        ) from None


def _at_us(ending: str) -> int:
    """The time of a cut, where the offsets are one's: see :mod:`spark.frames.event_cuts`."""
    document: Any = orjson.loads(ending)
    found = document.get("at_us", 0)
    return found if isinstance(found, int) else 0


def _floors(starting: str) -> Mapping[int, str]:
    """The floors of a cut, where the offsets are one's."""
    if not starting.startswith("{"):
        return {}
    found = orjson.loads(starting).get("floors")
    return {int(partition): pos for partition, pos in found.items()} if isinstance(found, dict) else {}


def _start(value: str) -> Edge | Offsets:
    if value in ("earliest", "latest"):
        return cast("Edge", value)
    return _offsets("starting_offsets", value)


def _places(document: dict[str, Any]) -> dict[str, Any]:
    """Topic -> partition -> offset, also out of what a stream's progress says."""
    topics = document.get("topics") if "headrace" in document else None
    if not isinstance(topics, dict):
        return document
    return {topic: facts.get("offsets") if isinstance(facts, dict) else None for topic, facts in topics.items()}


def _offsets(name: str, value: str) -> Offsets:
    """ConfigError for what is no JSON of topic, partition and offset."""
    wrong = UsageError(
        f"the option {name} is no JSON of topic, partition and offset",
        hint='write it as {"shop.public.orders":{"0":42}}; -2 is a partition\'s beginning',
    )
    try:
        document: Any = orjson.loads(value)
    except orjson.JSONDecodeError:
        raise wrong from None
    if not isinstance(document, dict) or not all(isinstance(parts, dict) for parts in _places(document).values()):
        raise wrong
    found: dict[str, dict[int, int]] = {}
    for topic, parts in _places(document).items():
        for partition, offset in parts.items():
            if not partition.isdigit() or type(offset) is not int or offset < BEGINNING or offset == -1:
                raise wrong
            found.setdefault(topic, {})[int(partition)] = offset
    return found
