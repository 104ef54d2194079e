"""The shop's database: made and filled."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from cdc.sql import load


@dataclass(frozen=True, slots=True)
class ShopSize:
    """How much there is to begin with. 30,000 orders make about 128,000 rows."""

    orders: int = 30_000
    products: int = 3_000


def make_shop(dsn: str, size: ShopSize) -> dict[str, int]:
    """Make and fill the tables in an empty database. Table -> rows."""
    queries = load("cdc.demo", "shop.sql")
    with psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute(queries["schema"])
        connection.execute(queries["rows"], {"orders": size.orders, "products": size.products})
        connection.execute(queries["analyze"])
        return dict(connection.execute(queries["counts"]).fetchall())
