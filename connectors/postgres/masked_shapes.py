"""A table's shape under its masks: masked columns are text, dropped ones are none. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from cdc.errors import ConfigError
from cdc.mask_rules import MaskRule, Masks
from cdc.schema import Column, DroppedColumn, Identity, Mask, TableSchema
from cdc.topic import TableName
from cdc.wire.unavailable import may_be_unavailable

_TEXT_OID = 25


def masked_shape(schema: TableSchema, masks: Masks) -> TableSchema:
    """The shape of a table as its records are written. The same one where no mask concerns it.

    ConfigError where the masks cannot be kept: they name a column that the table has not (it may have another name
    now, under which it would be written as it is), or a key by another mask than ``hmac``, or a key by which rows would
    have to be looked up.
    """
    rules = masks.of(schema.table)
    gone = sorted(set(rules) - {column.name for column in schema.columns})
    if gone:
        raise no_such_column(schema.table, gone)
    return shape_under(schema, rules, masks)


def shape_under(schema: TableSchema, rules: Mapping[str, MaskRule], masks: Masks) -> TableSchema:
    """The shape with these of its columns masked. ``masks`` has the key. ConfigError as :func:`masked_shape`."""
    if not rules:
        return schema
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


def no_such_column(table: TableName, columns: Sequence[str]) -> ConfigError:
    """The sentence about masks of columns that a table has not."""
    return ConfigError(
        f"the settings mask {', '.join(columns)} of {table}, which has no such column",
        hint=f'write its name of now under [tables."{table}"] columns, or remove it there if it was dropped',
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
