"""The kinds of stores that there are, ours and those of installed packages, and the settings that they check."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from cdc.checks.findings import Finding, fail, ok
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import ConfigError
from cdc.process.untrusted_text import quoted
from cdc.record.server_facts import StoreFacts
from cdc.settings.model import SECTIONS, Settings, load, parse
from cdc.settings.settings_faults import KnownSettings, config_error
from cdc.settings.settings_reference import SinkSection
from cdc.settings.sink_settings import SinkSettings, UnreadSink, read_sinks
from sinks.contract.sink_spec import Option, SinkSpec, attribute

if TYPE_CHECKING:
    from sinks.contract.generations import Generations


GROUP = "headrace.sinks"
_OURS = (
    *("sinks.cache.cache_kind", "sinks.search.search_kind", "sinks.delta.delta_kind", "sinks.sql.sql_kind"),
    "sinks.iceberg.iceberg_kind",
)
"""The one registration of our own kinds: modules with a ``KIND`` each."""


def generation_option(spec: SinkSpec, number: int) -> SinkSpec:
    """A generation's place, for stores that keep each one apart and get its number by the option ``generation``."""
    return replace(spec, options={**spec.options, "generation": number})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilds:
    """How a kind keeps generations, for ``cdc rebuild``.

    ``opener``: ``module:attribute`` of a callable of a spec and a clock that returns Generations. ``beside``: the spec
    of a generation that is filled while another one is in use. ``apart``: each generation stays where it was built.
    """

    opener: str
    beside: Callable[[SinkSpec, int], SinkSpec] = generation_option
    apart: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkParts:
    """What Spark has to be started with, so that it can write a store itself.

    ``product``: for messages. ``jars``: the name of their set in ``cdc/jvm/jars.lock``. ``coordinate``: the one that
    brings the others with it, for who submits. ``extension``: the class of Spark's SQL extensions. ``conf``: more
    settings of the session. ``more_jars``: more such sets. ``classes``: further classes that Spark has to find, each
    with the coordinate of the jar that brings it.
    """

    product: str
    jars: str
    coordinate: str
    extension: str
    conf: Mapping[str, str] = field(default_factory=dict)
    more_jars: tuple[str, ...] = ()
    classes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkReads:
    """How Spark reads a table of the store so that each batch of a stream sees it anew.

    ``parts``: what Spark has to be started with. ``source``: the name of the format. ``place``: ``module:attribute`` of
    a callable of a SinkSpec and a TableSchema that returns what the format loads.
    """

    parts: SparkParts
    source: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkKind:
    """A kind of store.

    ``name``: ``kind`` in the settings. ``settings``: the model of its section. ``opener``: ``module:attribute`` of a
    callable of a SinkSpec and a Clock that returns an OpenSink. An executor imports it by this name. ``probe``: the
    same of a callable of a SinkSpec that returns StoreFacts within some seconds, for ``cdc check``. ``facts``: findings
    of these facts, as a function of the sink's name and the facts. ``parallel``: several processes may write to the
    store at once. ``generations``: None where the store cannot be rebuilt beside itself. ``manual``: where the kind is
    described. A file or an address. ``kept``: what a store keeps of a deleted key and for how long, for ``cdc forget``:
    durations of the log's and the sink's section stand as ``{name}``. ``oldest``: by product in lower case, the major
    version that the sink needs. ``meant_by``: names of other products that mean this kind. ``fills_lost_tables``:
    whether ``cdc verify --repair`` may fill a table of which the store holds nothing. ``spark``: by a sink's options,
    the parts of a store that Spark writes. ``reads``: None where no stream is joined with its tables. ``example``: the
    section that ``cdc config example`` shows, its name and its settings. ``shown``: not as a comment.
    """

    name: str
    settings: type[SinkSettings]
    opener: str
    probe: str
    manual: str
    facts: Callable[[str, StoreFacts], Iterable[Finding]] = lambda _name, _facts: ()
    parallel: bool = False
    generations: Rebuilds | None = None
    oldest: Mapping[str, int] = field(default_factory=dict)
    meant_by: tuple[str, ...] = ()
    kept: str = "the key of the delete for {replay_window}, and what the manual of this kind of store says"
    fills_lost_tables: bool = True
    spark: Callable[[Mapping[str, Option]], SparkParts | None] = lambda _options: None
    reads: SparkReads | None = None
    example: tuple[str, Mapping[str, Any]] | None = None
    shown: bool = True

    def findings(self, sink: str, spec: SinkSpec) -> Iterator[Finding]:
        """The findings of ``cdc check`` about a store. SinkError or ConfigError when it cannot be asked."""
        facts: StoreFacts = attribute(self.probe, self.name)(spec)
        return self.judged(sink, facts)

    def judged(self, sink: str, facts: StoreFacts) -> Iterator[Finding]:
        """The findings of a store that answered: pure."""
        yield check_product(sink, facts, self.oldest)
        yield from self.facts(sink, facts)


def kind_named(name: str) -> SinkKind:
    """The kind of that name. ConfigError when there is none, or its package is broken."""
    found = find_kind(name)
    if found is None:
        close = difflib.get_close_matches(name, names(), n=1)
        hint = f"did you mean {close[0]}?" if close else f"the kinds are {', '.join(names())}"
        raise ConfigError(f"there is no kind of sink called {name}", hint=hint)
    return found


def find_kind(name: str) -> SinkKind | None:
    """The kind of that name, or None. Ours come first. ConfigError when the package that brings it is broken."""
    if name in _ours():
        return _ours()[name]
    brought = [point for point in entry_points(group=GROUP) if point.name == name]
    if len({point.value for point in brought}) > 1:
        packages = " and ".join(sorted(_package(point) for point in brought))
        raise ConfigError(f"two packages bring a kind of sink called {name}: {packages}", hint="uninstall one of them")
    return _loaded(brought[0]) if brought else None


def names() -> list[str]:
    """Every kind, ours first."""
    return list(dict.fromkeys([*_ours(), *sorted(point.name for point in entry_points(group=GROUP))]))


def kinds_of_ours() -> list[SinkKind]:
    """The kinds that come with this package."""
    return list(_ours().values())


@cache
def _ours() -> Mapping[str, SinkKind]:
    kinds: list[SinkKind] = [import_module(module).KIND for module in _OURS]
    return {kind.name: kind for kind in kinds}


def _loaded(point: EntryPoint) -> SinkKind:
    said = f"the package {_package(point)} brings a kind of sink called {point.name}, and it cannot be used"
    try:
        kind = point.load()
    except Exception as error:
        # Another package's module may raise any error when it is imported.
        raise ConfigError(
            f"{said}: {type(error).__name__}: {quoted(error)}", hint="install that package again"
        ) from error
    if not isinstance(kind, SinkKind):
        raise ConfigError(f"{said}: {point.value} is no SinkKind", hint="see Another store in sinks/README.md")
    if kind.name != point.name:
        raise ConfigError(f"{said}: the kind calls itself {kind.name}", hint="entry point and kind have one name")
    return kind


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module


class InstalledKinds:
    """:class:`cdc.settings.sink_settings.Kinds` of what is installed."""

    def names(self) -> Sequence[str]:
        return names()

    def model(self, kind: str) -> type[SinkSettings] | None:
        found = find_kind(kind)
        return found.settings if found is not None else None

    def meant(self, name: str) -> str | None:
        return next((kind.name for kind in kinds_of_ours() if name.lower() in kind.meant_by), None)

    def manual(self, kind: str) -> str:
        # Ours are in the example that the usual hint names.
        found = None if kind in _ours() else find_kind(kind)
        return found.manual if found is not None else ""


def spec_for(
    kind: str,
    *,
    prefix: str,
    options: Mapping[str, Option],
    secrets: Mapping[str, str] | None = None,
    parallel: bool = False,
) -> SinkSpec:
    """A store without a settings file. ConfigError when there is no such kind."""
    opener = kind_named(kind).opener
    return SinkSpec(kind=kind, opener=opener, prefix=prefix, options=options, secrets=secrets or {}, parallel=parallel)


def rebuilds_of(kind: str) -> Rebuilds:
    """How a kind keeps generations. ConfigError when it keeps none."""
    rebuilds = kind_named(kind).generations
    if rebuilds is None:
        raise ConfigError(
            f"a sink of kind {kind} cannot be rebuilt beside itself",
            hint="remove what the store holds: the sink fills it again from the log",
        )
    return rebuilds


def beside(spec: SinkSpec, number: int) -> SinkSpec:
    """The place of a generation, for a sink that fills it while another one is in use."""
    return rebuilds_of(spec.kind).beside(spec, number)


def open_generations(spec: SinkSpec, clock: Clock = SYSTEM_CLOCK) -> Generations:
    """Connect to a store's generations. SinkError when it cannot be reached."""
    opened: Generations = attribute(rebuilds_of(spec.kind).opener, spec.kind)(spec, clock)
    return opened


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


def load_settings(path: Path, environment: dict[str, str] | None = None) -> Settings:
    """Read and check a settings file, ``environment`` laid over it: this process's own unless given.

    ConfigError says what is wrong where, with a "did you mean".
    """
    return load(path, environment, InstalledKinds())


def parse_settings(document: dict[str, Any]) -> Settings:
    """Check settings that are a document already. ConfigError as :func:`load_settings`."""
    return parse(document, kinds=InstalledKinds())


def read_section(name: str, sink: SinkSettings) -> SinkSettings:
    """A sink's section, checked by its kind unless it was. ConfigError as :func:`load_settings`."""
    if not isinstance(sink, UnreadSink):
        return sink
    kinds, document = InstalledKinds(), {"sinks": {name: sink.model_dump(exclude_unset=True)}}
    read, faults = read_sinks(document, kinds)
    if faults:
        raise config_error(faults, "the settings", KnownSettings(SECTIONS, document, kinds), {})
    return read[name]


def sink_sections() -> list[SinkSection]:
    """The sections of the kinds that come with this package, for the example file and the manual's table."""
    shown = [(kind, *kind.example) for kind in kinds_of_ours() if kind.example is not None]
    return [
        SinkSection(f"sinks.{name}", kind.settings, {"kind": kind.name, **values}, optional=not kind.shown)
        for kind, name, values in shown
    ]


def check_product(name: str, facts: StoreFacts, oldest: Mapping[str, int]) -> Finding:
    """``oldest``: by product in lower case, the major version below which it lacks what the sink uses."""
    found = re.match(r"\d+", facts.version)
    needed = oldest.get(facts.product.lower())
    if found and needed and int(found[0]) < needed:
        message = f"{facts.product} {facts.version} is older than {needed}"
        return fail(name, "version", message, f"upgrade to {facts.product} {needed} or later")
    return ok(name, "reachable", f"{facts.product} {facts.version}".strip() + " answers")
