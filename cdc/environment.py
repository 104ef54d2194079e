"""``CDC_*`` environment variables, laid over the settings file."""

from __future__ import annotations

import tomllib
from typing import Any

from cdc.errors import ConfigError

OURS = frozenset({"CDC_CONFIG", "CDC_CRASH_AT"})


def overlay(document: dict[str, Any], environment: dict[str, str]) -> dict[tuple[str, ...], str]:
    """Put ``CDC_SECTION__KEY`` variables over the document, in place. Values are TOML where they parse as it.

    ``CDC_NAME`` is the pipeline's name, the one setting without a section. Returns which place was set by which
    variable. ConfigError for a variable whose section is none.
    """
    laid: dict[tuple[str, ...], str] = {}
    for variable, text in sorted(environment.items()):
        if variable in OURS or not variable.startswith("CDC_") or not ("__" in variable or variable == "CDC_NAME"):
            continue
        place = tuple(variable[len("CDC_") :].lower().split("__"))
        target: Any = document
        for part in place[:-1]:
            target = target.setdefault(part, {})
            if not isinstance(target, dict):
                raise ConfigError(
                    f"the environment variable {variable} names a section, and {part} is none",
                    hint="a list is one variable: CDC_SOURCE__TABLES='[\"public.orders\"]'",
                )
        target[place[-1]] = _value(text)
        laid[place] = f"the environment variable {variable}"
    return laid


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
