"""A secret by reference: where ``env:NAME`` and ``file:PATH`` are read. Executors import this, and no settings."""

from __future__ import annotations

import os
from pathlib import Path

from cdc.errors import ConfigError
from cdc.foreign import remember

REFERENCES = ("env:", "file:")
"""How a reference begins."""


def reveal(reference: str) -> str:
    """The secret itself, read now, so that a rotated one is picked up. ConfigError names the variable or file that is
    missing, never a value."""
    kind, _, where = reference.partition(":")
    revealed = _from_environment(where) if kind == "env" else _from_file(where)
    remember([revealed])
    return revealed


def _from_environment(name: str) -> str:
    if name not in os.environ:
        raise ConfigError(f"the environment variable {name} is not set", hint=f"export {name}=... first")
    return os.environ[name]


def _from_file(path: str) -> str:
    hint = 'write the secret alone into that file, readable by you alone; or use "env:NAME"'
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise ConfigError(f"the secret file {path} cannot be read: {error.strerror}", hint=hint) from None
    except UnicodeDecodeError:
        raise ConfigError(f"the secret file {path} is not UTF-8 text", hint=hint) from None
