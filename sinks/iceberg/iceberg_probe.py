"""Asks an Iceberg catalog who it is, for ``cdc check``."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from cdc.checks.facts import StoreFacts
from cdc.clock import SYSTEM_CLOCK
from sinks.iceberg.iceberg_catalog import LakeCatalog, LakePlace
from sinks.registry import SinkSpec
from sinks.tries import looking
from sinks.warehouse.warehouse_folder import require_folder


def probe_iceberg(spec: SinkSpec) -> StoreFacts:
    """A catalog that answers, and a folder that can be written or an object store that lets us in.

    Raises ConfigError for a login that is refused or a folder that cannot be written, SinkError when the catalog does
    not answer.
    """
    place = LakePlace.of(spec)
    if place.local:
        require_folder(Path(place.warehouse))
    with closing(LakeCatalog(place, SYSTEM_CLOCK)) as catalog, looking():
        catalog.names(place.namespace)
        catalog.look_into_store()
    return StoreFacts(product="the Iceberg catalog", version=place.shown)
