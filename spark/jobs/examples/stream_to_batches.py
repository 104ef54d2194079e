"""Stream changes into a function of one's own: the newest of each key per batch, a Parquet folder per batch.

A batch that is repeated after a crash overwrites its own folder, so each change is there once.
``stream_to_batches.py --config cdc.toml --table public.orders --out changes --checkpoint here [--until-caught-up]``
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.jobs.examples.arguments import open_session, parser


def newest(changes: DataFrame) -> DataFrame:
    """The newest change of each key, deletes too."""
    keyed = changes.where(F.col("_key").isNotNull())
    return keyed.groupBy("_key").agg(F.max_by(F.struct("*"), F.struct("_pos", "_offset")).alias("row")).select("row.*")


def writer(folder: str) -> Callable[[DataFrame, int], None]:
    """The function that is called with each batch."""

    def write(batch: DataFrame, number: int) -> None:
        newest(batch).write.mode("overwrite").parquet(f"{folder}/batch={number}")

    return write


def main(argv: Sequence[str]) -> None:
    """Run until stopped, or until all that is there now is written."""
    arguments = parser("Stream a table's changes into Parquet, a folder per batch.")
    arguments.add_argument("--out", required=True, help="folder or URL")
    arguments.add_argument("--checkpoint", required=True, help="folder or URL")
    arguments.add_argument("--until-caught-up", action="store_true", help="end when all that is there now is written")
    given = arguments.parse_args(argv)
    session = open_session("stream")
    changes = session.readStream.format("headrace").option("config", given.config).option("table", given.table).load()
    stream = changes.writeStream.foreachBatch(writer(given.out)).option("checkpointLocation", given.checkpoint)
    query = (stream.trigger(availableNow=True) if given.until_caught_up else stream).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
