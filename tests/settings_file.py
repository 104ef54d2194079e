"""Settings of a test as a file that programs read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit


def write_settings(folder: Path, document: Mapping[str, Any]) -> Path:
    """``cdc.toml`` in the folder with what the document says now; whole for whoever is just reading it."""
    path, new = folder / "cdc.toml", folder / "cdc.toml.new"
    new.write_text(tomlkit.dumps(document), encoding="utf-8")
    return new.replace(path)
