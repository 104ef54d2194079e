"""What a table's changes need is compiled when the first of them comes, and no sooner."""

from __future__ import annotations

import pytest

from cdc.record.schema import Identity
from cdc.settings.mask_rules import NO_MASKS
from connectors.postgres.assembly.routes import StreamTable
from connectors.postgres.encoding.encoder import compile_table
from tests.contract.topics import ORDERS


def compiled(table: StreamTable) -> set[str]:
    """The functions that exist by now."""
    return {name for name in ("new", "pair", "old", "keyed", "line") if name in vars(table.encoder.rows)}


@pytest.mark.parametrize("identity", [Identity.DEFAULT, Identity.FULL])
def test_h102_nothing_is_compiled_before_it_is_needed(identity: Identity) -> None:
    """Five thousand tables that only grow would keep three functions each of which they use one."""
    full = identity == Identity.FULL
    schema = ORDERS.__class__(**{name: getattr(ORDERS, name) for name in ORDERS.__slots__} | {"identity": identity})
    table = StreamTable(compile_table(schema, name="shop", database="shop", masks=NO_MASKS), 0, 1, lambda key, count: 0)
    assert compiled(table) == set()
    needed: set[str] = set()
    for route, form in (
        (table.insert, "new"),
        (table.update, "pair" if full else "new"),
        (table.delete, "old" if full else "keyed"),
    ):
        route.encode(b"", 0, 1, b"", b"")
        needed.add(form)
        assert compiled(table) == needed
        assert route.encode is getattr(table.encoder.rows, form), "asked for once"
    assert table.encoder.snapshot_line is table.encoder.snapshot_line
    assert compiled(table) == {*needed, "line"}
