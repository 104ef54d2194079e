"""The jars that a settings file's sinks need of Spark: decided once, for our own driver and for a submitted one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from cdc.cli.app import run
from cdc.jvm.jars import OF_SINKS, locked
from cdc.process.errors import Exit, UsageError
from cdc.settings.model import Settings
from sinks.contract.kinds import parse_settings
from sinks.contract.stores import jar_sets, needed_classes, parts_of, with_parts
from sinks.delta import delta_kind

CACHE = {"kind": "redis", "url": "redis://h/0", "password": "env:NOBODY_HAS_SET_THIS"}
FILES = {"kind": "delta", "path": "/lake"}
DELTA = {**FILES, "engine": "spark"}
FOLDER = {"kind": "iceberg", "catalog": "postgresql://h/l", "path": "/l", "password": "env:NOBODY_HAS_SET_THIS"}
S3 = {**FOLDER, "path": "s3://b/l", "prefix": "far"}
REST = {"kind": "iceberg", "catalog": "https://lake.example", "prefix": "rest"}
DELTAS, ICEBERGS, AMAZONS = OF_SINKS
ALL = {"cache": CACHE, "files": {**FILES, "path": "/files"}, "delta": DELTA, "lake": FOLDER, "far": S3, "rest": REST}

TOML = """
name = "shop"
[source]
dsn = "host=h"
tables = ["a.b"]
[log]
bootstrap_servers = "k:1"
[sinks.cache]
kind = "redis"
url = "redis://h/0"
password = "env:NOBODY_HAS_SET_THIS"
[sinks.lake]
kind = "delta"
path = "/lake"
engine = "spark"
"""


def settings_of(sinks: dict[str, dict[str, Any]]) -> Settings:
    return parse_settings(
        {
            "name": "shop",
            "source": {"dsn": "host=h", "tables": ["a.b"]},
            "log": {"bootstrap_servers": "k:1"},
            "sinks": sinks,
        }
    )


@pytest.mark.parametrize(
    ("names", "sets"),
    [
        (["cache"], []),
        (["cache", "files"], []),
        (["files", "delta"], [DELTAS]),
        (["delta", "lake"], [DELTAS, ICEBERGS]),
        (["rest"], [ICEBERGS]),
        (["rest", "lake"], [ICEBERGS]),
        (["lake", "far"], [ICEBERGS, AMAZONS]),
        ([], [DELTAS, ICEBERGS, AMAZONS]),
    ],
)
def test_h458_sinks_ask_for_the_jars_that_they_need(names: list[str], sets: list[str]) -> None:
    """No secret is read: who submits may have none."""
    assert jar_sets(parts_of(settings_of(ALL), names)) == sets
    assert set(sets) <= set(locked())


def test_a_sink_that_is_not_there_has_no_jars() -> None:
    with pytest.raises(UsageError, match="there is no sink lakes"):
        parts_of(settings_of(ALL), ["lakes"])


@pytest.mark.parametrize(
    ("names", "brought"),
    [
        (["cache"], {"spark-sql-kafka-0-10_2.13"}),
        (["delta"], {"spark-sql-kafka-0-10_2.13", "delta-spark_4.1_2.13"}),
        (["rest"], {"spark-sql-kafka-0-10_2.13", "iceberg-spark-runtime-4.1_2.13"}),
        (["rest", "lake"], {"spark-sql-kafka-0-10_2.13", "iceberg-spark-runtime-4.1_2.13", "postgresql"}),
        (
            ["far"],
            {"spark-sql-kafka-0-10_2.13", "iceberg-spark-runtime-4.1_2.13", "postgresql", "iceberg-aws-bundle"},
        ),
    ],
)
def test_h458_each_needed_class_is_in_a_jar_of_its_sets(names: list[str], brought: set[str]) -> None:
    parts = parts_of(settings_of(ALL), names)
    coordinates = set(needed_classes(parts).values())
    assert {one.split(":")[1] for one in coordinates} == brought
    sets = ("spark-kafka", *jar_sets(parts))
    assert coordinates <= {str(jar.coordinate) for name in sets for jar in locked()[name].jars}


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that has the sets, their jars being empty files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("spark-kafka", *OF_SINKS):
        one = locked()[name]
        place = tmp_path / "cache" / "headrace" / "jars" / f"{name}-{one.digest}"
        place.mkdir(parents=True)
        marks = {}
        for jar in one.jars:
            path = place / jar.coordinate.file_name
            path.touch()
            marks[path.name] = [0, path.stat().st_mtime_ns]
        (place / "verified.json").write_bytes(orjson.dumps(marks))
    return tmp_path


@pytest.mark.parametrize(("names", "sets"), [([], ("spark-kafka", DELTAS)), (["cache"], ("spark-kafka",))])
def test_h458_the_command_prints_what_spark_submit_takes(
    fetched: Path, capsys: pytest.CaptureFixture[str], names: list[str], sets: tuple[str, ...]
) -> None:
    """And feeds nothing: there is no Kafka here, and no secret."""
    config = fetched / "cdc.toml"
    config.write_text(TOML, encoding="utf-8")
    assert run(["sink", "--jars", "--config", str(config), *names]) == Exit.OK
    (line,) = capsys.readouterr().out.splitlines()
    jars = [Path(one) for one in line.split(",")]
    assert all(jar.is_file() for jar in jars)
    assert {jar.name for jar in jars} == {jar.coordinate.file_name for name in sets for jar in locked()[name].jars}


def test_a_users_codec_goes_before_that_of_delta() -> None:
    name = "spark.sql.parquet.compression.codec"
    assert with_parts([delta_kind.SPARK_PARTS], {}, Path("/work"))[name] == delta_kind.CODEC
    assert with_parts([delta_kind.SPARK_PARTS], {name: "snappy"}, Path("/work"))[name] == "snappy"
