"""The folder as a kind of sink: what the entry point names. It imports no client and no Arrow."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cdc.settings.sink_settings import SinkSettings
from sinks.contract.kinds import Rebuilds, SinkKind


class FolderSinkSettings(SinkSettings):
    """A folder of JSON files, one per row."""

    kind: Literal["folder"] = Field("folder", description="JSON files")
    path: str = Field(description="the folder")


KIND = SinkKind(
    name="folder",
    settings=FolderSinkSettings,
    opener="folderstore.folder_store:open_folder",
    probe="folderstore.folder_store:probe_folder",
    parallel=True,
    generations=Rebuilds(opener="folderstore.folder_generations:open_generations"),
    manual="the README of folderstore",
)
