"""Headrace: Postgres changes, in order, in a compacted Kafka topic. Stores are kept true from it.

This package holds the vocabulary (position, event, envelope, topic, schema, progress), the ports and the
command line. It knows no edge: databases, brokers and stores live in ``connectors``, ``snapshot``, ``sinks``
and ``spark`` and meet in :mod:`cdc.wiring` alone.

The names in ``__all__`` are for programs of yours: ``from cdc import Freshness``. Everything else is internal and may
change with any version, but for what ``sinks/README.md`` says to a package that brings a store.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cdc.process import __version__

if TYPE_CHECKING:
    from cdc.process.errors import CdcError, Exit
    from cdc.record.position import Lsn, Position
    from cdc.record.topic_names import TableName
    from cdc.settings.model import Settings
    from cdc.wire.events import Change
    from cdc.wiring import open_changes
    from cdc.wiring.sinks import Freshness
    from connectors.views.view_showing import View
    from sinks.contract.kinds import load_settings, parse_settings
    from sinks.contract.stores import open_store

__all__ = [
    "CdcError",
    "Change",
    "Exit",
    "Freshness",
    "Lsn",
    "Position",
    "Settings",
    "TableName",
    "View",
    "__version__",
    "load_settings",
    "open_changes",
    "open_store",
    "parse_settings",
]

_MODULES = {
    "CdcError": "cdc.process.errors",
    "Change": "cdc.wire.events",
    "Exit": "cdc.process.errors",
    "Freshness": "cdc.wiring.sinks",
    "Lsn": "cdc.record.position",
    "Position": "cdc.record.position",
    "Settings": "cdc.settings.model",
    "TableName": "cdc.record.topic_names",
    "View": "connectors.views.view_showing",
    "load_settings": "sinks.contract.kinds",
    "open_changes": "cdc.wiring",
    "open_store": "sinks.contract.stores",
    "parse_settings": "sinks.contract.kinds",
}
"""Loaded when first asked for: `import cdc` alone costs nothing, and `cdc --help` is quick."""


if not TYPE_CHECKING:  # a type checker sees the names above, and refuses others

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'cdc' has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
