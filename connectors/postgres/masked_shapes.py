"""A table's shape under its masks: masked columns are text, dropped ones are none. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from cdc.errors import ConfigError
from cdc.mask_rules import Masks
from cdc.schema import Column, DroppedColumn, Identity, Mask, TableSchema
from cdc.wire.unavailable import may_be_unavailable

_TEXT_OID = 25


def masked_shape(schema: TableSchema, masks: Masks) -> TableSchema:
    """The shape of a table as its records are written. The same one where no mask concerns it.

    ConfigError where the masks cannot be kept: they name a column that the table has not (it may have another name
    now, under which it would be written as it is), or a key by another mask than ``hmac``, or a key by which rows would
    have to be looked up.
    """
    rules = masks.of(schema.table)
    if not rules:
        return schema
    gone = sorted(set(rules) - {column.name for column in schema.columns})
    if gone:
        raise ConfigError(
            f"the settings mask {', '.join(gone)} of {schema.table}, which has no such column",
            hint=f'write its name of now under [tables."{schema.table}"] columns, or remove it there if it was dropped',
        )
    dropped = {column for column, rule in rules.items() if rule.kind == "drop"}
    _require_key(schema, [column for column, rule in rules.items() if rule.kind != "hmac"])
    noted = {column: masks.noted(rule) for column, rule in rules.items()}
    columns = tuple(_masked(column, noted) for column in schema.columns if column.name not in dropped)
    left_out = (column for column in schema.columns if column.name in dropped)
    shape = replace(
        schema,
        columns=columns,
        dropped=tuple(DroppedColumn(name=c.name, attnum=c.attnum, type_oid=c.type_oid) for c in left_out),
    )
    _require_lookups(shape)
    return shape


def require_passed(passed: TableSchema, oid: int, names: Sequence[str], now: TableSchema | None) -> None:
    """ConfigError for a message of a table with masks whose columns may be others than those of these names.

    The stream may lag behind the catalog and the settings, and a message has no numbers. ``passed``: the shape that the
    stream has passed. While the table is that relation and has all of these columns still, in ``now``, each message
    begins with them. So they have to have their names, and what follows in it came later. ``now``: None for a table
    that is gone.
    """
    numbers = passed.numbers
    columns = sorted(numbers, key=lambda name: numbers[name])
    there = now is None or numbers.items() <= now.numbers.items()
    if passed.oid != oid or list(names[: len(columns)]) != columns or not there:
        raise ConfigError(
            f"{passed.table}, which has masks, was made anew, or columns of it were renamed or dropped",
            hint="once the stream is past that, it is followed again and read anew",
        )


def _masked(column: Column, noted: dict[str, str]) -> Column:
    rule = noted.get(column.name)
    if rule is None:
        return column
    mask = Mask(
        rule=rule,
        type=column.type,
        type_oid=column.type_oid,
        kind=column.kind,
        array=column.array,
        typmod=column.typmod,
    )
    return replace(column, mask=mask, type="text", type_oid=_TEXT_OID, kind="text", array=False, typmod=-1)


def _require_key(schema: TableSchema, others: Collection[str]) -> None:
    merging = [column.name for column in schema.key if column.name in others]
    if merging:
        raise ConfigError(
            f"{merging[0]} is of the key of {schema.table}, and a key can be masked by hmac alone",
            hint="drop and truncate would make one row of several",
        )


def _require_lookups(shape: TableSchema) -> None:
    """A masked key finds no row in the source: then nothing may have to be looked up."""
    if not shape.masked_key:
        return
    name = shape.table
    if shape.deferrable_key:
        raise ConfigError(
            f"the key of {name} is masked, and it is deferrable: rows of it may have to be looked up by their key",
            hint="make the constraint not deferrable, or take the mask off its columns",
        )
    if shape.identity is not Identity.FULL and any(map(_may_be_left_out, shape.columns)):
        raise ConfigError(
            f"the key of {name} is masked, and an update may leave out long values, which are looked up by the key",
            hint=f"alter table {name} replica identity full; then each update carries them",
        )


def _may_be_left_out(column: Column) -> bool:
    if column.mask is not None:
        column = replace(column, kind=column.mask.kind, array=column.mask.array)
    return may_be_unavailable(column) and column.key_position is None
