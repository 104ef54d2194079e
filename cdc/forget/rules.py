"""The traces of a row in a place, until when they stay, and whether to wait for it: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cdc.errors import DifferenceFound, UsageError
from cdc.forget.document_history import DocumentHistory
from cdc.forget.holding import ForgetReport, Kept, Trace, moment
from cdc.forget.key_history import KeyRecords, PartitionHistory
from cdc.forget.letter_history import LetterHistory
from cdc.forget.request_history import RequestHistory
from cdc.schema import TableSchema

_DAY_MS = 86_400_000
_NEVER_MS = 10 * 365 * _DAY_MS
"""A lag of more than that bounds nothing: Kafka's own default is 292 million years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """When Kafka takes records of a topic away, by its settings. Times in ms. ``dirty_ratio``: 0 to 1."""

    compacted: bool
    min_lag_ms: int
    max_lag_ms: int
    segment_ms: int
    delete_retention_ms: int
    retention_ms: int
    dirty_ratio: float

    @classmethod
    def of(cls, config: Mapping[str, str]) -> TopicOptions:
        """From the brokers' answer, by Kafka's names. An option that a broker does not name has Kafka's default."""
        return cls(
            compacted="compact" in config.get("cleanup.policy", "delete"),
            min_lag_ms=int(config.get("min.compaction.lag.ms", 0)),
            max_lag_ms=int(config.get("max.compaction.lag.ms", 2**63 - 1)),
            segment_ms=int(config.get("segment.ms", 7 * _DAY_MS)),
            delete_retention_ms=int(config.get("delete.retention.ms", _DAY_MS)),
            retention_ms=int(config.get("retention.ms", 7 * _DAY_MS)),
            dirty_ratio=float(config.get("min.cleanable.dirty.ratio", 0.5)),
        )


def in_topic(topic: str, history: KeyRecords, options: TopicOptions, now_ms: int) -> list[Trace]:
    """The traces of the key in a table's topic."""
    parts = sorted(history.partitions.items())
    found = [one for number, part in parts for one in _in_partition(number, part, history, options, now_ms)]
    if history.former:
        words = f"{history.former} records from before the key of the table changed: they do not say of which row"
        found.append(Trace(what=words, kept=Kept.MAYBE, until=f"the topic {topic} is made anew"))
    if history.unreadable:
        words = f"{history.unreadable} records that cannot be read as rows of the table"
        found.append(Trace(what=words, kept=Kept.MAYBE, until=f"the topic {topic} is made anew"))
    return found


def _in_partition(
    number: int, part: PartitionHistory, history: KeyRecords, options: TopicOptions, now_ms: int
) -> Iterator[Trace]:
    newest = part.newest
    if newest is None:
        return
    last_ms, records = newest.time_ms, "1 record" if part.values == 1 else f"{part.values} records"
    if newest.value is None and not part.values:
        until = f"about {moment(last_ms + options.delete_retention_ms)} (delete.retention.ms), at a later cleaning"
        yield Trace(what=f"a tombstone in partition {number}", kept=Kept.KEY, until=until, passing=True)
    elif newest.value is None or not options.compacted:
        yield _cleaned(f"{records} in partition {number}", number, last_ms, options, now_ms)
    elif newest.is_delete:
        what = f"{records} in partition {number}, without a tombstone"
        yield Trace(what=what, kept=Kept.ROW, until="cdc run has written the tombstone", passing=True)
    elif history.floors.get(number, "") > newest.pos:
        what = f"{records} in partition {number}, the newest a row that a TRUNCATE or a sweep took, without a tombstone"
        until = "the key has a tombstone: insert a row with this key in the source and delete it again"
        yield Trace(what=what, kept=Kept.ROW, until=until)
    else:
        what = f"{records} in partition {number}, the newest a row"
        yield Trace(what=what, kept=Kept.ROW, until="cdc run has read the delete", passing=True, cure="cdc run")


def in_another_form(shape: TableSchema) -> Trace:
    """Rows that a store has of a table by its former name: their keys are masked otherwise, or were not yet."""
    what = f"rows of {shape.table}, whose keys have another form than the one that was asked for"
    return Trace(what=what, kept=Kept.MAYBE, until="you have taken the table away there, or asked for the value itself")


def under_another_row(history: KeyRecords, options: TopicOptions, now_ms: int) -> list[Trace]:
    """Older records of a key that the row had and that another one has now: they may be of either."""
    found = []
    for number, part in sorted(history.partitions.items()):
        newest = part.newest
        older = part.values - (newest is not None and newest.value is not None)
        if newest is not None and older:
            what = f"{older} older records in partition {number}, under a key that another row has now"
            found.append(replace(_cleaned(what, number, newest.time_ms, options, now_ms), kept=Kept.MAYBE))
    return found


def _cleaned(what: str, partition: int, last_ms: int, options: TopicOptions, now_ms: int) -> Trace:
    """Records that a later one of their key stands behind, written at ``last_ms``."""
    rolled = f"the file is closed by the first record in partition {partition} after"
    rolled = f"{rolled} {moment(last_ms + options.segment_ms)} (segment.ms) at the latest"
    if not options.compacted:
        kept = options.retention_ms
        until = "for ever: the topic is not compacted, and has no retention.ms"
        until = until if kept < 0 else f"{moment(last_ms + kept)} (retention.ms), and then {rolled}"
        return Trace(what=what, kept=Kept.ROW, until=until)
    first_ms, most_ms = last_ms + options.min_lag_ms, options.max_lag_ms
    share = f"{options.dirty_ratio:.0%} of the log are not cleaned (min.cleanable.dirty.ratio)"
    share += f" or {moment(last_ms + most_ms)} has passed (max.compaction.lag.ms)" if most_ms < _NEVER_MS else ""
    until = f"compaction, from {moment(first_ms)} on (min.compaction.lag.ms): {rolled}, and cleaned when {share}"
    return Trace(what=what, kept=Kept.ROW, until=until, until_ms=max(first_ms, now_ms), passing=True)


def in_letters(history: LetterHistory, sinks: Sequence[str]) -> list[Trace]:
    """The traces of the key in the dead letters' topic."""
    return [*_of_key(history, sinks), *_unclear(history)]


def _unclear(history: LetterHistory) -> Iterator[Trace]:
    """Letters that may hold something of the row."""
    if not history.unclear:
        return
    what = f"{len(history.unclear)} letters whose key cannot be read, or documents that may nest the row"
    if history.trimmable:
        until, cure = "they are deleted: nothing before them waits", "cdc forget … --trim-letters"
    else:
        until, cure = "they and those before them are dealt with, and then deleted by --trim-letters", "cdc dead list"
    yield Trace(what=what, kept=Kept.MAYBE, until=until, cure=cure)


def _of_key(history: LetterHistory, sinks: Sequence[str]) -> list[Trace]:
    if not history.mine:
        return []
    kept = Kept.ROW if any(_has_values(one.letter) for one in history.mine) else Kept.KEY
    count = "1 record" if len(history.mine) == 1 else f"{len(history.mine)} records"
    if history.waiting:
        strangers = sorted({one.sink for one in history.waiting} - {*sinks, "(capture)"})
        what = (
            f"{count}, of which {len(history.waiting)} wait for {', '.join(sorted({o.sink for o in history.waiting}))}"
        )
        if strangers:
            return [Trace(what=what, kept=kept, until="a cdc rebuild of that store, or its section is back")]
        until = "cdc sink has tried them again: the order stands"
        return [Trace(what=what, kept=kept, until=until, passing=True, cure="cdc sink")]
    if history.trimmable:
        until = "the letters that are dealt with are deleted: nothing before them waits"
        return [Trace(what=f"{count}, dealt with", kept=kept, until=until, cure="cdc forget … --trim-letters")]
    until = "the letters of other keys before them are dealt with, and then deleted by --trim-letters"
    return [Trace(what=f"{count}, dealt with", kept=kept, until=until, cure="cdc dead list")]


def _has_values(letter: object) -> bool:
    return getattr(letter, "value", None) is not None


def in_requests(history: RequestHistory, options: TopicOptions, now_ms: int) -> list[Trace]:
    """The traces of the key in the state topic: ``cdc snapshot TABLE --keys`` and ``--where`` are written there."""
    found = []
    for count, what, kept in (
        (history.keys, "requests that name the key", Kept.KEY),
        (history.conditions, "requests with a condition on the table", Kept.MAYBE),
    ):
        if count:
            cleaned = _cleaned(f"{count} {what}", 0, history.newest_ms, options, now_ms)
            until = f"cdc run has carried them out, and then {cleaned.until}"
            found.append(Trace(what=cleaned.what, kept=kept, until=until, until_ms=cleaned.until_ms, passing=True))
    return found


def in_documents(history: DocumentHistory, options: TopicOptions, now_ms: int, *, known: bool) -> list[Trace]:
    """The documents in a view's topic that may nest the row. ``known``: the place of the delete in the log is."""
    return [*_final(history), *_older(history, options, now_ms, known=known), *_groups(history, options)]


def _final(history: DocumentHistory) -> Iterator[Trace]:
    if history.final:
        what = f"{history.final} documents of windows from before the delete: a closed one stays as it is"
        yield Trace(what=what, kept=Kept.MAYBE, until="the view is dropped", cure="cdc view drop")


def _groups(history: DocumentHistory, options: TopicOptions) -> Iterator[Trace]:
    """The key of a group is values of its rows, and a tombstone has it."""
    if history.groups:
        what = f"{history.groups} tombstones, whose keys are values of rows"
        until = f"about {moment(history.groups_ms + options.delete_retention_ms)} (delete.retention.ms)"
        yield Trace(what=what, kept=Kept.MAYBE, until=f"{until}, at a later cleaning", passing=True)


def _older(history: DocumentHistory, options: TopicOptions, now_ms: int, *, known: bool) -> list[Trace]:
    if not history.older:
        return []
    versions = "1 older version" if history.older == 1 else f"{history.older} older versions"
    what = f"{versions} of documents" + (" from before the delete" if known else ": the log has no delete any more")
    cleaned = _cleaned(what, history.partition, history.newest_ms, options, now_ms)
    return [Trace(what=what, kept=Kept.MAYBE, until=cleaned.until, until_ms=cleaned.until_ms, passing=True)]


def require_deleted(there: bool, table: str) -> None:
    """UsageError while the source has the row."""
    if there:
        raise UsageError(
            f"the source still has that row of {table}: nothing was done",
            hint="delete it there first; what stands before the delete cannot be forgotten",
        )


def worth_waiting(report: ForgetReport, deadline_ms: int) -> bool:
    """Whether something goes by itself that may go before a moment."""
    return any(one.until_ms is None or one.until_ms <= deadline_ms for one in report.passing)


def conclude(report: ForgetReport) -> None:
    """Return where each place was seen and none holds a value of the row.

    DifferenceFound where one holds some. Else the error of the first place that did not answer.
    """
    if report.held:
        raise DifferenceFound(
            f"{len(report.held)} of {len(report.places)} places still hold something of that row, or may: "
            f"{', '.join(report.held)}",
            hint="until when is above; run the same command again then",
        )
    for unknown in report.unknown.values():
        raise unknown.because
