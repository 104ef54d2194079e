"""Iceberg warehouses of the tests: a JDBC catalog in a database of the stack or in a file, and somebody else's hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, SetSnapshotRefUpdate

from cdc.process.clock import SYSTEM_CLOCK, Clock
from sinks.contract.sink_spec import Option, SinkSpec
from sinks.iceberg.iceberg_catalog import LakeCatalog, LakePlace


@dataclass(frozen=True, kw_only=True)
class LakeLogin:
    """The options of a sink that say where its catalog is."""

    options: Mapping[str, Option]
    secrets: Mapping[str, str] = field(repr=False)


def lake_catalog(dsn: str) -> LakeLogin:
    """The catalog in a database, by its connection string. Spark has no use for a file of passwords."""
    parts = conninfo_to_dict(dsn)
    url = f"postgresql://{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}"
    secrets = {} if "passfile" not in parts else {"password": _password(Path(str(parts["passfile"])))}
    return LakeLogin(options={"catalog": url}, secrets=secrets)


def lake_section(dsn: str, warehouse: Path, secret: Path) -> dict[str, Option]:
    """The section of a sink with its catalog in a database. Its password is written to the file ``secret``."""
    login = lake_catalog(dsn)
    secret.write_text(login.secrets["password"], encoding="utf-8")
    return {"kind": "iceberg", **login.options, "path": str(warehouse), "password": f"file:{secret}"}


def _password(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip().rpartition(":")[2]


class FileCatalog(LakeCatalog):
    """A warehouse in a folder, with its catalog in an SQLite file there. Spark knows no such one."""

    def __init__(self, root: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(
            LakePlace(
                catalog="postgresql://nobody@nowhere/lake",
                name="lake",
                warehouse=str(root),
                namespace="shop",
                options={},
                password=None,
            ),
            clock,
        )

    @cached_property
    def opened(self) -> SqlCatalog:
        return SqlCatalog(self.place.name, uri=f"sqlite:///{self.place.warehouse}/catalog.db")


def go_back(table: Table, snapshot: int) -> None:
    """Make an older snapshot the newest one, as ``rollback_to_snapshot`` of Spark does."""
    main: Any = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot}
    table._do_commit((SetSnapshotRefUpdate(**main),), (AssertTableUUID(uuid=table.metadata.table_uuid),))


@contextmanager
def foreign_catalog(spec: SinkSpec) -> Iterator[LakeCatalog]:
    """Somebody else's connection to the catalog of a warehouse."""
    catalog = LakeCatalog(LakePlace.of(spec))
    try:
        yield catalog
    finally:
        catalog.close()


@contextmanager
def foreign_table(spec: SinkSpec, name: str = "public_orders") -> Iterator[Table]:
    """A table of a warehouse, as somebody else opens it."""
    with foreign_catalog(spec) as catalog:
        found = catalog.load(catalog.place.namespace, name)
        assert found is not None
        yield found
