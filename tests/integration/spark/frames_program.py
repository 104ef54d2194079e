"""What a user's program does with a secured pipeline: a batch, its plans, a stream, a refusal, Spark's pages."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.request import urlopen

import orjson
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

PLACES = ("/environment/", "/jobs/", "/stages/", "/executors/", "/SQL/", "/StreamingQuery/")
ASKED = ("/environment", "/sql?details=true&planDescription=true", "/jobs", "/stages?details=true", "/allexecutors")


def pages(address: str) -> str:
    """All that Spark's pages show."""
    interface = f"{address}/api/v1/applications"
    with urlopen(interface, timeout=30) as answer:
        (application,) = orjson.loads(answer.read())
    found = []
    for place in [*(address + path for path in PLACES), *(f"{interface}/{application['id']}{path}" for path in ASKED)]:
        with urlopen(place, timeout=30) as answer:
            found.append(answer.read().decode())
    return "".join(found)


def main(port: str, folder: Path, secret: str, options: dict[str, str]) -> None:
    """Write what was shown to ``pages.txt``, and the plans to stdout."""
    builder = SparkSession.builder.master("local[2]").appName("frames")
    for name, value in {
        "spark.ui.enabled": "true",
        "spark.ui.port": port,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    frame = session.read.format("headrace").options(**options).load()
    print("rows", frame.count())
    frame.explain("extended")
    frame.explain("formatted")
    frame.createOrReplaceTempView("changes")
    session.sql("explain cost select * from changes").show(truncate=False)
    try:
        session.read.format("headrace").options(**(options | {"kafka.sasl.password": secret})).load()
    except PySparkException as refused:
        print("refused", refused)
    stream = session.readStream.format("headrace").options(**options).load()
    writer = stream.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    query.explain(True)
    print("progress", query.lastProgress)
    (folder / "pages.txt").write_text(pages(f"http://127.0.0.1:{port}"), encoding="utf-8")
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]).read_text(encoding="utf-8"), orjson.loads(sys.argv[4]))
