"""The settings as a JSON Schema, with which editors complete and check the file: ``cdc config schema``."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from cdc.settings import Settings
from sinks.kinds import InstalledKinds

DURATION = r"^\s*\d+(\.\d+)?\s*(ms|s|m|h|d)\s*$"
SIZE = r"^\s*\d+\s*(B|kB|MB|GB)?\s*$"
_FORMS: dict[str, JsonSchemaValue] = {
    "_byte_count": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": SIZE}]},
    "_duration": {"type": "string", "pattern": DURATION},
    "_secret": {"type": "string", "pattern": "^(env|file):"},
}
"""The forms of values in the file, by the function that reads each."""


class _AsWritten(GenerateJsonSchema):
    """Values as the file has them: durations and sizes with their unit, secrets by reference."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        form = _FORMS.get(getattr(schema["function"]["function"], "__name__", ""))
        return dict(form) if form is not None else super().function_before_schema(schema)

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Defaults stand in the manual, as a person writes them."""
        return self.generate_inner(schema["schema"])


def settings_schema() -> dict[str, Any]:
    """A JSON Schema (2020-12) of the settings file, with the sections of every kind of store that is installed.

    ConfigError when a package that brings a kind is broken.
    """
    schema = Settings.model_json_schema(schema_generator=_AsWritten)
    kinds = InstalledKinds()
    models = [model for kind in kinds.names() if (model := kinds.model(kind)) is not None]
    sections = []
    for model in models:
        section = model.model_json_schema(schema_generator=_AsWritten)
        schema["$defs"] |= section.pop("$defs", {})
        section["required"] = sorted({*section.get("required", ()), "kind"})
        sections.append(section)
    schema["properties"]["sinks"] |= {"additionalProperties": {"oneOf": sections}}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "cdc.toml", **schema}
