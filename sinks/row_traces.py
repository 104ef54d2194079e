"""The traces of deleted rows in a store, as its reader shows them: for ``cdc forget``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.forget.document_history import DocumentForm
from cdc.forget.holding import Kept, Trace, moment
from cdc.forget.ports import KeptVersions
from cdc.position import Position
from cdc.schema import TableSchema
from cdc.wire.format import POS
from sinks.arrow import pc
from sinks.kinds import kind_named
from sinks.port import OpenSink, StoredRow, StoreReader
from sinks.registry import SinkSpec, attribute, open_sink


def open_traces(spec: SinkSpec, clock: Clock = SYSTEM_CLOCK) -> KeptVersions:
    """Connect to a store. SinkError when it does not answer. Of a kind that does not say what it keeps beside its
    rows, the rows alone are looked at."""
    kind = kind_named(spec.kind)
    if not kind.traces:
        return PlainTraces(open_sink(spec, clock), spec.kind)
    opened: KeptVersions = attribute(kind.traces, spec.kind)(spec, clock)
    return opened


def shown_row(what: str) -> Trace:
    """The trace of a row that readers see."""
    return Trace(what=what, kept=Kept.ROW, until="cdc sink has applied the delete", passing=True, cure="cdc sink")


def remembered(what: str, until_ms: int | None, by: str) -> Trace:
    """The trace of a delete that the store remembers. ``by``: what takes it away."""
    until = f"replay_window has passed, {by}" if until_ms is None else f"{moment(until_ms)}, {by}"
    return Trace(what=what, kept=Kept.KEY, until=until, until_ms=until_ms, passing=True)


def of_row(table: object, row: StoredRow | None, until_ms: int | None, by: str) -> Iterator[Trace]:
    """The trace of a stored row, if there is one."""
    if row is not None and row.deleted:
        yield remembered(f"the memory of the delete in {table}", until_ms, by)
    elif row is not None:
        yield shown_row(f"the row in {table}")


def frozen_versions(reader: StoreReader, schema: TableSchema, position: Position | None) -> Iterator[Trace]:
    """Documents of a generation that is not in use, and that nothing computes anew: any of them may nest the row."""
    limit = position.text() if position is not None else "~"
    for batch in reader.scan(schema):
        pos, gone = batch.column(POS).to_pylist(), batch.column("deleted").to_pylist()
        if any((at or "") <= limit and not deleted for at, deleted in zip(pos, gone, strict=True)):
            what = f"documents of {schema.table} from before the delete"
            yield Trace(what=what, kept=Kept.MAYBE, until="the generation goes, at the next cdc rebuild")
            return


def shown_versions(
    store: OpenSink, schema: TableSchema, position: Position | None, ends: Mapping[int, int], form: DocumentForm
) -> Iterator[Trace]:
    """Documents that readers see, of a store that is behind these ends of their topic, or does not follow it. Those
    that stay as they are, and memories of deletes whose keys are values, wherever the store is."""
    mark = store.watermarks.read()
    offsets = mark.offsets.get(schema.topic) if mark is not None else None
    if form.in_keys:
        yield from _gone_groups(store.reader, schema)
    if offsets is None:
        until = "a sink follows the view again, or you have taken them away"
        yield from (replace(one, until=until) for one in frozen_versions(store.reader, schema, position))
    elif form.final:
        until = "the view is dropped, and its rows are taken away"
        yield from (replace(one, until=until) for one in frozen_versions(store.reader, schema, position))
    elif any(offsets.get(partition, 0) < end for partition, end in ends.items()):
        what, until = f"documents of {schema.table}: the store is behind their topic", "cdc sink has read on"
        yield Trace(what=what, kept=Kept.MAYBE, until=until, passing=True, cure="cdc sink")


def _gone_groups(reader: StoreReader, schema: TableSchema) -> Iterator[Trace]:
    count = sum(pc.sum(batch.column("deleted")).as_py() or 0 for batch in reader.scan(schema))
    if count:
        what = f"the memory of {count} deletes of {schema.table}, whose keys are values of rows"
        until = "replay_window has passed, and the sink has cleaned"
        yield Trace(what=what, kept=Kept.MAYBE, until=until, passing=True)


class PlainTraces:
    """The rows of a store of which nothing more is known. Implements :class:`cdc.forget.ports.KeptVersions`."""

    def __init__(self, store: OpenSink, kind: str) -> None:
        self._store = store
        self._kind = kind

    def of_keys(self, schema: TableSchema, keys: Sequence[str]) -> Iterable[Trace]:
        for key in keys:
            yield from of_row(schema.table, self._store.reader.get(schema, key), None, "and the sink has cleaned")
        yield self._more()

    def before(self, schema: TableSchema, position: Position | None) -> Iterable[Trace]:
        yield self._more()

    def _more(self) -> Trace:
        what = f"versions that a store of kind {self._kind} may keep beside its rows: it does not say which"
        return Trace(what=what, kept=Kept.MAYBE, until="you have looked there")

    def clean(self, schema: TableSchema) -> None:
        """Nothing is known that could go."""

    def close(self) -> None:
        self._store.close()


class GenerationTraces:
    """A store with the generations that a rebuild keeps beside it. Implements
    :class:`cdc.forget.ports.StoreTraces`.

    ``spec``: of what is in use. ``others``: the places of the other generations, by number.
    """

    def __init__(self, spec: SinkSpec, others: Iterable[tuple[int, SinkSpec]], clock: Clock = SYSTEM_CLOCK) -> None:
        self._others = list(others)
        self._spec = spec
        self._clock = clock
        self._store = open_traces(spec, clock)

    def of_keys(self, schema: TableSchema, keys: Sequence[str]) -> Iterable[Trace]:
        yield from self._store.of_keys(schema, keys)
        for number, spec in self._others:
            with closing(open_traces(spec, self._clock)) as traces:
                yield from (_of_generation(number, trace) for trace in traces.of_keys(schema, keys))

    def before(self, schema: TableSchema, position: Position | None) -> Iterable[Trace]:
        yield from self._store.before(schema, position)
        for number, spec in self._others:
            with closing(open_sink(spec, self._clock)) as store:
                yield from (_of_generation(number, one) for one in frozen_versions(store.reader, schema, position))
            with closing(open_traces(spec, self._clock)) as traces:
                yield from (_of_generation(number, one) for one in traces.before(schema, position))

    def shown(
        self, schema: TableSchema, position: Position | None, ends: Mapping[int, int], form: DocumentForm
    ) -> Iterable[Trace]:
        with closing(open_sink(self._spec, self._clock)) as store:
            yield from shown_versions(store, schema, position, ends, form)

    def spellings(self, schema: TableSchema, same: Callable[[str], bool]) -> Iterable[str]:
        for spec in (self._spec, *(spec for _, spec in self._others)):
            with closing(open_sink(spec, self._clock)) as store:
                for batch in store.reader.scan(schema):
                    yield from (key for key in batch.column("key").to_pylist() if key is not None and same(key))

    def clean(self, schema: TableSchema) -> None:
        self._store.clean(schema)

    def close(self) -> None:
        self._store.close()


def _of_generation(number: int, trace: Trace) -> Trace:
    """No sink feeds it: what would go by itself goes with the whole."""
    until = f"{trace.until}; or" if trace.until_ms is not None else "until"
    words = "a cdc rebuild of the store takes this generation away"
    return Trace(
        what=f"generation {number}: {trace.what}",
        kept=trace.kept,
        until=f"{until} {words}".removeprefix("until "),
        until_ms=trace.until_ms,
        passing=trace.until_ms is not None,
        cure="cdc rebuild",
    )
