"""The shapes of tables that a sink is given: what the schema topic holds, by topic and version."""

from __future__ import annotations

from collections.abc import Iterable

from cdc.schema import TableSchema


class SchemaBook:
    """Every shape known, by topic and version: :class:`sinks.port.Schemas` as plain data, which pickles."""

    def __init__(self, versions: Iterable[TableSchema] = ()) -> None:
        self._shapes: dict[tuple[str, int], TableSchema] = {(shape.topic, shape.version): shape for shape in versions}
        self._newest = {topic: self._shapes[topic, version] for topic, version in sorted(self._shapes)}

    def __call__(self, topic: str, version: int) -> TableSchema:
        return self._shapes[(topic, version)]

    def __contains__(self, shape: tuple[str, int]) -> bool:
        return shape in self._shapes

    def newest(self, topic: str) -> TableSchema:
        return self._newest[topic]

    def tables(self) -> list[list[TableSchema]]:
        """Every version of each table, the newest first: it says what a store's columns are."""
        found: dict[str, list[TableSchema]] = {topic: [] for topic in self._newest}
        for topic, version in sorted(self._shapes, reverse=True):
            found[topic].append(self._shapes[topic, version])
        return list(found.values())
