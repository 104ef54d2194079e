"""A stream's text: read and analysed by Spark over streams without rows, and refused where its state would grow for
ever, in one sentence with the word and its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, PySparkException

from cdc.process.errors import ConfigError
from cdc.process.untrusted_text import hide
from spark.streams.typed_events import AHEAD_S, Events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CLASS = re.compile(r"^\[[A-Z_.0-9]+\] ")
_PLACE = re.compile(r"\(?line (\d+), pos (\d+)\)?")
_STATE = re.compile(r" SQLSTATE: \w+.*$")
_TIMED = re.compile(r"-T\d+ms")
"""An attribute with a watermark, as Spark's plans print it."""
_WINDOW = re.compile(r"'(?:session_window|window)\('[\w.`]+, ([^,()]+)")
_UNIT_S = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604_800}
_CLOCK = re.compile(r"\b(current_timestamp|current_date|localtimestamp|now|current_time)\(")
_WORDS = {
    "having": re.compile(r"(?i)\bhaving\b"),
    "where": re.compile(r"(?i)\bwhere\b"),
    "group by": re.compile(r"(?i)\bgroup\s+by\b"),
    "distinct": re.compile(r"(?i)\bdistinct\b"),
    "join": re.compile(r"(?i)\bjoin\b"),
}
_SOME_MS = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """A stream as the settings have it. ``sql``: its text."""

    name: str
    sql: str
    key: tuple[str, ...]
    mode: str
    events: Sequence[Events] = field(default_factory=tuple)


def analysed(session: SparkSession, spec: StreamSpec, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The result of a text over frames of its events. ConfigError where Spark refuses it."""
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    text = spec.sql.rstrip().rstrip(";")
    try:
        # A query, and no statement: Spark would carry that out here.
        session._jsparkSession.sessionState().sqlParser().parseQuery(text)
        return session.sql(text)
    except PySparkException as error:
        raise _refused(spec, error) from None


def require_bounded(session: SparkSession, spec: StreamSpec, result: DataFrame) -> float:
    """For how long, in seconds, an event may be needed. ``result``: of :func:`analysed` over streams.

    ConfigError for what no stream can have, and where the state had no bound: an aggregation without a window, a join
    without a bound of time.
    """
    if not result.isStreaming:
        raise ConfigError(
            f"the text of the stream {spec.name} reads none of its events",
            hint=f"it names them by {', '.join(one.name for one in spec.events)}",
        )
    plan: Any = result._jdf.queryExecution().analyzed()
    joined_s = 0.0
    _require_no_clock(spec, plan)
    for node in _nodes(plan):
        if not node.isStreaming():
            continue
        kind = node.nodeName()
        if kind == "Filter" and spec.mode == "update":
            _require_no_condition(spec, node)
        if kind in ("Aggregate", "Distinct", "Deduplicate"):
            _require_window(spec, node, kind)
        elif kind == "Join" and node.left().isStreaming() and node.right().isStreaming():
            joined_s = max(joined_s, _join_bound_s(session, spec, node))
    jvm: Any = session._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = modes.Append() if spec.mode == "append" else modes.Update()
    try:
        jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode)
    except PySparkException as error:
        raise _refused(spec, error) from None
    parsed = session._jsparkSession.sessionState().sqlParser().parsePlan(spec.sql.rstrip().rstrip(";")).toString()
    windows_s = max(map(_seconds, _WINDOW.findall(parsed)), default=0.0)
    return max(one.late_s for one in spec.events) + AHEAD_S + windows_s + joined_s


def require_kept(spec: StreamSpec, given: Events, keep_ms: int, needed_s: float) -> None:
    """ConfigError for a topic whose records go before the stream is done with them."""
    if 0 <= keep_ms < needed_s * 1000:
        raise ConfigError(
            f"[streams.{spec.name}.events.{given.name}]: {given.topic} keeps a record for {keep_ms / 1000:,.0f} s, and "
            f"the stream may need one for {needed_s:,.0f} s: late, the window and the join's interval together",
            hint="raise keep under [outbox] or [history] and the topic's retention.ms, or let late be less",
        )


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for number in range(children.size()):
        yield from _nodes(children.apply(number))


def _require_no_clock(spec: StreamSpec, plan: Any) -> None:
    """ConfigError for what would be otherwise when it is computed again."""
    if clock := _CLOCK.search(plan.toString()):
        raise ConfigError(
            f"the text of the stream {spec.name} asks the clock by {clock[1]}(): computed again it would say otherwise",
            hint="compare an event's time with _at, the time of its commit",
        )


def _require_no_condition(spec: StreamSpec, node: Any) -> None:
    """ConfigError for a filter of results, of which a row would have to go."""
    if any(one.nodeName() == "Aggregate" for one in _below(node)):
        raise ConfigError(
            f"the text of the stream {spec.name} has a condition on what is counted{_at(spec, node, 'having', 'where')}"
            ": a row that meets it no more would stay",
            hint='mode = "append" publishes each row once, when its window is closed; or let the reader ask for it',
        )


def _below(node: Any) -> Iterator[Any]:
    """The nodes right below, through those that choose columns."""
    children = node.children()
    for number in range(children.size()):
        child = children.apply(number)
        yield child
        if child.nodeName() in ("Project", "SubqueryAlias"):
            yield from _below(child)


def _require_window(spec: StreamSpec, node: Any, kind: str) -> None:
    by = node.groupingExpressions() if kind == "Aggregate" else node.output() if kind == "Distinct" else node.keys()
    if _TIMED.search(by.mkString(",")):
        return
    raise ConfigError(
        f"the text of the stream {spec.name} groups without a window{_at(spec, node, 'group by', 'distinct')}: its "
        "state would grow for ever",
        hint="group by window(TIME, '5 minutes') or session_window; figures of all time are a view's",
    )


def _join_bound_s(session: SparkSession, spec: StreamSpec, node: Any) -> float:
    """For how long a join keeps rows."""
    jvm: Any = session._jvm
    helper = jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
    if helper.isWatermarkInJoinKeys(node):
        return 0.0
    some, left, right = jvm.scala.Some(_SOME_MS), node.left().outputSet(), node.right().outputSet()
    found = [
        helper.getStateValueWatermark(one, other, node.condition(), some)
        for one, other in ((left, right), (right, left))
    ]
    if not all(bound.isDefined() for bound in found):
        raise ConfigError(
            f"the text of the stream {spec.name} has a join without a bound{_at(spec, node, 'join')}: each row would "
            "wait for ever for another one",
            hint="add the interval to ON: b.at between a.at and a.at + interval 10 minutes",
        )
    return max(abs(_SOME_MS - int(bound.get())) for bound in found) / 1000


def _at(spec: StreamSpec, node: Any, *words: str) -> str:
    """The place of a node, as ``", by GROUP BY in line 1, column 8"``. Of the word where Spark knows no better."""
    start = node.origin().startIndex()
    begin = int(start.get()) if start.isDefined() else 0
    for word in words:
        found = _WORDS[word].search(spec.sql, begin) or _WORDS[word].search(spec.sql)
        if found:
            return f", by {found[0]} in {_place(spec.sql, found.start())}"
    return f", in {_place(spec.sql, begin)}"


def _place(text: str, index: int) -> str:
    before = text[:index]
    return f"line {before.count(chr(10)) + 1}, column {index - (before.rfind(chr(10)) + 1) + 1}"


def _refused(spec: StreamSpec, error: PySparkException) -> ConfigError:
    said = _STATE.sub("", str(error.getMessage() or error).strip().split("\n", 1)[0])
    where = _PLACE.search(str(error))
    place = f" in line {where[1]}, column {int(where[2]) + 1}" if where is not None else ""
    if isinstance(error, AnalysisException):
        contexts = error.getQueryContext()
        if contexts:
            start = max(0, contexts[0].startIndex())
            place = f" at {contexts[0].fragment()} in {_place(spec.sql, start)}"
    return ConfigError(
        f"Spark refuses the text of the stream {spec.name}{place}: {hide(_CLASS.sub('', said))}",
        hint="the names of its events are tables of the text, with the columns of their schemas",
    )


def _seconds(interval: str) -> float:
    """
    >>> _seconds("1 hour 30 minutes")
    5400.0
    """
    words = interval.lower().split()
    pairs = [(number, unit.removesuffix("s")) for number, unit in pairwise(words)]
    return float(sum(int(number) * _UNIT_S[unit] for number, unit in pairs if number.isdigit() and unit in _UNIT_S))
