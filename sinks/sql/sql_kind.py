"""The SQL warehouse as a kind of sink."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from cdc.settings.setting_types import SecretRef, Url
from cdc.settings.sink_settings import WarehouseSettings
from sinks.contract.kinds import Rebuilds, SinkKind
from sinks.contract.sink_spec import SinkSpec

LIVE = "_live"


class SqlSinkSettings(WarehouseSettings):
    """A warehouse in any database SQLAlchemy speaks."""

    kind: Literal["sql"] = Field("sql", description="tables of a database")
    url: Url = Field(description="SQLAlchemy url without a password")
    password: SecretRef | None = Field(None, description="env:NAME, file:PATH or command:PROGRAM")
    db_schema: str | None = Field(
        None,
        description="schema for the tables (the source's schema in the table name unless set)",
        examples=["replica"],
    )
    live_views: str = Field(
        LIVE, pattern=r"^(_\w{1,30})?$", description="ending of the view of live rows beside each table, empty for none"
    )

    @property
    def place(self) -> str:
        return f"{self.url.rstrip('/')} {self.db_schema or ''}"


def generation_tables(spec: SinkSpec, number: int) -> SinkSpec:
    """The warehouse of a generation that is filled: tables beside, which the ending of their names distinguishes."""
    options = {**spec.options, "table_suffix": f"__{number}"}
    return replace(spec, prefix=f"{spec.prefix}@{number}", options=options)


KIND = SinkKind(
    name="sql",
    settings=SqlSinkSettings,
    opener="sinks.sql.sql_store:open_sql",
    probe="sinks.sql.sql_client:probe_sql",
    generations=Rebuilds(opener="sinks.sql.sql_generations:open_generations", beside=generation_tables, apart=False),
    manual="sinks/README.md",
    kept="the key of the delete, without values, for {replay_window}. What was written over the database cleans",
    meant_by=("postgres",),
    example=("reports", {"url": "postgresql+psycopg://cdc@127.0.0.1:5432/reports"}),
    shown=False,
)
