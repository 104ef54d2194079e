"""The Delta warehouse as a kind of sink."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from cdc.anchored_paths import PATH
from cdc.checks.facts import StoreFacts
from cdc.checks.finding import Finding, warn
from cdc.setting_types import Secret, SecretRef
from cdc.sink_settings import SinkSettings
from sinks.kinds import Rebuilds, SinkKind
from sinks.registry import SinkSpec

RELATIVE = "relative"
"""The note of a store whose path counts from the folder of the process: the path as it was written."""


class DeltaSinkSettings(SinkSettings):
    """A warehouse of Delta tables, written without a JVM."""

    kind: Literal["delta"] = Field("delta", description="Delta tables")
    path: Annotated[str, PATH] = Field(description="folder or object store URL")
    storage_options: dict[str, str] = Field(default_factory=dict, description="passed to the object store")
    storage_secrets: dict[str, SecretRef] = Field(
        default_factory=dict, description="the same for values that are secret"
    )

    @property
    def place(self) -> str:
        return self.path.rstrip("/")

    def options(self) -> dict[str, Any]:
        return {"path": self.path, **{f"storage.{name}": value for name, value in self.storage_options.items()}}

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


KIND = SinkKind(
    name="delta",
    settings=DeltaSinkSettings,
    opener="sinks.delta.delta_store:open_delta",
    probe="sinks.delta.delta_probe:probe_delta",
    facts=check_path,
    generations=Rebuilds(
        opener="sinks.delta.delta_generations:open_generations", beside=generation_folder, apart=False
    ),
    traces="sinks.delta.delta_traces:open_traces",
    notes="sinks.delta.delta_notes:open_notes",
    manual="sinks/README.md",
    fills_lost_tables=False,
    example=("warehouse", {"path": "warehouse"}),
)
