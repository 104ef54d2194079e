"""Texts of views made up by seed, over tables made up by seed: kept by the engine, and run by Postgres itself."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import make_conninfo

from tests.faults.lab import Lab
from tests.views_trial import tried

VIEWS = True
"""It defines views, so what they reach counts."""


def run(lab: Lab) -> None:
    """A seed is four texts and four batches of changes. What the texts held is counted."""
    postgres = lab.stack.ensure("postgres")["postgres"]["dsn"]
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute("drop database if exists views with (force)")
        admin.execute("create database views template template0 encoding 'utf8'")
        dsn = make_conninfo(postgres, dbname="views")
        with psycopg.connect(dsn, autocommit=True) as conn:
            for seed in lab.seeds():
                counted = tried(conn, dsn, seed)
                refused = sum(count for name, count in counted.items() if name.startswith("refused"))
                constructs = {name.replace(": ", "_").replace(" ", "_"): count for name, count in counted.items()
                              if not name.startswith("refused")}  # fmt: skip
                lab.count(refused=refused, **constructs)
        admin.execute("drop database views with (force)")
