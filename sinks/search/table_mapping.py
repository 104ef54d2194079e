"""The section of one table's mapping: what it may say, before any table or server is known. Loads no client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from cdc.setting_types import SettingsModel
from sinks.search.mapping_words import COLUMNS, GEO_POINT, KNN

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
