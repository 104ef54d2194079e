"""Print a table's rows as they were at an LSN, as JSON. Refused, with the oldest LSN that is possible, for one too old.

``table_as_of.py --config cdc.toml --table public.orders --lsn 0/16B3D48``
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame

from pyspark_headrace import current_rows
from spark.jobs.examples.arguments import open_session, parser


def rows_as_of(changes: DataFrame) -> DataFrame:
    """The rows without our columns, by key."""
    rows = current_rows(changes).orderBy("_key")
    return rows.select(*[name for name in rows.columns if not name.startswith("_")])


def main(argv: Sequence[str]) -> None:
    """Read, and print a line per row."""
    arguments = parser("Print a table's rows as they were at an LSN.")
    arguments.add_argument("--lsn", required=True, help="as select pg_current_wal_insert_lsn() gives it")
    given = arguments.parse_args(argv)
    session = open_session("as of")
    reader = session.read.format("headrace").option("config", given.config).option("table", given.table)
    for row in rows_as_of(reader.option("as_of", given.lsn).load()).toJSON().toLocalIterator():
        print(row)


if __name__ == "__main__":
    main(sys.argv[1:])
