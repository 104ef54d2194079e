"""Where an Iceberg warehouse is: its settings, and what Spark and pyiceberg are told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cdc.jvm.jars import locked
from cdc.process.errors import ConfigError
from sinks.contract.kinds import spec_for
from sinks.contract.stores import jar_sets, with_parts
from sinks.iceberg.iceberg_catalog import LakePlace
from sinks.iceberg.iceberg_kind import SPARK_PARTS, SPARK_PARTS_S3, IcebergSinkSettings, spark_parts

SECRET = "kein-wort-davon"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"catalog": "mysql://db/x", "path": "lake"}, "catalog begins with postgresql://"),
        ({"catalog": "postgresql://db/x"}, "a JDBC catalog needs path"),
        ({"catalog": "https://lake", "namespace": "shop__2"}, "is a generation's"),
        ({"catalog": "https://lake", "path": "lake"}, "leave path out"),
        ({"catalog": "postgresql://db/x", "path": "gs://bucket/lake"}, "no other object store has been tried"),
    ],
)
def test_settings_that_do_not_fit_the_catalog_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        IcebergSinkSettings(**given)


@pytest.mark.parametrize(("prefix", "more"), [("shop__2", {}), ("shop", {"namespace": "shop__2"})])
def test_h388_a_namespace_like_a_generations_is_refused(prefix: str, more: dict[str, str]) -> None:
    spec = spec_for("iceberg", prefix=prefix, options={"catalog": "https://lake", **more})
    with pytest.raises(ConfigError, match="shop__2 is called like that of a generation"):
        LakePlace.of(spec)


def test_a_rest_catalog_is_told_alike_to_spark_and_to_pyiceberg() -> None:
    options = {"catalog": "https://lake.example", "catalog.warehouse": "main", "catalog.scope": "x"}
    spec = spec_for("iceberg", prefix="shop", options=options, secrets={"catalog.credential": SECRET})
    place = LakePlace.of(spec)
    same = {"uri": "https://lake.example", "warehouse": "main", "scope": "x", "credential": SECRET}
    assert place.for_pyiceberg() == same
    files = {"hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem", "hadoop.fs.file.impl.disable.cache": "true"}
    assert place.for_spark() == {**same, **files, "type": "rest", "cache-enabled": "false"}
    assert SECRET not in repr(place)


def test_a_database_with_tls_is_told_so_to_both() -> None:
    options = {"catalog": "postgresql://cdc@db:6432/lake?sslmode=require&application_name=x", "path": "s3://b/lake/"}
    place = LakePlace.of(spec_for("iceberg", prefix="shop", options=options, secrets={"password": SECRET}))
    spark = place.for_spark()
    assert spark["uri"] == "jdbc:postgresql://db:6432/lake?connectTimeout=10&socketTimeout=60&sslmode=require"
    assert (spark["jdbc.user"], spark["jdbc.password"], spark["warehouse"]) == ("cdc", SECRET, "s3://b/lake")
    assert "sslmode=require" in place.for_pyiceberg()["uri"]
    assert SECRET not in place.shown


def test_the_coordinate_is_the_one_that_is_locked() -> None:
    assert SPARK_PARTS.coordinate in {str(jar.coordinate) for jar in locked()[SPARK_PARTS.jars].jars}


@pytest.mark.parametrize(
    ("given", "s3"),
    [
        ({"path": "/lake"}, False),
        ({"path": "s3://bucket/lake"}, True),
        ({"catalog.warehouse": "s3://bucket/lake"}, True),
        ({"catalog.warehouse": "main", "catalog.s3.endpoint": "http://store"}, True),
        ({"catalog.warehouse": "main"}, False),
    ],
)
def test_a_warehouse_in_s3_asks_for_its_jar_as_well(given: dict[str, str], s3: bool) -> None:
    parts = spark_parts(given)
    assert parts == (SPARK_PARTS_S3 if s3 else SPARK_PARTS)
    assert jar_sets([SPARK_PARTS, parts]) == ["iceberg-spark", *(["iceberg-aws"] if s3 else [])]
    assert set(jar_sets([parts])) <= set(locked())
    assert with_parts([SPARK_PARTS, parts], {}, Path("/work"))["spark.sql.extensions"] == SPARK_PARTS.extension


def test_spark_reads_a_warehouse_in_s3_by_amazons_client() -> None:
    options = {"catalog": "postgresql://db/lake", "path": "s3://b/lake", "catalog.s3.endpoint": "http://store"}
    place = LakePlace.of(spec_for("iceberg", prefix="shop", options=options, secrets={"catalog.s3.x": SECRET}))
    assert place.for_spark()["io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
    assert "io-impl" not in place.for_pyiceberg()
    assert place.for_spark()["s3.x"] == place.for_pyiceberg()["s3.x"] == SECRET
