"""What is wrong with a settings file, in our words: pydantic's faults as a sentence and a hint."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence

from pydantic import ValidationError

from cdc.errors import ConfigError

Location = tuple[str, ...]
KINDS = ("redis", "opensearch", "delta", "sql")
EXAMPLE = "cdc config example prints every setting"
_OTHER_NAMES = {"elasticsearch": "opensearch", "elastic": "opensearch", "valkey": "redis", "postgres": "sql"}

_TYPES: Mapping[str, tuple[str, str]] = {
    "missing": ("is missing", EXAMPLE),
    "string_type": ("takes text", 'write it in quotes: {last} = "..."'),
    "tuple_type": ("takes a list", 'write {last} = ["..."]'),
    "int_type": ("takes a whole number", "write {last} = 4, without quotes"),
    "int_parsing": ("takes a whole number", "write {last} = 4, without quotes"),
    "int_from_float": ("takes a whole number", "write {last} = 4"),
    "bool_type": ("takes true or false", "write {last} = true, without quotes"),
    "bool_parsing": ("takes true or false", "write {last} = true, without quotes"),
    "dict_type": ("is a section", "write [{where}], and its settings below"),
    "model_type": ("is a section", "write [{where}], and its settings below"),
    "model_attributes_type": ("is a section", "write [{where}], and its settings below"),
    "union_tag_not_found": ("has no kind", 'write kind = "redis", "opensearch", "delta" or "sql"'),
}
_PATTERNS: Mapping[str, tuple[str, str]] = {
    "name": (
        "begins with a letter, and has at most 51 letters, digits, _ and -",
        "it is the prefix of every topic, and names slot and publication",
    ),
    "slot": ("has 1 to 63 lower-case letters, digits and _", "Postgres takes no other names for slots"),
}


def config_error(
    error: ValidationError,
    origin: str,
    known: Callable[[Sequence[str], str | None], Sequence[str]],
    variables: Mapping[Location, str],
) -> ConfigError:
    """The fault that explains the others: an unknown setting before one that is missing.

    ``origin``: the file. ``known``: the settings that exist at a place, of a sink's kind. ``variables``: which were set
    from the environment, by which variable: those are blamed, not the file.
    """
    faults = error.errors(include_input=False, include_url=False)
    fault = next((one for one in faults if one["type"] == "extra_forbidden"), faults[0])
    kind, location = _located(fault["loc"])
    where, last = ".".join(location), location[-1] if location else ""
    blamed = _variable(location, variables) or f"{origin}: {where}"
    if fault["type"] == "extra_forbidden":
        # A section that is none may have come with the variable.
        laid = (name for place, name in variables.items() if place[: len(location)] == location)
        sentence = f"{_variable(location, variables) or next(laid, origin)}: unknown setting {where}"
        return ConfigError(sentence, hint=_likely(location, kind, known))
    if fault["type"] == "union_tag_invalid":
        return _unknown_kind(blamed, str(fault.get("ctx", {}).get("tag", "")))
    if location[:1] == ("sinks",) and len(location) == 2 and fault["type"] in ("model_type", "model_attributes_type"):
        return ConfigError(f"{blamed} stands outside of a sink", hint="a sink is a section [sinks.NAME]; NAME is yours")
    if fault["type"] == "string_pattern_mismatch" and last in _PATTERNS:
        words, hint = _PATTERNS[last]
        return ConfigError(f"{blamed} {words}", hint=hint)
    if fault["type"] in _TYPES:
        words, hint = _TYPES[fault["type"]]
        if where in variables.values() or _variable(location, variables):
            hint = 'a variable holds TOML: ["public.orders"], true, 4 or text'
        return ConfigError(f"{blamed} {words}", hint=hint.format(where=where, last=last))
    message = fault["msg"].removeprefix("Value error, ")
    return ConfigError(f"{blamed}: {message[:1].lower()}{message[1:]}", hint=EXAMPLE)


def _located(loc: Sequence[int | str]) -> tuple[str | None, Location]:
    """The kind of sink that is meant, and the place without it: pydantic puts it behind the sink's name."""
    parts = [str(part) for part in loc]
    if len(parts) > 2 and parts[0] == "sinks" and parts[2] in KINDS:
        return parts[2], (*parts[:2], *parts[3:])
    return None, tuple(parts)


def _variable(location: Location, variables: Mapping[Location, str]) -> str | None:
    return next((name for place, name in variables.items() if location[: len(place)] == place), None)


def _likely(location: Location, kind: str | None, known: Callable[[Sequence[str], str | None], Sequence[str]]) -> str:
    close = difflib.get_close_matches(location[-1], known(location[:-1], kind), n=1)
    if close:
        return f'did you mean "{close[0]}"?'
    others = [other for other in KINDS if kind is not None and location[-1] in known(location[:-1], other)]
    if others:
        return f'it is a setting of kind = "{others[0]}"; this sink is of kind {kind}'
    return EXAMPLE


def _unknown_kind(blamed: str, kind: str) -> ConfigError:
    likely = _OTHER_NAMES.get(kind.lower()) or next(iter(difflib.get_close_matches(kind, KINDS, n=1)), None)
    hint = f'did you mean kind = "{likely}"?' if likely else 'the kinds are "redis", "opensearch", "delta" and "sql"'
    return ConfigError(f"{blamed}: there is no kind of sink called {kind}", hint=hint)
