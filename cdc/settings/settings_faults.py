"""The faults of a settings file, in our words: pydantic's faults as a sentence and a hint."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from cdc.process.errors import ConfigError

if TYPE_CHECKING:
    from cdc.settings.sink_settings import Kinds

Location = tuple[str, ...]
Fault = Mapping[str, Any]
"""One of pydantic's error details: ``type``, ``loc``, ``msg``."""
EXAMPLE = "cdc config example prints every setting"
_UNKNOWN_KIND = "unknown_kind"

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
}
_PATTERNS: Mapping[str, tuple[str, str]] = {
    "name": (
        "begins with a letter, and has at most 51 letters, digits, _ and -",
        "it is the prefix of every topic, and names slot and publication",
    ),
    "slot": ("has 1 to 63 lower-case letters, digits and _", "Postgres takes no other names for slots"),
}


@dataclass(frozen=True, slots=True)
class KnownSettings:
    """The settings that exist. ``sections``: models by section, "" for the file itself. ``document``: what is read."""

    sections: Mapping[str, type[BaseModel]]
    document: Mapping[str, Any]
    kinds: Kinds | None = None

    def kind_at(self, location: Sequence[str]) -> str | None:
        """The kind of the sink that a place belongs to."""
        return kinds_in(self.document).get(location[1]) if location[:1] == ("sinks",) and len(location) > 1 else None

    def settings(self, path: Sequence[str], kind: str | None) -> Sequence[str]:
        """Names of the settings at a place. ``kind``: of the sink there, if it is one."""
        model: type[BaseModel] | None
        if path and path[0] == "sinks":
            model = self.kinds.model(kind) if self.kinds is not None and kind is not None else None
        else:
            model = self.sections.get(path[0] if path else "")
        return list(model.model_fields) if model is not None else []

    def names(self) -> Sequence[str]:
        """Every kind of sink."""
        return self.kinds.names() if self.kinds is not None else ()

    def page(self, kind: str | None) -> str:
        """Where the settings of a section are described, as a hint."""
        said = self.kinds.manual(kind) if self.kinds is not None and kind is not None else ""
        return f"a sink of kind {kind} is described in {said}" if said else EXAMPLE


def kinds_in(document: Mapping[str, Any]) -> dict[str, str]:
    """The kinds of a document's sinks, by their names. Sections that say none are left out."""
    sections = document.get("sinks")
    if not isinstance(sections, dict):
        return {}
    found = {name: section.get("kind") for name, section in sections.items() if isinstance(section, dict)}
    return {name: kind for name, kind in found.items() if isinstance(kind, str)}


def faults_of(error: ValidationError, at: Location = ()) -> list[Fault]:
    """The faults that pydantic found at a place of the document."""
    found = error.errors(include_input=False, include_url=False)
    return [{**fault, "loc": (*at, *fault["loc"])} for fault in found]


def unknown_kind(sink: str, kind: str) -> Fault:
    """The fault of a sink whose kind there is not."""
    return {"type": _UNKNOWN_KIND, "loc": ("sinks", sink, "kind"), "msg": kind}


def config_error(
    faults: Sequence[Fault], origin: str, known: KnownSettings, variables: Mapping[Location, str]
) -> ConfigError:
    """All faults, each with its hint: unknown settings first. A setting that is missing is left out where an unknown
    one is likely to be meant for it.

    ``origin``: the file. ``variables``: which places were set from the environment, by which variable: those are
    blamed, not the file.
    """
    unknown = [fault for fault in faults if fault["type"] == "extra_forbidden"]
    meant = {(*place[:-1], near) for place in map(_place, unknown) for near in _near(place, known)}
    others = [
        fault
        for fault in faults
        if fault["type"] != "extra_forbidden" and not (fault["type"] == "missing" and _place(fault) in meant)
    ]
    # By their words: one value can have several faults of a kind.
    found = {error.message: error for error in (_explained(one, origin, known, variables) for one in unknown + others)}
    first, *rest = found.values()
    first.others = rest
    return first


_WAREHOUSE = "a store of this kind has each row as it is now; histories are for the kinds delta, iceberg and sql"


def _is_history(location: Location) -> bool:
    return location[:1] == ("sinks",) and location[2:] == ("history",)


def _place(fault: Fault) -> Location:
    return tuple(str(part) for part in fault["loc"])


def _explained(fault: Fault, origin: str, known: KnownSettings, variables: Mapping[Location, str]) -> ConfigError:
    location = _place(fault)
    where, last = ".".join(location), location[-1] if location else ""
    blamed = _variable(location, variables) or f"{origin}: {where}"
    if fault["type"] == "extra_forbidden":
        # A section that is none may have come with the variable.
        laid = (name for place, name in variables.items() if place[: len(location)] == location)
        sentence = f"{_variable(location, variables) or next(laid, origin)}: unknown setting {where}"
        return ConfigError(sentence, hint=_WAREHOUSE if _is_history(location) else _likely(location, known))
    if location[:1] == ("sinks",):
        of_sinks = _sinks_error(fault, location, origin, known, variables)
        if of_sinks is not None:
            return of_sinks
    if fault["type"] == "string_pattern_mismatch" and last in _PATTERNS:
        words, hint = _PATTERNS[last]
        return ConfigError(f"{blamed} {words}", hint=hint)
    page = known.page(known.kind_at(location))
    if fault["type"] in _TYPES:
        words, hint = _TYPES[fault["type"]]
        if where in variables.values() or _variable(location, variables):
            hint = 'a variable holds TOML: ["public.orders"], true, 4 or text'
        hint = page if hint == EXAMPLE else hint.format(where=where, last=last)
        return ConfigError(f"{blamed} {words}", hint=hint)
    message = fault["msg"].removeprefix("Value error, ")
    return ConfigError(f"{blamed}: {message[:1].lower()}{message[1:]}", hint=page)


def _sinks_error(
    fault: Fault, location: Location, origin: str, known: KnownSettings, variables: Mapping[Location, str]
) -> ConfigError | None:
    """The faults that only a sink's section can have: its kind, or that it is no section."""
    blamed = _variable(location, variables) or f"{origin}: {'.'.join(location[:2])}"
    if fault["type"] == _UNKNOWN_KIND:
        return _no_such_kind(blamed, fault["msg"], known)
    if fault["type"] == "missing" and location[2:] == ("kind",):
        return ConfigError(f"{blamed} has no kind", hint=f"write kind = {_choice(known.names(), 'or')}")
    if len(location) == 2 and fault["type"] in ("model_type", "model_attributes_type"):
        return ConfigError(f"{blamed} stands outside of a sink", hint="a sink is a section [sinks.NAME]; NAME is yours")
    return None


def _variable(location: Location, variables: Mapping[Location, str]) -> str | None:
    return next((name for place, name in variables.items() if location[: len(place)] == place), None)


def _near(location: Location, known: KnownSettings) -> Sequence[str]:
    """The setting whose name is nearest to one that does not exist. Empty where none is near."""
    return difflib.get_close_matches(location[-1], known.settings(location[:-1], known.kind_at(location)), n=1)


def _likely(location: Location, known: KnownSettings) -> str:
    kind, last = known.kind_at(location), location[-1]
    close = _near(location, known)
    if close:
        return f'did you mean "{close[0]}"?'
    others = [other for other in known.names() if kind is not None and last in known.settings(location[:-1], other)]
    if others:
        return f'it is a setting of kind = "{others[0]}"; this sink is of kind {kind}'
    sections = [name for name in known.sections if name and last in known.settings((name,), None)]
    if len(sections) == 1 and location != (sections[0], last):
        return f"it is a setting of [{sections[0]}]"
    return known.page(kind)


def _no_such_kind(blamed: str, kind: str, known: KnownSettings) -> ConfigError:
    meant = known.kinds.meant(kind) if known.kinds is not None else None
    likely = meant or next(iter(difflib.get_close_matches(kind, known.names(), n=1)), None)
    hint = f'did you mean kind = "{likely}"?' if likely else f"the kinds are {_choice(known.names(), 'and')}"
    return ConfigError(f"{blamed}: there is no kind of sink called {kind}", hint=hint)


def _choice(names: Sequence[str], word: str) -> str:
    quoted = [f'"{name}"' for name in names]
    return f" {word} ".join(part for part in (", ".join(quoted[:-1]), *quoted[-1:]) if part)
