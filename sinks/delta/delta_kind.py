"""The Delta warehouse as a kind of sink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, Self

import orjson
from pydantic import Field, model_validator

from cdc.checks.findings import Finding, warn
from cdc.record.server_facts import StoreFacts
from cdc.settings.setting_types import PATH, Secret, SecretRef
from cdc.settings.sink_settings import WarehouseSettings
from sinks.contract.kinds import Rebuilds, SinkKind, SparkParts, SparkReads
from sinks.contract.sink_spec import Option, SinkSpec

EMBEDDED: Final = "embedded"
SPARK: Final = "spark"
ENGINE = "engine"
"""The note of a warehouse that says who writes it. One without it is the embedded engine's."""
RELATIVE = "relative"
"""The note of a store whose path counts from the folder of the process: the path as it was written."""


class DeltaSinkSettings(WarehouseSettings):
    """A warehouse of Delta tables, written without a JVM or by Spark."""

    kind: Literal["delta"] = Field("delta", description="Delta tables")
    path: Annotated[str, PATH] = Field(description="folder or object store URL")
    engine: Literal["embedded", "spark"] = Field(
        EMBEDDED,
        description="embedded: rewrites files, without a JVM. spark: merges on executors, with deletion vectors",
    )
    storage_options: dict[str, str] = Field(default_factory=dict, description="passed to the object store")
    storage_secrets: dict[str, SecretRef] = Field(
        default_factory=dict, description="the same for values that are secret"
    )

    partition_by: dict[str, str | Annotated[int, Field(ge=2, le=4096)]] = Field(
        {}, description="by table, a column whose values its files lie apart by, or a number of parts by the key's hash"
    )

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        for table in self.partition_by:
            if "." not in table:
                raise ValueError(f'partition_by: {table} is no table: write "schema.table"')
        return self

    @property
    def place(self) -> str:
        return self.path.rstrip("/")

    def options(self) -> dict[str, Any]:
        storage = {f"storage.{name}": value for name, value in self.storage_options.items()}
        engine = {} if self.engine == EMBEDDED else {"engine": self.engine}
        by = {"partition_by": orjson.dumps(self.partition_by).decode()} if self.partition_by else {}
        return {"path": self.path, **engine, **by, **storage}

    def secrets(self) -> dict[str, Secret]:
        return {f"storage.{name}": secret for name, secret in self.storage_secrets.items()}


def generation_folder(spec: SinkSpec, number: int) -> SinkSpec:
    """The warehouse of a generation that is filled: a folder below the root."""
    return replace(spec, options={**spec.options, "path": f"{spec.text('path').rstrip('/')}/_generation_{number}"})


def check_path(name: str, facts: StoreFacts) -> Iterator[Finding]:
    """From another folder, the same settings would find an empty warehouse."""
    path = facts.notes.get(RELATIVE)
    if path is not None:
        message = f"the path {path} is relative: it counts from the folder in which cdc is started"
        yield warn(name, "path", message, 'write it from the root, as path = "/srv/warehouse"')


CODEC: Final = "zstd"
"""Of the rows' files, whichever engine writes them: less than half of what snappy makes of texts, in less CPU."""

SPARK_PARTS = SparkParts(
    product="Delta Lake",
    jars="delta-spark",
    coordinate="io.delta:delta-spark_4.1_2.13:4.3.1",
    extension="io.delta.sql.DeltaSparkSessionExtension",
    conf={
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # By default snappy. Here and not in the store's session, so that a user's own setting wins.
        "spark.sql.parquet.compression.codec": CODEC,
    },
)


def spark_parts(options: Mapping[str, Option]) -> SparkParts | None:
    """Of a warehouse that Spark merges. None for one of the embedded engine."""
    return SPARK_PARTS if options.get("engine") == SPARK else None


# By default 50 tasks read the log of a table, for each batch.
_READING = replace(SPARK_PARTS, conf={**SPARK_PARTS.conf, "spark.databricks.delta.snapshotPartitions": "1"})

KIND = SinkKind(
    name="delta",
    settings=DeltaSinkSettings,
    opener="sinks.delta.delta_store:open_delta",
    probe="sinks.delta.delta_storage:probe_delta",
    facts=check_path,
    generations=Rebuilds(
        opener="sinks.delta.delta_generations:open_generations", beside=generation_folder, apart=False
    ),
    manual="sinks/README.md",
    kept="the key of the delete, without values, for {replay_window}. Replaced files and older versions for the "
    "table's delta.deletedFileRetentionDuration, then until the sink's next VACUUM. Bounds of columns in the "
    "table's log for its delta.logRetentionDuration. Rows behind deletion vectors until REORG TABLE … APPLY "
    "(PURGE)",
    fills_lost_tables=False,
    spark=spark_parts,
    reads=SparkReads(parts=_READING, source="delta", place="sinks.delta.spark_delta:table_place"),
    example=("warehouse", {"path": "warehouse"}),
)
