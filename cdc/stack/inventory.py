"""The parts of the stack: what each needs, and how it is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from cdc.errors import UsageError
from cdc.jvm.jars import JarSet, locked
from cdc.stack.connect import ConnectPart
from cdc.stack.kafka import KafkaPart
from cdc.stack.opensearch import OpenSearchPart
from cdc.stack.part import PartFiles, StackPart
from cdc.stack.postgres import PostgresPart
from cdc.stack.redis import RedisPart

USUAL_PARTS = ("postgres", "kafka", "redis", "opensearch")
OPTIONAL_PARTS = ("connect",)
PARTS = USUAL_PARTS + OPTIONAL_PARTS

_JARS = {"kafka": ("kafka",), "opensearch": ("opensearch",), "connect": ("kafka", "debezium", "debezium-mariadb")}
_PORTS = {
    "postgres": ("postgres",),
    "kafka": ("kafka", "kafka_controller"),
    "redis": ("redis",),
    "opensearch": ("opensearch", "opensearch_transport"),
    "connect": ("connect", "kafka"),
}
NEEDS = {"connect": ("kafka",)}
"""Parts that must answer before another starts."""


def checked_parts(only: Iterable[str], extra: Iterable[str]) -> tuple[str, ...]:
    """The parts to start: ``only`` these (the usual ones where empty) and ``extra``. UsageError for a strange name."""
    wanted = [*(tuple(only) or USUAL_PARTS), *extra]
    for name in wanted:
        if name not in PARTS:
            raise UsageError(f'the stack has no part "{name}"', hint=f"its parts are {', '.join(PARTS)}")
    wanted += [needed for name in wanted for needed in NEEDS.get(name, ())]
    return tuple(name for name in PARTS if name in wanted)


def jar_sets(parts: Iterable[str]) -> list[JarSet]:
    """The jars that these parts need before they can start."""
    names = {name for part in parts for name in _JARS.get(part, ())}
    return [jar_set for name, jar_set in locked().items() if name in names]


def own_ports(name: str) -> tuple[str, ...]:
    """The names of the ports that a part listens on."""
    return tuple(port for port in _PORTS[name] if port.split("_")[0] == name)


def make_part(
    name: str, root: Path, ports: Mapping[str, int], jars: Mapping[str, Path], *, durable: bool = True
) -> StackPart:
    """The part ``name`` of the stack in ``root``. ``durable=False``: its data need not outlive the machine.

    Raises UsageError for a name that is not in :data:`PARTS`.
    """
    place = PartFiles(
        folder=root / name,
        log=root / "logs" / f"{name}.log",
        ports={port: ports[port] for port in _PORTS[name]},
    )
    match name:
        case "postgres":
            return PostgresPart(place, durable=durable)
        case "kafka":
            return KafkaPart(place, jars["kafka"])
        case "redis":
            return RedisPart(place)
        case "opensearch":
            return OpenSearchPart(place, jars["opensearch"])
        case "connect":
            plugins = {name: folder for name, folder in jars.items() if name.startswith("debezium")}
            return ConnectPart(place, jars["kafka"], plugins)
        case _:
            raise UsageError(f'the stack has no part "{name}"', hint=f"its parts are {', '.join(PARTS)}")
