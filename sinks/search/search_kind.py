"""The search index as a kind of sink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import Field, model_validator

from cdc.checks.findings import Finding, fail, ok
from cdc.record.server_facts import StoreFacts
from cdc.settings.setting_types import PATH, SecretRef, SettingsModel, Url
from cdc.settings.sink_settings import SinkSettings
from sinks.contract.kinds import Rebuilds, SinkKind
from sinks.contract.store_names import COLUMNS, GEO_POINT, KNN

_OF_JSON = frozenset(("nested", "object", "flat_object", "flattened"))
_NO_SETTINGS = ("refresh_interval", "gc_deletes", "blocks", "soft_deletes", "sort", "mapping.ignore_malformed")
"""Settings that the sink needs as they are."""


class TableMapping(SettingsModel):
    """How one table is indexed, where that is not as the manual's table says."""

    properties: dict[str, Any] = Field({}, description="by column, its mapping, or a geo_point of one or two columns")
    settings: dict[str, Any] = Field({}, description="settings of a new index")

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        for fault in faults_of_mapping(self.properties, self.settings):
            raise ValueError(fault)
        return self

    def json_fields(self) -> list[str]:
        """Properties of a type that JSON alone has."""
        return [name for name, given in self.properties.items() if given.get("type") in _OF_JSON]


def faults_of_mapping(properties: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[str]:
    """The faults of a table's mapping: clauses, the first one for a reader of one."""
    for name, given in properties.items():
        if not isinstance(given, Mapping) or not given:
            yield f'{name} says nothing: write {name} = {{ type = "text" }}'
        elif "type" in given and not isinstance(given["type"], str):
            yield f"{name}.type is no text"
        elif COLUMNS in given:
            yield from _faults_of_point(name, given)
        elif given.get("type") == GEO_POINT:
            yield f"{name} is a geo_point without columns: give a field of another name its columns = [...]"
        elif given.get("type") == KNN and not isinstance(given.get("dimension"), int):
            yield f"{name} is a knn_vector without a dimension: write dimension = 3"
    for name in settings:
        plain = name.removeprefix("index.")
        if any(plain == own or plain.startswith(f"{own}.") for own in _NO_SETTINGS):
            yield f"the setting {name} is the sink's own"


def _faults_of_point(name: str, given: Mapping[str, Any]) -> Iterator[str]:
    of = given[COLUMNS]
    if name.startswith("_") or "." in name:
        yield f"the field {name} begins with _ or has a dot: choose another name"
    if not isinstance(of, list) or len(of) not in (1, 2) or not all(isinstance(one, str) for one in of):
        yield f'{name}.columns is no list of one or two columns: write columns = ["latitude", "longitude"]'
    if given.get("type") != GEO_POINT:
        yield f'{name} is made of columns, and only a geo_point is: write type = "geo_point"'


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
    probe="sinks.search.search_client:probe_search",
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
