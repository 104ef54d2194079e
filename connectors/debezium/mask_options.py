"""Masks of columns as Debezium's own options: ``column.exclude.list`` and ``column.truncate.to.N.chars``.

``hmac`` is refused. Debezium's ``column.mask.hash.v2`` takes its salt in the option's name. Kafka Connect resolves
references in values alone, shows names to everybody who reaches its REST API and keeps them in its topics. It hashes
character types alone, cuts the hash to a column's length, and passes all else on as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from cdc.errors import ConfigError
from cdc.mask_rules import MaskRule
from cdc.settings import DebeziumSettings, Settings
from cdc.wire.format import UNAVAILABLE
from connectors.debezium.captured_tables import captures, named_tables, patterns
from connectors.debezium.regex import quoted, spelled, unquoted

_UNMASKING = ("column.exclude.list", "column.include.list", "post.processors", "message.key.columns", "converters")
"""Options that would take a mask's place, or bring a column's value past it."""
_TRUNCATE = "column.truncate.to."
_DROP = "column.exclude.list"
_OURS = "(?-i)"


def mask_options(settings: Settings, debezium: DebeziumSettings) -> dict[str, str]:
    """The options of the settings' masks. Empty without any.

    ConfigError for a mask that Debezium has not, another database than Postgres, or an option of the user's or a
    pattern of tables that a mask could not be kept beside.
    """
    rules = list(_rules(settings))
    if not rules:
        return {}
    if debezium.database != "postgres":
        raise ConfigError(
            f"masks are set for tables of Postgres, and [debezium] database is {debezium.database}",
            hint="take the [tables] sections out, and set Debezium's own options under [debezium.options]",
        )
    beside = [option for option in debezium.options if option in _UNMASKING or option.startswith(_TRUNCATE)]
    if beside:
        raise ConfigError(
            f"[debezium.options] {beside[0]} stands beside masks of columns, which it could undo",
            hint="take it out, or the masks under [tables]",
        )
    for pattern in patterns(settings):
        raise ConfigError(
            f"[source] tables has the pattern {pattern} beside masks of columns. It takes partitions in, now and later "
            "ones, and Debezium's snapshot writes their rows to topics of their own, past the masks of their table",
            hint="name each table: of a partitioned one Debezium reads every row under its own name",
        )
    lists: dict[str, list[str]] = defaultdict(list)
    for column, rule in rules:
        lists[_option(column, rule)].append(f"{_OURS}{quoted(column)}")
    return {option: ",".join(columns) for option, columns in sorted(lists.items())}


def remasked_columns(settings: Settings, running: Mapping[str, str], tables: Iterable[str]) -> dict[str, list[str]]:
    """table -> columns that a configuration in force masks otherwise than the settings do. Pure.

    ``tables``: captured ones that the settings do not name. ConfigError as :func:`mask_options`.
    """
    debezium = settings.debezium
    there, here = _masked(running), _masked(mask_options(settings, debezium) if debezium is not None else {})
    known = [*tables, *named_tables(settings)]
    found: dict[str, list[str]] = defaultdict(list)
    for text in sorted({*there, *here}):
        if there.get(text) == here.get(text):
            continue
        table = max((one for one in known if text.startswith(f"{one}.")), key=len, default=text.rpartition(".")[0])
        if captures(settings, table):
            found[table].append(text.removeprefix(f"{table}."))
    return dict(found)


def _masked(options: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Column, behind its table -> the options that mask it. Those of ours: the user's are spelled otherwise."""
    found: dict[str, set[str]] = defaultdict(set)
    for option, listed in options.items():
        if option == _DROP or option.startswith(_TRUNCATE):
            for one in listed.split(","):
                if one.startswith(_OURS):
                    found[unquoted(one.removeprefix(_OURS))].add(option)
    return {column: frozenset(masks) for column, masks in found.items()}


def _rules(settings: Settings) -> Iterator[tuple[str, MaskRule]]:
    for table, section in sorted(settings.tables.items()):
        for column, text in sorted(section.columns.items()):
            yield f"{spelled(table)}.{column}", MaskRule.parse(text)


def _option(column: str, rule: MaskRule) -> str:
    if rule.kind == "hmac":
        raise ConfigError(
            f"{column} is masked by hmac, which Debezium cannot do without showing its salt to all who reach Connect",
            hint='mask it by "drop" or "truncate:40", or let Headrace capture: [source] kind = "postgres"',
        )
    if rule.kind == "truncate" and rule.characters < len(UNAVAILABLE):
        raise ConfigError(
            f"{column} is truncated to {rule.characters} characters, and Debezium would cut {UNAVAILABLE}, which "
            "stands for a long value that an update left out",
            hint=f'mask it by "truncate:{len(UNAVAILABLE)}" or more, or by "drop"',
        )
    return _DROP if rule.kind == "drop" else f"{_TRUNCATE}{rule.characters}.chars"
