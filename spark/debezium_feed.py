"""Topics that Debezium fills, as the queries read them: the numbers of the shapes that come with records, in a run.

The module :mod:`spark.translate` has the rules for one record.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from cdc.progress import Offsets
from cdc.schema import TableSchema
from cdc.wire.debezium.reading import UNVERSIONED, DebeziumReader
from cdc.wire.records import Span
from spark.translate import EmbeddedVersion, TaskNotes, TaskTranslation, Version, translated

log = logging.getLogger(__name__)


class TopicShapes(Protocol):
    """The schema topic, for shapes that come with records. LogError when the log does not answer."""

    def newest(self, topic: str) -> TableSchema | None:
        """The newest shape of a topic's table. None for one that has none."""
        ...

    def version(self, topic: str, shape: TableSchema) -> int:
        """The version that an embedded shape is known by, written if it is new."""
        ...


class Translation:
    """Translates the batches of one run of a query. ``shapes`` may raise LogError. Implements
    :class:`spark.translate.NumberedShapes`.

    Records of a small batch come here. For those that tasks read :meth:`for_tasks` makes what they need, and what they
    tell is decided here.

    ``keyed_anew``: is called with a topic whose table has another key than before, before a record under it is given to
    a store. ``topic_ids``: Kafka's ids. A topic that was made anew may have another key. ``handed_over`` as
    :func:`spark.translate.translated` has it.
    """

    def __init__(
        self,
        shapes: TopicShapes,
        reader: DebeziumReader,
        keyed_anew: Callable[[str], None],
        *,
        topic_ids: Mapping[str, str] | None = None,
        handed_over: Offsets | None = None,
    ) -> None:
        self._oids = {topic: zlib.crc32(one.encode()) for topic, one in (topic_ids or {}).items()}
        self._shapes = shapes
        self._reader = reader
        self._keyed_anew = keyed_anew
        self._handed_over = handed_over or {}
        self._versions: dict[EmbeddedVersion, int] = {}
        self._newest: dict[str, TableSchema | None] = {}

    def __call__(self, records: pa.Table) -> pa.Table:
        """The same columns (:data:`spark.source.RECORD_SCHEMA`)."""
        self._newest.clear()
        return translated(records, self._reader, self, self._handed_over)

    def for_tasks(self, spans: Iterable[Span]) -> TaskTranslation:
        """The translation for the tasks that read these spans."""
        self._newest.clear()
        topics = {span.topic for span in spans}
        newest = {topic: shape for topic in topics if (shape := self.newest(topic)) is not None}
        return TaskTranslation(
            reader=self._reader,
            versions={known: version for known, version in self._versions.items() if known[0] in topics},
            newest=newest,
            handed_over={topic: parts for topic, parts in self._handed_over.items() if topic in topics},
        )

    def decide(self, told: TaskNotes) -> frozenset[Version]:
        """Number the shapes that tasks met. The versions that they have now."""
        return frozenset((known[0], self.version(*known, shape)) for known, shape in told.shapes.items())

    def newest(self, topic: str) -> TableSchema | None:
        if topic not in self._newest:
            self._newest[topic] = self._shapes.newest(topic)
        return self._newest[topic]

    def version(self, topic: str, number: int, shape: TableSchema | None) -> int:
        newest = self.newest(topic)
        if shape is None:
            return newest.version if newest is not None else UNVERSIONED
        known = self._versions.get((topic, number))
        if known is None:
            shape = replace(shape, oid=self._oids.get(topic, 0))
            if newest is not None and newest.oid == shape.oid and newest.key_form != shape.key_form:
                self._keyed_anew(topic)
                log.error("table_keyed_anew", extra={"topic": topic, "table": str(shape.table)})
            known = self._versions[topic, number] = self._shapes.version(topic, shape)
            del self._newest[topic]
        return known
