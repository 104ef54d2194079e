"""A look at Postgres ends where its catalog is locked: somebody waits for it."""

from __future__ import annotations

import psycopg
import pytest

from cdc.process.errors import CdcError
from cdc.settings.model import parse
from connectors.operate.status import StatusSource


@pytest.mark.slow
def test_a_look_at_a_locked_catalog_ends(database: str) -> None:
    document = {
        "name": "shop",
        "source": {"dsn": database, "tables": ["public.*"]},
        "log": {"bootstrap_servers": "127.0.0.1:1"},
    }
    source = StatusSource(parse(document))
    source.facts()
    with psycopg.connect(database) as holder:
        holder.execute("lock table pg_catalog.pg_publication in access exclusive mode")
        with pytest.raises(CdcError, match="lock timeout"):
            source.publication()
    assert source.publication() is None
    source.close()
