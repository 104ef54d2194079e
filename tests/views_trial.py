"""One generated view on generated tables: after each batch of changes its documents are what Postgres says."""

from __future__ import annotations

import random
from collections import Counter

import psycopg

from cdc.views.syntax import NotComputable, ViewRefused
from tests.views_against import Beside
from tests.views_generated import TABLES, Schema, Text
from tests.views_grouped import GroupText


class Different(AssertionError):
    """The documents of a view are not what Postgres says."""


def tried(
    conn: psycopg.Connection,
    dsn: str,
    seed: int,
    documents: int = 4,
    groups: int = 2,
    batches: int = 4,
) -> Counter[str]:
    """Some texts over the tables of a seed, of documents and of groups, and what they held. Raises :class:`Different`.

    The database is the caller's own, and its tables and types of these names are dropped.
    """
    chance, of_groups = random.Random(seed), random.Random(-1 - seed)
    texts = documents + groups
    schema = Schema(chance)
    for table in TABLES:
        conn.execute(f"drop table if exists {table}".encode())
    conn.execute("drop type if exists mood")
    for statement in (*schema.statements(), *schema.changes(60)):
        conn.execute(statement.encode())
    counted: Counter[str] = Counter()
    views: list[Beside] = []
    try:
        while len(views) < texts:
            text = Text(schema, chance) if len(views) < documents else GroupText(schema, of_groups)
            try:
                views.append(Beside(dsn, text.sql))
            except ViewRefused as refused:
                counted[f"refused: {refused.reason}"] += 1
                conn.execute(f"explain {text.sql}".encode())
                continue
            counted.update(text.counted)
            counted["texts"] += 1
        for view in views:
            _same(view, "at first")
        for batch in range(batches):
            for statement in schema.changes(chance.randint(1, 12)):
                conn.execute(statement.encode())
            for view in views:
                _same(view, f"after batch {batch}")
            counted["batches"] += texts
    finally:
        for view in views:
            view.close()
    return counted


def _same(view: Beside, when: str) -> None:
    view.step()
    parked = [document for document in view.published.values() if isinstance(document, NotComputable)]
    if parked:
        raise Different(f"{when}: {parked[0]}: {view.plan.sql}")
    wrong = view.differences()
    if wrong:
        raise Different(f"{when}: {view.plan.sql}\nPostgres: {wrong[0][0]!r}\nview:     {wrong[0][1]!r}")
