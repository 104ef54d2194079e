"""The search index as a kind of sink."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import Field, model_validator

from cdc.anchored_paths import PATH
from cdc.checks.facts import StoreFacts
from cdc.checks.finding import Finding, fail, ok
from cdc.setting_types import SecretRef, Url
from cdc.sink_settings import SinkSettings
from sinks.kinds import Rebuilds, SinkKind
from sinks.search.table_mapping import TableMapping


class OpenSearchSinkSettings(SinkSettings):
    """A search index in OpenSearch or Elasticsearch."""

    kind: Literal["opensearch"] = Field("opensearch", description="OpenSearch or Elasticsearch")
    url: Url = Field(description="http(s)://host:port")
    user: str | None = Field(None, description="user of basic authentication")
    password: SecretRef | None = Field(None, description="env:NAME, file:PATH or command:PROGRAM")
    ca_certs: Annotated[str | None, PATH] = Field(None, description="file of the certificate authority")
    shards: int = Field(1, ge=1, description="primary shards of each new index")
    replicas: int = Field(0, ge=0, description="copies of each shard")
    json_mapping: Literal["flat_object", "object", "text"] = Field(
        "flat_object", description="how json and jsonb are indexed"
    )
    mappings: dict[str, TableMapping] = Field(
        {}, description="by table, your own mapping of its columns and settings of its index"
    )

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        for table, said in self.mappings.items():
            if "." not in table:
                raise ValueError(f'mappings: {table} is no table: write "schema.table"')
            if self.json_mapping == "text" and said.json_fields():
                [name, *_] = said.json_fields()
                raise ValueError(f'mappings: {name} of {table} is JSON, which json_mapping = "text" makes text')
        return self

    def options(self) -> dict[str, Any]:
        own = {table: said.model_dump() for table, said in self.mappings.items()}
        return {**super().options(), **({"mappings": orjson.dumps(own).decode()} if own else {})}

    @property
    def place(self) -> str:
        return self.url.rstrip("/")


def check_health(name: str, facts: StoreFacts) -> Iterator[Finding]:
    """A red cluster lacks shards, and refuses what belongs to them."""
    health = facts.notes.get("health", "")
    if health == "red":
        message = f"{facts.product}'s cluster health is red: some primary shards are not there"
        yield fail(name, "health", message, "GET _cluster/allocation/explain says why")
    else:
        yield ok(name, "health", f"{facts.product}'s cluster health is {health or 'unknown'}")


KIND = SinkKind(
    name="opensearch",
    settings=OpenSearchSinkSettings,
    opener="sinks.search.search_store:open_search",
    probe="sinks.search.search_probe:probe_search",
    facts=check_health,
    parallel=True,
    generations=Rebuilds(opener="sinks.search.search_generations:open_generations"),
    manual="sinks/README.md",
    kept="the key of the delete, without values, for {replay_window}. Documents that were written over until the "
    "server merges their segments: _forcemerge does it at once",
    oldest={"opensearch": 2, "elasticsearch": 7},
    meant_by=("elasticsearch", "elastic"),
    example=("search", {"url": "http://127.0.0.1:9200"}),
)
