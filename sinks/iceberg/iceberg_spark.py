"""Spark for an Iceberg warehouse: a session that knows the catalog, and that has no setting with a secret."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from threading import Lock
from typing import Any

from pyspark.sql import SparkSession

from sinks.iceberg.iceberg_catalog import LakePlace
from sinks.iceberg.iceberg_kind import SPARK_PARTS
from sinks.warehouse.warehouse_spark import WarehouseSpark, quoted_name

_MOST_CATALOGS = 64


class IcebergSpark(WarehouseSpark):
    """As :class:`WarehouseSpark`. ``properties``: of the catalog, with secrets."""

    def __init__(self, catalog: str, properties: Mapping[str, str]) -> None:
        super().__init__(SPARK_PARTS, {})
        self.catalog = catalog
        self._properties = properties
        self._one = Lock()

    def table(self, namespace: str, name: str) -> str:
        """A table's name in a statement."""
        return ".".join(map(quoted_name, (self.catalog, namespace, name)))

    def _opened(self, settings: Mapping[str, str]) -> SparkSession:
        # The tables of a batch are written side by side.
        with self._one:
            return super()._opened(settings)

    def _begun(self, running: SparkSession, settings: Mapping[str, str]) -> SparkSession:
        made = super()._begun(running, settings)
        _load_catalog(made, self.catalog, self._properties)
        return made


def _load_catalog(session: SparkSession, name: str, properties: Mapping[str, str]) -> None:
    """Have Spark make the catalog from settings that are there for this moment alone: a statement tells its listeners,
    the UI and the event log, of all settings that its session has."""
    settings = {f"spark.sql.catalog.{name}": "org.apache.iceberg.spark.SparkCatalog"}
    settings |= {f"spark.sql.catalog.{name}.{one}": value for one, value in properties.items()}
    jvm: Any = session._jvm
    inner: Any = session._jsparkSession
    for one, value in settings.items():
        session.conf.set(one, value)
    try:
        # A catalog reads the settings of the session that is the active one of its thread.
        getattr(getattr(jvm, "org.apache.spark.sql.classic.SparkSession$"), "MODULE$").setActiveSession(inner)
        inner.sessionState().catalogManager().catalog(name)
    finally:
        for one in settings:
            session.conf.unset(one)


@lru_cache(_MOST_CATALOGS)
def _shared(name: str, properties: tuple[tuple[str, str], ...]) -> IcebergSpark:
    return IcebergSpark(name, dict(properties))


def iceberg_spark(place: LakePlace) -> IcebergSpark:
    """Spark for one warehouse. The stores of a process share it: each catalog in Spark keeps connections of its own."""
    return _shared(place.name, tuple(sorted(place.for_spark().items())))
