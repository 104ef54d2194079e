"""Enrich changes with the rows of another table, and write them as Parquet.

``enrich_to_parquet.py --config cdc.toml --table public.orders --with public.customers --on customer=id --out orders``
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_headrace import current_rows, slots
from spark.jobs.examples.arguments import open_session, parser


def enriched(changes: DataFrame, rows: DataFrame, column: str, key: str) -> DataFrame:
    """Each insert and update beside the row of the other table that it names, as a struct ``its``. Null for none."""
    written = changes.where(F.col("_op").isin("c", "u", "r"))
    own = [name for name in rows.columns if not name.startswith("_")]
    other = rows.select(F.col(key).alias("_its_key"), F.struct(*own).alias("its"))
    return written.join(other, written[column] == other["_its_key"], "left").drop("_its_key")


def main(argv: Sequence[str]) -> None:
    """Read both tables, join them, write."""
    arguments = parser("Write a table's changes with the rows that they name, as Parquet.")
    arguments.add_argument("--with", dest="other", required=True, help="schema.table of the rows that are named")
    arguments.add_argument("--on", required=True, help="COLUMN=KEY: a change's column, and the other table's")
    arguments.add_argument("--out", required=True, help="folder or URL")
    given = arguments.parse_args(argv)
    session = open_session("enrich")
    reader = session.read.format("headrace").option("config", given.config).option("slots", slots(session))
    column, _, key = given.on.partition("=")
    rows = current_rows(reader.option("table", given.other).load())
    changes = reader.option("table", given.table).load()
    enriched(changes, rows, column, key).write.mode("overwrite").parquet(given.out)


if __name__ == "__main__":
    main(sys.argv[1:])
