"""The past of tables, from their histories in a warehouse, as DataFrames: versions of rows, and tables as they were.

Nothing of it is stored. A history is read as any table is, by Spark's own readers, so each warehouse will do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

import orjson
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdc.process.errors import UsageError
from cdc.process.sql_files import load
from cdc.record.position import SNAPSHOT_SEQ, Lsn, Position
from cdc.record.progress import Watermark
from cdc.record.topic_names import TableName, history_topic, table_topic
from cdc.wire.format import ROW_OPS
from sinks.contract.history_rows import COMMIT_TS, EXTRA, GAP_MARK, KEPT_OP, SEEN, VERSION_COLUMNS, history_name
from sinks.contract.kinds import load_settings
from sinks.contract.stores import open_store
from sinks.contract.table_places import PLACE, TablePlace
from sinks.warehouse.history_cuts import HistoryMarks, cut_of, require_answer, require_known, require_shown
from sinks.warehouse.warehouse_columns import EXACT, KEY, OWN, POS

_OTHERWISE = {f"cdc{name}": name for name in OWN}
"""Our own columns as Iceberg has them."""
_STREAMED = ("c", "u", "d", "t")


def history(frame: DataFrame, *, track: Sequence[str] = (), exact: bool = False) -> DataFrame:
    """The versions of a table's rows. ``frame``: its history, ``<table>__history``, as Spark reads it.

    Each has the table's columns and ``_key``, the key of the row; ``_from`` and ``_to``, the positions from which and
    up to, without, which the row was so (null where it is so still), ``_from_ts`` and ``_to_ts``, the times of these
    commits, and ``_current``. ``track``: these columns alone, and no version where none of them changes. UsageError
    for a frame that is no history, and for a column that it has not. ``exact``: with ``_exact``, by column what its
    type does not have, as a date ``infinity``: the column itself is null then.
    """
    versions = _versions(_named(frame), own=(EXACT,) if exact else ())
    lacking = [name for name in track if name not in versions.columns]
    if lacking:
        raise UsageError(f"the history has no column {lacking[0]}", hint=f"it has {', '.join(versions.columns)}")
    return _collapsed(versions, list(track)) if track else versions


def as_of(
    frames: Mapping[str, DataFrame],
    *,
    sink: str,
    lsn: str | None = None,
    time: datetime | None = None,
    config: str = "cdc.toml",
) -> dict[str, DataFrame]:
    """Tables as they were, all at one moment: below an LSN, or at a time, or as the store shows them where neither is
    given. ``frames``: by table, as ``public.orders``, its history. ``sink``: whose they are, by the settings of
    ``config``.

    A time, with its zone, is the LSN of the first commit of one of these tables with a later time, so that all of them
    are of one cut. UsageError where a history cannot say it: above what the store shows, before its first row, or in a
    gap, and for a frame that was read before the store came as far. ConfigError and SinkError as the sink's store has
    them.
    """
    if not frames or (lsn is not None and time is not None):
        raise UsageError("as_of takes tables, and an LSN or a time", hint='as_of(frames, sink="lake", lsn="0/16B3D48")')
    asked = _require_moment(frames, lsn, time)
    settings = load_settings(Path(config))
    with closing(open_store(sink, settings)) as store:
        mark = store.watermarks.read()
    shown = _shown(mark, settings.name, sink, frames)
    named = {table: _named(frame) for table, frame in frames.items()}
    if time is not None:
        cut = _cut_at(named, time, shown)
    else:
        cut = shown if asked is None else Position(shown.epoch, asked, SNAPSHOT_SEQ)
    return {table: _table_at(table, frame, cut, shown) for table, frame in named.items()}


def unknown_spans(frame: DataFrame) -> DataFrame:
    """One row with ``spans``: from which position on, and below which, a history cannot say what its table was: as
    :func:`sinks.warehouse.history_cuts.require_answer` has it, of all cuts at once. ``frame``: as in :func:`history`.
    """
    named = _named(frame)
    op, pos, none, end = F.col(KEPT_OP), F.col(POS), F.lit(""), F.lit("~")
    gap = _whole_gap()
    marks = named.agg(
        F.min(F.when(~gap, pos)).alias("first"),
        F.collect_set(F.when(op == F.lit("sweep"), F.greatest(POS, SEEN))).alias("readings"),
    )
    # A gap speaks of what lies below its LSN, whatever of that commit stands beside it.
    gaps = named.where(gap).select(F.substring(POS, 1, 24).alias("gap")).distinct()
    rows = named.where(~gap).select(pos.alias("row"))
    before = rows.join(F.broadcast(gaps), F.col("row") < F.col("gap")).groupBy("gap").agg(F.max("row").alias("row"))
    listed = gaps.join(F.broadcast(before), "gap", "left").agg(F.collect_list(F.struct("gap", "row")).alias("gaps"))
    # One that was captured later counts from its first whole reading on.
    begins = F.greatest("first", F.array_min("readings"))

    def span(one: Column) -> Column:
        behind = F.filter("readings", lambda at: F.substring(at, 1, 24) >= one["gap"])
        ends = F.coalesce(F.array_min(behind), end)
        return F.struct(F.coalesce(one["row"], none).alias("begin"), ends.alias("end"))

    beginning = F.array(F.struct(none.alias("begin"), F.coalesce(begins, end).alias("end")))
    return marks.crossJoin(listed).select(F.concat(beginning, F.transform("gaps", span)).alias("spans"))


def _whole_gap() -> Column:
    """Whether a row is a gap of the whole table."""
    return (F.col(KEPT_OP) == F.lit("gap")) & (_row_key() == F.lit(GAP_MARK))


def _shown(mark: Watermark | None, pipeline: str, sink: str, frames: Mapping[str, DataFrame]) -> Position:
    """Up to where the store shows these histories, and the frames have them."""
    for table, frame in frames.items():
        schema, _, name = table.partition(".")
        kept = TableName(schema, name)
        topic = history_topic(table_topic(pipeline, kept))
        if mark is None or not mark.offsets.get(topic) or topic in mark.held:
            raise UsageError(
                f"the store of {sink} does not show {history_name(kept)}",
                hint=f"[sinks.{sink}] history names the table, and cdc status {sink} says how far it is",
            )
        # What the store claims holds for a table that is as far by its place.
        place = _place(_renamed(frame))
        if any(place.get(partition, 0) < offset for partition, offset in mark.offsets[topic].items()):
            raise UsageError(
                f"the frame of {history_name(kept)} is older than what the store of {sink} shows",
                hint="read the table anew, right before: a frame stays as it was when it was read",
            )
    assert mark is not None
    return Position(mark.epoch, mark.lsn, SNAPSHOT_SEQ)


def _place(frame: DataFrame) -> Mapping[int, int]:
    found = [row[0] for row in frame.where(F.col(KEY) == PLACE).select(EXACT).collect()] if KEY in frame.columns else []
    exact = orjson.loads(found[0]) if found and isinstance(found[0], str) else dict(found[0]) if found else {}
    return TablePlace.from_json(exact[PLACE].encode()).offsets if PLACE in exact else {}


def _renamed(frame: DataFrame) -> DataFrame:
    """A history's columns under one name in each warehouse."""
    return frame.withColumnsRenamed({name: own for name, own in _OTHERWISE.items() if name in frame.columns})


def _named(frame: DataFrame) -> DataFrame:
    named = _renamed(frame)
    lacking = [name for name in (KEY, POS, *EXTRA) if name not in named.columns]
    if lacking:
        raise UsageError(
            f"the frame is no history of a table: it has no column {lacking[0]}",
            hint="read <table>__history of the warehouse, all columns of it",
        )
    return named.where(F.col(KEPT_OP).isNotNull())


def _versions(frame: DataFrame, own: Sequence[str]) -> DataFrame:
    columns = [name for name in frame.columns if name in own or name not in (*OWN, *EXTRA)]
    listed = ", ".join(map(_quoted, columns))
    # The names of frames stand in braces, so braces in names are doubled once for each time it is formatted.
    text = load("sinks.warehouse", "history.sql")["versions"].format(
        columns=listed.replace("{", "{{").replace("}", "}}"), table="{changes}"
    )
    return frame.sparkSession.sql(text, changes=frame)


def _collapsed(versions: DataFrame, track: Sequence[str]) -> DataFrame:
    """The first version of each run in which no tracked column changes, up to where the last one ends."""
    rows = Window.partitionBy(KEY).orderBy("_from")
    alike = [F.col(name).eqNullSafe(F.lag(name).over(rows)) for name in track]
    known = (F.col(KEPT_OP) != F.lit("gap")) & (F.lag(KEPT_OP).over(rows) != F.lit("gap"))
    same: Column = reduce(and_, alike, known & (F.lag("_to").over(rows) == F.col("_from")))
    begins = versions.withColumn("cdc_begins", ~F.coalesce(same, F.lit(False)))
    runs = begins.withColumn("cdc_run", F.sum(F.col("cdc_begins").cast("int")).over(rows))
    run = Window.partitionBy(KEY, "cdc_run").orderBy("_from")
    whole = run.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    ended = runs.withColumns({name: F.last(name).over(whole) for name in ("_to", "_to_ts", "_current")})
    fixed = [name for name in VERSION_COLUMNS if name not in track]
    return ended.where("cdc_begins").select(*fixed, *track)


def _require_moment(frames: Mapping[str, DataFrame], lsn: str | None, time: datetime | None) -> int | None:
    """The LSN that is asked for, None without one. UsageError for what is none, or no table, or no time."""
    named = next((table for table in frames if "." not in table), None)
    if named is not None:
        raise UsageError(f"{named} has no schema", hint=f'name it as "public.{named}"')
    if time is not None and getattr(time, "tzinfo", None) is None:  # a text as well
        raise UsageError(
            "the time has no zone, or is no datetime", hint="time=datetime(2026, 11, 30, 9, 0, tzinfo=timezone.utc)"
        )
    try:
        return None if lsn is None else Lsn.parse(lsn)
    except ValueError as error:
        raise UsageError(str(error), hint='an LSN is as Postgres writes it: lsn="0/16B3D48"') from None


def _cut_at(frames: Mapping[str, DataFrame], time: datetime, shown: Position) -> Position:
    asked = f"{time:%Y-%m-%d %H:%M:%S.%f %z}"
    cut = cut_of(_first_later(frames.values(), time), asked, shown)
    gap = _whole_gap()
    below = F.col(POS) < F.lit(cut.text())
    for table, frame in frames.items():
        [found] = frame.agg(
            F.max(F.when(below & (F.col(COMMIT_TS) <= F.lit(time)), F.col(POS))).alias("since"),
            F.collect_set(F.when(gap, F.col(POS))).alias("gaps"),
        ).collect()
        require_known(table, found["since"], found["gaps"], cut, asked)
    return cut


def _first_later(frames: Any, time: datetime) -> str | None:
    streamed = F.col(KEPT_OP).isin(*_STREAMED) & (F.col(COMMIT_TS) > F.lit(time))
    found = [frame.where(streamed).agg(F.min(POS)).collect()[0][0] for frame in frames]
    return min((one for one in found if one is not None), default=None)


def _table_at(table: str, frame: DataFrame, cut: Position, shown: Position) -> DataFrame:
    """The newest row of each key below the cut, but for those that a truncate or a whole reading left behind.

    Not by way of the versions, which have to be sorted: the newest one of a key is found without.
    """
    require_shown(table, cut, shown)
    limit = cut.text()
    marks, floor, some_gap = _marks(table, frame, limit)
    require_answer(marks, cut)
    columns = [name for name in frame.columns if name not in (*OWN, *EXTRA)]
    # A row that was read from the table may hold what was committed until then: it counts from there on.
    since = F.when(F.col(SEEN) > F.col(POS), F.col(SEEN)).otherwise(F.col(POS))
    changes = frame.where(F.col(KEPT_OP).isin(*ROW_OPS, "gap") & (_row_key() != F.lit(GAP_MARK)) & (since <= limit))
    newest = changes.groupBy(_row_key()).agg(F.max_by(F.struct(KEPT_OP, POS, *map(_quoted, columns)), POS).alias("row"))
    at = newest.where((F.col(f"row.{POS}") >= F.lit(floor)) & (F.col(f"row.{KEPT_OP}") != F.lit("d")))
    if some_gap and not at.where(F.col(f"row.{KEPT_OP}") == F.lit("gap")).isEmpty():
        raise UsageError(
            f"{table} cannot be read as of {Lsn(cut.commit_lsn)}: a change of one of its rows was too large to be kept",
            hint="ask for an LSN before it, or from the row's next change on",
        )
    return at.select(*(F.col(f"row.{_quoted(name)}") for name in columns))


def _row_key() -> Column:
    """The key of the row, which stands behind the position."""
    return F.substring(KEY, 34, 1_000_000)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _marks(table: str, frame: DataFrame, limit: str) -> tuple[HistoryMarks, str, bool]:
    """What is about the table as a whole, from which position on its rows below the limit count, and whether a change
    of some row is missing."""
    op, pos, gap = F.col(KEPT_OP), F.col(POS), _whole_gap()
    ending = F.when(op == F.lit("t"), pos).when(op == F.lit("sweep"), F.substring(KEY, 41, 1_000_000))
    rare = frame.where(op.isin("t", "sweep", "gap"))
    [found] = rare.agg(
        F.collect_set(F.when(gap, pos)).alias("gaps"),
        F.collect_set(F.when(op == F.lit("sweep"), F.greatest(POS, SEEN))).alias("readings"),
        F.max((op == F.lit("gap")) & ~gap).alias("some"),
        F.max(F.when(pos <= limit, ending)).alias("floor"),
    ).collect()
    floor, some = found["floor"] or "", bool(found["some"])
    first = min(found["readings"], default="")
    if not found["gaps"] and first and first <= limit:
        # Then no look at all rows is needed: it was known from there on.
        return HistoryMarks(table, first, readings=[first]), floor, some
    behind = F.min(F.when(pos >= limit, pos)).alias("behind")
    [rows] = frame.where(~gap).agg(F.min(pos).alias("first"), behind).collect()
    return HistoryMarks(table, rows["first"], rows["behind"], found["gaps"], found["readings"]), floor, some
