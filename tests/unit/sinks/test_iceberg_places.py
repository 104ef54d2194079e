"""Where an Iceberg warehouse is: its settings, and what Spark and pyiceberg are told of it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from cdc.jvm.jars import locked
from sinks.iceberg.iceberg_catalog import LakePlace
from sinks.iceberg.iceberg_kind import SPARK_PARTS, IcebergSinkSettings
from sinks.kinds import spec_for

SECRET = "kein-wort-davon"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"catalog": "mysql://db/x", "path": "lake"}, "catalog begins with postgresql://"),
        ({"catalog": "postgresql://db/x"}, "a JDBC catalog needs path"),
        ({"catalog": "https://lake", "path": "lake"}, "leave path out"),
    ],
)
def test_settings_that_do_not_fit_the_catalog_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        IcebergSinkSettings(**given)


def test_a_rest_catalog_is_told_alike_to_spark_and_to_pyiceberg() -> None:
    options = {"catalog": "https://lake.example", "catalog.warehouse": "main", "catalog.scope": "x"}
    spec = spec_for("iceberg", prefix="shop", options=options, secrets={"catalog.credential": SECRET})
    place = LakePlace.of(spec)
    same = {"uri": "https://lake.example", "warehouse": "main", "scope": "x", "credential": SECRET}
    assert place.for_pyiceberg() == same
    assert place.for_spark() == {**same, "type": "rest", "cache-enabled": "false"}
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
