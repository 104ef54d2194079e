"""Shards of capture: which table belongs to which, and the names of all that a shard has for itself. Pure.

A shard is a capture of its own over some of the pipeline's tables, with a slot, a publication, a state topic, a
progress topic and a lock. Each entry of ``[source] tables`` stands in one shard. A table that entries of several shards
take belongs to the first of them in the file, so each table has one shard whatever the catalog holds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import TYPE_CHECKING

from cdc.errors import ConfigError, UsageError
from cdc.topic import IN_QUOTES, progress_topic, starred, state_topic

if TYPE_CHECKING:
    from cdc.settings import Settings

_NAME = re.compile(r"[a-z][a-z0-9_]{0,15}")
_POSTGRES_NAME_BYTES = 63


def shards_of(settings: Settings) -> tuple[str, ...]:
    """The names of the shards, in the file's order. Empty for a pipeline without shards."""
    return tuple(settings.capture.shards)


def of_shard(settings: Settings, shard: str) -> Settings:
    """The settings as one shard's own capture reads them: its tables, its slot, its publication.

    UsageError where there is no shard of this name.
    """
    shards = settings.capture.shards
    if shard not in shards:
        known = f"its shards are {', '.join(shards)}" if shards else "[capture.shards] names none"
        raise UsageError(f"the pipeline {settings.name} has no shard {shard[:30]}", hint=known)
    before = [entry for name in _before(shards, shard) for entry in shards[name]]
    tables, exclude = shards[shard], (*settings.source.exclude, *before)
    own = {"tables": tables, "exclude": exclude, "slot": slot_of(settings, shard)}
    source = settings.source.model_copy(update={**own, "publication": publication_of(settings, shard)})
    others = (settings.spark.http_address, settings.view_runner.http_address)
    address = shard_address(settings.capture.http_address, list(shards).index(shard), others)
    capture = settings.capture.model_copy(update={"http_address": address})
    found = settings.model_copy(update={"source": source, "capture": capture})
    return found.named_shard(shard)


def each_shard(settings: Settings) -> tuple[Settings, ...]:
    """The settings of each shard, in the file's order. Those of one shard, or of a pipeline without, as they are.

    >>> from cdc.settings import parse
    >>> source = {"dsn": "host=db", "tables": ["public.orders", "public.*"]}
    >>> shards = {"sales": ["public.orders"], "rest": ["public.*"]}
    >>> whole = parse({"name": "shop", "source": source, "log": {"bootstrap_servers": "k:9092"},
    ...     "capture": {"shards": shards}})
    >>> [(one.shard, one.slot, one.source.exclude) for one in each_shard(whole)]
    [('sales', 'cdc_shop__sales', ()), ('rest', 'cdc_shop__rest', ('public.orders',))]
    """
    if settings.shard or not settings.capture.shards:
        return (settings,)
    return tuple(of_shard(settings, name) for name in shards_of(settings))


def slot_of(settings: Settings, shard: str) -> str:
    """The slot of a shard."""
    return f"{settings.slot}__{shard}"


def publication_of(settings: Settings, shard: str) -> str:
    """The publication of a shard."""
    return f"{settings.publication}__{shard}"


def publication_meant(settings: Settings, shard: str) -> str:
    """The publication that the settings of any shard give to another one. "" is the capture without shards.

    >>> from cdc.settings import parse
    >>> source = {"dsn": "host=db", "tables": ["public.orders", "public.*"]}
    >>> shards = {"sales": ["public.orders"], "rest": ["public.*"]}
    >>> whole = parse({"name": "shop", "source": source, "log": {"bootstrap_servers": "k:9092"},
    ...     "capture": {"shards": shards}})
    >>> [publication_meant(one, "rest") for one in (whole, *each_shard(whole))]
    ['cdc_shop__rest', 'cdc_shop__rest', 'cdc_shop__rest']
    """
    own = f"__{settings.shard}" if settings.shard else ""
    whole = settings.publication.removesuffix(own)
    return f"{whole}__{shard}" if shard else whole


def slot_meant(settings: Settings, shard: str) -> str:
    """The slot that the settings of any shard give to another one. "" is the capture without shards."""
    own = f"__{settings.shard}" if settings.shard else ""
    whole = settings.slot.removesuffix(own)
    return f"{whole}__{shard}" if shard else whole


def state_topic_of(settings: Settings) -> str:
    """The state topic of the settings' shard, or of the pipeline."""
    return state_topic(settings.name, settings.shard)


def progress_topic_of(settings: Settings) -> str:
    """The progress topic of the settings' shard, or of the pipeline."""
    return progress_topic(settings.name, settings.shard)


def writer_of(settings: Settings) -> str:
    """The name whose lock the writer of the settings' tables holds. No pipeline's name has the sign of a shard's."""
    return f"{settings.name}/{settings.shard}" if settings.shard else settings.name


def shard_address(address: str, number: int, others: Collection[str] = ()) -> str:
    """The address of a shard's metrics: as set for the first one, and the ports behind it for the others, without those
    of the pipeline's ``others``: cdc sink has the port behind capture's by default.

    >>> shard_address("127.0.0.1:9464", 2), shard_address("[::1]:9464", 1), shard_address("", 1)
    ('127.0.0.1:9466', '[::1]:9465', '')
    >>> shard_address("127.0.0.1:9464", 1, ["127.0.0.1:9465", ""])
    '127.0.0.1:9466'
    """
    host, colon, port = address.rpartition(":")
    if not number or not (port.isascii() and port.isdigit()):
        return address
    taken = {other.rpartition(":")[2] for other in others}
    free = (one for one in count(int(port) + 1) if str(one) not in taken)
    return f"{host}{colon}{next(islice(free, number - 1, None))}"


def shard_meant(settings: Settings, table: str) -> str | None:
    """The shard that takes a table, as ``schema.table``. None where no shard does.

    ``settings``: the pipeline's, or those of any of its shards. ``[source] exclude`` does not count: a table that is
    left out has the shard that it had.
    """
    return next((name for name, entries in settings.capture.shards.items() if _meets(entries, table)), None)


def require_one_shard(settings: Settings, command: str) -> None:
    """ConfigError where a command needs one shard's capture, and the settings name several."""
    if settings.capture.shards and not settings.shard:
        raise ConfigError(
            f"{command} is of one capture, and this pipeline has several: {', '.join(settings.capture.shards)}",
            hint=f"{command} --shard {next(iter(settings.capture.shards))}, and the same for each other shard",
        )


def require_without_shards(settings: Settings, command: str) -> None:
    """ConfigError where a command cannot be had for a pipeline with shards yet."""
    if settings.capture.shards:
        raise ConfigError(
            f"{command} does not work for a pipeline with [capture.shards] yet",
            hint='the manual lists the commands that do: cdc/README.md, "Shards"',
        )


def shard_faults(settings: Settings) -> Iterator[tuple[str, str]]:
    """A sentence and a hint for each fault of ``[capture.shards]``. None for a pipeline without."""
    shards = settings.capture.shards
    if not shards:
        return
    if settings.source.kind == "debezium":
        yield "[capture.shards] are shards of cdc run, and Debezium captures here", "remove [capture.shards]"
    if settings.tables:
        # A table inherits the masks of one that another shard has.
        yield "a column cannot be masked over [capture.shards] yet", "remove the [tables] sections, or [capture.shards]"
    if settings.views:
        yield "a view cannot be had over [capture.shards] yet", "remove the [views] sections, or [capture.shards]"
    for name in shards:
        yield from _name_faults(settings, name)
    yield from _entry_faults(settings.source.tables, shards)
    own = {topic(settings.name, name) for name in shards for topic in (state_topic, progress_topic)}
    for table, topic in settings.source.topics.items():
        if topic in own:
            yield f"[source.topics] gives {table} the topic {topic}, which is a shard's own", "give it another one"


def _name_faults(settings: Settings, name: str) -> Iterator[tuple[str, str]]:
    if not _NAME.fullmatch(name):
        words = "begins with a lower-case letter, and has at most 16 lower-case letters, digits and _"
        yield f"[capture.shards] a shard's name {words}: {name[:30]!r} does not", "it is a part of the slot's name"
        return
    for made in (slot_of(settings, name), publication_of(settings, name)):
        if len(made.encode()) > _POSTGRES_NAME_BYTES:
            yield (
                f"the name {made} has more than {_POSTGRES_NAME_BYTES} bytes, and Postgres takes no longer one",
                "set a shorter [source] slot and publication, or give the shard a shorter name",
            )
            return


def _entry_faults(tables: Sequence[str], shards: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Each entry of ``tables`` stands in one shard, where no shard before it takes all that it means."""
    owner: dict[str, str] = {}
    for name, entries in shards.items():
        if not entries:
            yield f"[capture.shards] {name} has no tables", f"write its entries of [source] tables, or remove {name}"
        for entry in entries:
            if entry in owner:
                both = f"{owner[entry]} and {name}" if owner[entry] != name else f"{name} twice"
                yield f'[capture.shards] "{entry}" stands in {both}', "a table has one shard: remove one of them"
                continue
            owner[entry] = name
            if entry not in tables:
                yield f'[capture.shards] {name}: "{entry}" is no entry of [source] tables', "write it there as well"
            yield from _hidden(shards, name, entry)
    for entry in tables:
        if entry not in owner:
            yield f'[source] tables: "{entry}" is in no shard', "add it to a shard of [capture.shards]"


def _hidden(shards: Mapping[str, Sequence[str]], shard: str, entry: str) -> Iterator[tuple[str, str]]:
    if "*" in entry and not IN_QUOTES.fullmatch(entry):
        return
    for earlier in _before(shards, shard):
        for other in shards[earlier]:
            if other != entry and _meets([other], _plain(entry)):
                yield (
                    f'[capture.shards] {shard}: "{entry}" is taken by "{other}" of the shard {earlier}',
                    f"a table belongs to the first shard that takes it: write {shard} above {earlier}",
                )


def _before(shards: Mapping[str, Sequence[str]], shard: str) -> list[str]:
    names = list(shards)
    return names[: names.index(shard)]


def _meets(entries: Sequence[str], table: str) -> bool:
    return any(_takes(entry, table) for entry in entries)


def _takes(entry: str, table: str) -> bool:
    """Whether an entry of ``tables`` names a table, as ``schema.table``."""
    if IN_QUOTES.fullmatch(entry):
        return _plain(entry) == table
    return starred(entry).fullmatch(table) is not None


def _plain(entry: str) -> str:
    """The name of one table without the double quotes in which the settings may have it."""
    quoted = IN_QUOTES.fullmatch(entry)
    return ".".join(part.replace('""', '"') for part in quoted.groups()) if quoted is not None else entry
