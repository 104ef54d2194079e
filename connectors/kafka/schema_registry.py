"""The registry of table shapes on ``<name>.schema``."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import replace

from cdc.capture.table_masks import MaskNotes
from cdc.process.errors import ConfigError
from cdc.record.ports import CompactedTopic
from cdc.record.schema import Column, TableSchema
from cdc.record.topic_names import TableName
from cdc.settings.mask_rules import NO_MASKS, require_masks

_NO_NOTES = MaskNotes(NO_MASKS)


class SchemaRegistry:
    """Every version of every table's shape. A new one is broker-acked before :meth:`register` returns. Any thread.

    ``notes``: of tables with masks. Those who read alone, and those whose rows are masked elsewhere, have none.
    """

    def __init__(self, topic: CompactedTopic, *, notes: MaskNotes = _NO_NOTES) -> None:
        self._topic = topic
        self.notes = notes
        self._versions: dict[tuple[TableName, int], TableSchema] = {}
        self._latest: dict[TableName, TableSchema] = {}
        self._of_relation: dict[int, TableSchema] = {}
        """Of each relation the shape that was registered last, under whatever name it had."""
        self._accepted: set[str] = set()
        self._lock = threading.RLock()
        self.refresh()

    def refresh(self) -> None:
        """Read the topic again. Call when a version is asked for that is not known."""
        for value in self._topic.read().values():
            self._remember(TableSchema.from_json(value))

    def get(self, table: TableName, version: int) -> TableSchema:
        """A version. KeyError when the topic does not hold it even after a refresh."""
        found = self._versions.get((table, version))
        if found is None:
            self.refresh()
            found = self._versions[(table, version)]
        return found

    def latest(self, table: TableName) -> TableSchema | None:
        """The newest shape of a table. None for one that has none."""
        return self._latest.get(table)

    def named(self, table: str) -> TableSchema | None:
        """The latest of a table of which only ``schema.table`` is known. Any name may have a dot in it."""
        return next((shape for known, shape in self._latest.items() if str(known) == table), None)

    def has_masks(self, table: TableName, oid: int) -> bool:
        """Whether a relation of this name has masks, or has to have some: see :meth:`require_masks`."""
        former = self._of_relation.get(oid)
        known = former is not None and bool(former.noted_masks)
        return known or bool(self.notes.masks.of(table) or self.notes.parts.get(oid))

    def require_masks(self, schema: TableSchema) -> None:
        """ConfigError for a shape under which a value would be written plain that is masked under another name: of its
        column or its table, or of a table of which it is or was a part.

        A mask that was taken off under the same names is meant.
        """
        lacking = self.notes.lacking(schema, self._masked)
        former = self._of_relation.get(schema.oid)
        if former is not None:
            plain = {column.attnum: (schema.table, column.name) for column in schema.columns if column.mask is None}
            was = ((number, (former.table, name)) for number, name in former.masked_numbers.items())
            lacking += [(str(one[0]), one[1]) for number, one in was if plain.get(number, one) != one]
        require_masks(schema.table, lacking)

    def _masked(self, table: str) -> Collection[str]:
        known = self.named(table)
        return known.noted_masks if known is not None else ()

    @property
    def size(self) -> int:
        """How many versions are known, of all tables."""
        return len(self._versions)

    def versions(self) -> list[TableSchema]:
        """Every version of every table, older ones first."""
        with self._lock:
            return [self._versions[known] for known in sorted(self._versions)]

    def tables(self) -> list[TableName]:
        """The tables that have a shape, by name."""
        return sorted(self._latest)

    def register(self, schema: TableSchema, *, new_key: bool = False) -> TableSchema:
        """The schema with the version it is known by: the latest's if nothing differs, else the next one's.

        ConfigError when its key is another one than before, unless ``new_key``: rows would stay in the topic and in
        the stores under their former keys, and nothing would ever remove them. Other masks of the same key are taken:
        capture has the table read again for them. ConfigError as well as :meth:`require_masks`.
        """
        return self.register_all([schema], new_key=new_key)[0]

    def register_all(self, schemas: Iterable[TableSchema], *, new_key: bool = False) -> list[TableSchema]:
        """The same of many tables, in one write: thousands would wait for the broker one by one."""
        with self._lock:
            known = [self._numbered(schema, new_key) for schema in schemas]
            added = [schema for schema in known if schema is not self._latest.get(schema.table)]
            if added:
                self._topic.write([(schema.topic_key(), schema.to_json()) for schema in added])
            for schema in added:
                self._remember(schema)
            return known

    def accept_key(self, table: str, accepted: bool = True) -> None:
        """Whether another key of the table is taken from now on. Its readers are to sweep what stands under the former
        one."""
        with self._lock:
            (self._accepted.add if accepted else self._accepted.discard)(table)

    def _numbered(self, schema: TableSchema, new_key: bool) -> TableSchema:
        self.require_masks(schema)
        latest = self._latest.get(schema.table)
        if latest is not None and latest.same_shape(schema):
            return latest
        new_key = new_key or str(schema.table) in self._accepted
        if latest is not None and not new_key and not _same_key_but_masks(latest, schema):
            before, now = _key_text(latest), _key_text(schema)
            # A newer version may write the same columns otherwise.
            change = f"was {before} and is {now} now" if before != now else f"{now} is written otherwise now"
            raise ConfigError(
                f"the key of {schema.table} {change}: what the log and the stores hold stands under the former key",
                hint="give the table its former key back; or, while capture runs, take the new one and read the table "
                f"anew: cdc snapshot {schema.table}",
            )
        return replace(schema, version=latest.version + 1 if latest else 1)

    def _remember(self, schema: TableSchema) -> None:
        self._versions[(schema.table, schema.version)] = schema
        latest = self._latest.get(schema.table)
        if latest is None or latest.version < schema.version:
            self._latest[schema.table] = schema
        self._of_relation[schema.oid] = schema


class EmbeddedShapes:
    """The registry for shapes that come with records: each found or written. Any thread."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._lock = threading.Lock()

    def newest(self, topic: str) -> TableSchema | None:
        """The newest shape of a topic's table. None for one that has none."""
        with self._lock:
            found = self._newest(topic)
            if found is None:
                self._registry.refresh()
                found = self._newest(topic)
            return found

    def version(self, topic: str, shape: TableSchema) -> int:
        """The version that this shape is known by, written if it is new. One that was known before keeps its number: a
        rebuild reads old records again."""
        with self._lock:
            known = self._find(topic, shape)
            if known is None:
                self._registry.refresh()
                known = self._find(topic, shape) or self._registry.register(shape, new_key=True)
            return known.version

    def _newest(self, topic: str) -> TableSchema | None:
        return next((known for known in reversed(self._registry.versions()) if known.topic == topic), None)

    def _find(self, topic: str, shape: TableSchema) -> TableSchema | None:
        versions = reversed(self._registry.versions())
        return next((known for known in versions if known.topic == topic and known.same_shape(shape)), None)


def _same_key_but_masks(former: TableSchema, schema: TableSchema) -> bool:
    """Whether the keys are one, or differ by their masks alone. A table whose masks changed is read again, which
    removes what stands under the former key."""
    return former.plain_key_form == schema.plain_key_form


def _key_text(schema: TableSchema) -> str:
    """``(id bigint, region text)``. Empty parentheses for no key."""
    return f"({', '.join(f'{column.name} {column.type}{_mask_text(column)}' for column in schema.key)})"


def _mask_text(column: Column) -> str:
    return f" masked by {column.mask.rule}" if column.mask is not None else ""
