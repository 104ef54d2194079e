"""The Iceberg warehouse as a kind of sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from cdc.settings.setting_types import PATH, Secret, SecretRef, SomeTime, Url
from cdc.settings.sink_settings import WarehouseSettings
from sinks.contract.kinds import Rebuilds, SinkKind, SparkParts
from sinks.contract.sink_spec import Option

JDBC, REST = ("postgresql://", "postgres://"), ("http://", "https://")
S3: Final = "s3://"
PROPERTY: Final = "catalog."
"""Begins the options that are passed to the catalog and to the object store."""


def is_beside(namespace: str) -> bool:
    """Whether a namespace is called like that of a generation beside one.

    >>> is_beside("shop__2"), is_beside("shop_2"), is_beside("__2")
    (True, False, False)
    """
    base, _, number = namespace.rpartition("__")
    return bool(base) and number.isdecimal()


class IcebergSinkSettings(WarehouseSettings):
    """A warehouse of Iceberg tables. Spark merges them."""

    kind: Literal["iceberg"] = Field("iceberg", description="Iceberg tables")
    catalog: Url = Field(
        description="postgresql://USER@HOST:PORT/DATABASE: a JDBC catalog there. https://…: a REST catalog"
    )
    password: SecretRef | None = Field(
        None, description="of the JDBC catalog's user. env:NAME, file:PATH or command:PROGRAM"
    )
    path: Annotated[str, PATH] | None = Field(
        None, description="folder, or s3://BUCKET/PREFIX, of the tables. For a JDBC catalog", examples=["lake"]
    )
    catalog_name: str = Field(
        "lake", pattern=r"^[a-z][a-z0-9_]*$", description="the catalog's name: in the JDBC catalog's own tables, too"
    )
    namespace: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_]+$",
        description="where the tables are, the sink's prefix unless set",
        examples=["shop"],
    )
    snapshots_for: SomeTime = Field(
        timedelta(hours=1), description="keep replaced files and old snapshots for readers so long"
    )
    compact_files: int = Field(16, ge=2, description="join files of a table when so many are small")
    catalog_options: dict[str, str] = Field(
        default_factory=dict, description="passed to the catalog and to the object store"
    )
    catalog_secrets: dict[str, SecretRef] = Field(
        default_factory=dict, description="the same for values that are secret"
    )

    @model_validator(mode="after")
    def _fits_the_catalog(self) -> Self:
        if not self.catalog.startswith((*JDBC, *REST)):
            raise ValueError("catalog begins with postgresql:// (a JDBC catalog), or with https:// (a REST catalog)")
        if self.catalog.startswith(JDBC) and self.path is None:
            raise ValueError("a JDBC catalog needs path, the folder or object store of the tables")
        if self.namespace is not None and is_beside(self.namespace):
            raise ValueError("a namespace that ends in __NUMBER is a generation's: choose another one")
        if self.path is not None and "://" in self.path and not self.path.startswith(S3):
            raise ValueError("path is a folder, or s3://BUCKET/PREFIX: no other object store has been tried")
        if self.catalog.startswith(REST) and self.path is not None:
            raise ValueError("a REST catalog says itself where tables are: leave path out")
        return self

    @property
    def place(self) -> str:
        return "/".join(
            (
                self.catalog.rstrip("/"),
                self.catalog_options.get("warehouse", ""),
                self.catalog_name,
                self.namespace or "",
            )
        )

    def options(self) -> dict[str, Any]:
        given = {
            "catalog": self.catalog,
            "path": self.path,
            "catalog_name": self.catalog_name,
            "namespace": self.namespace,
            "snapshots_for_s": self.snapshots_for.total_seconds(),
            "compact_files": self.compact_files,
        }
        return {**given, **{f"{PROPERTY}{name}": value for name, value in self.catalog_options.items()}}

    def secrets(self) -> dict[str, Secret]:
        given = {} if self.password is None else {"password": self.password}
        return {**given, **{f"{PROPERTY}{name}": secret for name, secret in self.catalog_secrets.items()}}


SPARK_PARTS = SparkParts(
    product="Iceberg",
    jars="iceberg-spark",
    coordinate="org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
    extension="org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)


SPARK_PARTS_S3 = replace(
    SPARK_PARTS,
    more_jars=("iceberg-aws",),
    classes={"software.amazon.awssdk.services.s3.S3Client": "org.apache.iceberg:iceberg-aws-bundle:1.11.0"},
)

_JDBC_DRIVER = {"org.postgresql.Driver": "org.postgresql:postgresql:42.7.8"}
"""A JDBC catalog's. The set ``iceberg-spark`` has it for all."""


def in_s3(options: Mapping[str, Option]) -> bool:
    """Whether the tables are in S3: by where the warehouse is, or by what the client of S3 is told."""
    places = (options.get("path"), options.get(f"{PROPERTY}warehouse"))
    return any(str(one).startswith(S3) for one in places) or any(n.startswith(f"{PROPERTY}s3.") for n in options)


def spark_parts(options: Mapping[str, Option]) -> SparkParts:
    """Spark merges every Iceberg warehouse."""
    parts = SPARK_PARTS_S3 if in_s3(options) else SPARK_PARTS
    by_jdbc = str(options.get("catalog", "")).startswith(JDBC)
    return replace(parts, classes={**parts.classes, **_JDBC_DRIVER}) if by_jdbc else parts


KIND = SinkKind(
    name="iceberg",
    settings=IcebergSinkSettings,
    opener="sinks.iceberg.iceberg_store:open_iceberg",
    probe="sinks.iceberg.iceberg_catalog:probe_iceberg",
    generations=Rebuilds(opener="sinks.iceberg.iceberg_generations:open_generations", apart=False),
    manual="sinks/README.md",
    kept="the key of the delete, without values, for {replay_window}. Replaced files and older snapshots for "
    "{snapshots_for} (snapshots_for)",
    fills_lost_tables=False,
    spark=spark_parts,
    example=("lake", {"catalog": "postgresql://cdc@127.0.0.1:5432/lake", "path": "lake"}),
    shown=False,
)
