"""The look of ``cdc config new`` at a database, put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdc.proposal.proposed import FoundDatabase


def look_at_database(dsn: str, role: str) -> tuple[FoundDatabase, bool]:
    """See :func:`connectors.proposal.found_tables.read_database`."""
    from connectors.proposal.found_tables import read_database

    return read_database(dsn, role)
