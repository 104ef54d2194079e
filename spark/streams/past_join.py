"""Events beside the row of a table as it was when each was committed: by the versions of the table's history.

A history is a table at rest to Spark, which reads it anew for each batch, and at most one version fits an event. So the
join keeps no state. The row is that which the event's transaction left: positions within one transaction number events
and rows apart, and its commit is one moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import orjson
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegralType

from cdc.process.errors import CdcError, ConfigError, SinkError, TopicError
from cdc.record.position import Lsn, Position
from sinks.contract.history_rows import KEPT_OP, VERSION_COLUMNS
from spark.frames.history_watermarks import WAITS, HistoryWatermark, KeptHistory
from spark.frames.past_tables import history, unknown_spans
from spark.streams.stream_text import StreamSpec, analysed
from spark.streams.typed_events import POS, Events, no_records, text_events, with_reasons

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_MARK = re.compile(r"cdc_as_of:(\w+):(\w+):([0-9a-f]{32})")
"""What the plan fails with: the events' name, why, and the position of the event."""
_UNKNOWN, _LARGE = "unknown", "large"
_WHY = {
    _UNKNOWN: "its history begins later, or has a gap there",
    _LARGE: "a change of its row was too large to be kept",
}
_FROM, _TO, _ROW, _OP, _SPANS = "cdc_from", "cdc_to", "cdc_row", "cdc_op", "cdc_spans"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTable:
    """The history that an input is joined with. ``frame``: as Spark reads it. ``key``: the table's, in its order, by
    the frame's columns. ``waits_for``: the option of a reader, see
    :class:`spark.frames.history_watermarks.KeptHistory`."""

    table: str
    frame: DataFrame
    key: tuple[str, ...]
    waits_for: str

    @property
    def column(self) -> str:
        """The column that the text sees, a struct."""
        return self.table.partition(".")[2]


Pasts = Mapping[str, PastTable]
"""By the name of the input."""


def joined_events(records: DataFrame, given: Events, pasts: Pasts) -> DataFrame:
    """The events that the text sees, beside the row of the table where there is one. ConfigError for columns that do
    not fit. What cannot be known fails when it is computed: see :func:`refusal_in`."""
    events = text_events(records, given)
    return _joined(events, given, pasts[given.name]) if given.name in pasts else events


def result_of(session: SparkSession, spec: StreamSpec, pasts: Pasts) -> DataFrame:
    """What a text gives, over streams without rows. ConfigError as :func:`joined_events` and
    :func:`spark.streams.stream_text.analysed`."""
    nothing = no_records(session)
    return analysed(
        session, spec, {one.name: joined_events(with_reasons(nothing, one), one, pasts) for one in spec.events}
    )


def _joined(events: DataFrame, given: Events, past: PastTable) -> DataFrame:
    versions = history(past.frame, exact=True)
    own = [name for name in versions.columns if name not in VERSION_COLUMNS]
    _require_fit(events, given, past, versions)
    keys = [f"cdc_key{number}" for number in range(len(past.key))]
    row = F.struct(*(_column(name) for name in own)).alias(_ROW)
    held = versions.select(
        *(_column(name).alias(key) for name, key in zip(past.key, keys, strict=True)),
        F.col("_from").alias(_FROM),
        F.col("_to").alias(_TO),
        F.col(KEPT_OP).alias(_OP),
        row,
    )
    # All of the event's own commit, and nothing of a later one.
    moment = F.concat(F.substring(POS, 1, 24), F.lit("f" * 8))
    spans = unknown_spans(past.frame).select(F.col("spans").alias(_SPANS))
    known = ~F.exists(_SPANS, lambda one: (one["begin"] <= moment) & (moment < one["end"]))
    # In the key of the join, so that no filter of the text leaves an event out before it is asked.
    first = F.when(known, F.col(given.on[0])).otherwise(_failing(given, _UNKNOWN))
    asked = [first, *map(F.col, given.on[1:])]
    fits = reduce(and_, (F.col(key) == one for key, one in zip(keys, asked, strict=True)))
    within = (F.col(_FROM) <= moment) & (F.col(_TO).isNull() | (moment < F.col(_TO)))
    both = events.crossJoin(F.broadcast(spans)).join(held, fits & within, "left")
    shown = F.when(F.col(_OP) == F.lit("gap"), _failing(given, _LARGE)).otherwise(F.col(_ROW))
    return both.select(*map(_column, events.columns), shown.alias(past.column))


def _failing(given: Events, why: str) -> Column:
    return F.raise_error(F.concat(F.lit(f"cdc_as_of:{given.name}:{why}:"), F.col(POS)))


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _require_fit(events: DataFrame, given: Events, past: PastTable, versions: DataFrame) -> None:
    where = f"the events {given.name}, as_of {past.table}"
    if len(given.on) != len(past.key):
        raise ConfigError(
            f"{where}: the table's key has {len(past.key)} columns, and on names {len(given.on)}",
            hint=f"on names columns of the events that hold {', '.join(past.key)}, in this order",
        )
    if past.column.lower() in (name.lower() for name in events.columns):
        raise ConfigError(
            f"{where}: the schema has a column {past.column}, as the table's row is called",
            hint="leave it out of the schema, or rename it in the event",
        )
    for name, key in zip(given.on, past.key, strict=True):
        try:
            kind = events.select(F.col(name)).schema[0].dataType
        except AnalysisException:
            raise ConfigError(f"{where}: the events have no column {name}", hint="declare it in schema") from None
        wanted = versions.schema[key].dataType
        if not _alike(kind, wanted):
            raise ConfigError(
                f"{where}: {name} is {kind.simpleString()}, and the table's {key} is {wanted.simpleString()}",
                hint=f'schema = "... {name.rpartition(".")[2]} {wanted.simpleString()}" reads it so',
            )


def _alike(one: DataType, other: DataType) -> bool:
    return one == other or (isinstance(one, IntegralType) and isinstance(other, IntegralType))


def require_shown(pasts: Iterable[PastTable], cuts: Iterable[str]) -> None:
    """SinkError where a store does not show a history up to these cuts any more, as Spark's checkpoint has them."""
    ends = [orjson.loads(cut).get("floors", {}) for cut in cuts if cut]
    highest = max((pos for floors in ends for pos in floors.values()), default="")
    for past in pasts:
        with closing(HistoryWatermark(KeptHistory.read(past.waits_for))) as watermark:
            watermark.require(highest)


def refusal_in(stream: str, tables: Mapping[str, str], said: str) -> CdcError | None:
    """Why a query ended that joins events with a history, by what Spark says. None for another reason. ``tables``: by
    the name of the input."""
    if waits := next((line for line in said.splitlines() if WAITS in line), ""):
        sentence, _, hint = waits[waits.find("the store of ") :].partition(". Hint: ")
        return SinkError(sentence, hint=hint)
    if (mark := _MARK.search(said)) is None or mark[1] not in tables:
        return None
    table, lsn = tables[mark[1]], Lsn(Position.parse(mark[3]).commit_lsn)
    return TopicError(
        f"the stream {stream} cannot join {table} with an event of {lsn}: {_WHY[mark[2]]}",
        hint=f"cdc snapshot {table} makes later events sure; cdc stream rebuild {stream} --yes begins anew once its "
        "topic holds none from before",
    )
