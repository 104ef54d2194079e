"""A user's own program over events: the requests of each path and minute, as they come."""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.streams import events


def main(config: str, topic: str, checkpoint: str) -> None:
    """Print each row of each batch."""
    session = SparkSession.builder.master("local[2]").appName("requests").getOrCreate()
    schema = "at timestamp, path string"
    requests = events(session, config=config, topic=topic, time="at", late_s=60.0, schema=schema)
    counts = requests.groupBy(F.window("at", "1 minute"), "path").count()

    def show(batch: DataFrame, _: int) -> None:
        for row in batch.collect():
            print("counted", row["path"], row["count"], flush=True)

    writer = counts.writeStream.outputMode("append").foreachBatch(show).option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    query.stop()
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
