"""The registry of table shapes on ``<name>.schema``."""

from __future__ import annotations

from dataclasses import replace

from cdc.ports import CompactedTopic
from cdc.schema import TableSchema
from cdc.topic import TableName


class SchemaRegistry:
    """Every version of every table's shape; a new one is broker-acked before :meth:`register` returns it."""

    def __init__(self, topic: CompactedTopic) -> None:
        self._topic = topic
        self._versions: dict[tuple[TableName, int], TableSchema] = {}
        self._latest: dict[TableName, TableSchema] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read the topic again; call when a version is asked for that is not known."""
        for value in self._topic.read().values():
            self._remember(TableSchema.from_json(value))

    def get(self, table: TableName, version: int) -> TableSchema:
        """A version; KeyError when the topic does not hold it even after a refresh."""
        found = self._versions.get((table, version))
        if found is None:
            self.refresh()
            found = self._versions[(table, version)]
        return found

    def latest(self, table: TableName) -> TableSchema | None:
        return self._latest.get(table)

    def versions(self) -> list[TableSchema]:
        """Every version of every table, older ones first."""
        return [self._versions[known] for known in sorted(self._versions)]

    def tables(self) -> list[TableName]:
        return sorted(self._latest)

    def register(self, schema: TableSchema) -> TableSchema:
        """The schema with the version it is known by: the latest's if nothing differs, else the next one's."""
        latest = self._latest.get(schema.table)
        if latest is not None and latest.same_shape(schema):
            return latest
        numbered = replace(schema, version=latest.version + 1 if latest else 1)
        self._topic.write([(numbered.topic_key(), numbered.to_json())])
        self._remember(numbered)
        return numbered

    def _remember(self, schema: TableSchema) -> None:
        self._versions[(schema.table, schema.version)] = schema
        latest = self._latest.get(schema.table)
        if latest is None or latest.version < schema.version:
            self._latest[schema.table] = schema
