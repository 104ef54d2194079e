"""The catalog of an Iceberg warehouse, as pyiceberg opens it and Spark is told of it: JDBC over Postgres, or REST."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NamespaceNotEmptyError, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import load_file_io
from sqlalchemy import URL, make_url, update
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import Session

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import ConfigError, Retry, SinkError
from cdc.process.untrusted_text import quoted
from cdc.record.server_facts import StoreFacts
from cdc.record.topic_names import TableName
from sinks.contract.attempt_limits import looking
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.store_connection import StoreRetry, require_folder
from sinks.contract.store_names import folder
from sinks.iceberg.iceberg_faults import PASSING, explained
from sinks.iceberg.iceberg_kind import JDBC, PROPERTY, S3, is_beside

if TYPE_CHECKING:
    from pyiceberg.table import Table


T = TypeVar("T")
_CONNECT_S = 10
_SILENT_S = 60
"""How long a catalog's database may say nothing to Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakePlace:
    """Where a warehouse is. ``options``: of the catalog and the object store, with secrets."""

    catalog: str
    name: str
    warehouse: str
    namespace: str
    options: Mapping[str, str] = field(repr=False)
    password: str | None = field(repr=False)
    snapshots_for_s: float = 3600.0
    compact_files: int = 16

    @classmethod
    def of(cls, spec: SinkSpec) -> LakePlace:
        """From a spec. A generation that is filled has a namespace beside. ConfigError for a namespace that is
        called like such a one."""
        given = {**spec.options, **spec.secrets}
        number = spec.options.get("generation")
        namespace = spec.optional("namespace") or spec.prefix
        if is_beside(namespace):
            raise ConfigError(
                f"the namespace {namespace} is called like that of a generation, which a rebuild fills and discards",
                hint="set namespace to a name that does not end in __NUMBER",
            )
        return cls(
            catalog=spec.text("catalog"),
            name=spec.optional("catalog_name") or "lake",
            warehouse=spec.optional("path") or "",
            namespace=beside_namespace(namespace, int(number)) if number is not None else namespace,
            options={n.removeprefix(PROPERTY): str(v) for n, v in given.items() if n.startswith(PROPERTY)},
            password=spec.secrets.get("password"),
            snapshots_for_s=spec.number("snapshots_for_s", 3600.0),
            compact_files=int(spec.number("compact_files", 16)),
        )

    @property
    def jdbc(self) -> bool:
        """Whether the catalog is tables of a database."""
        return self.catalog.startswith(JDBC)

    @property
    def local(self) -> bool:
        """Whether the files are in a folder of this machine."""
        return self.jdbc and "://" not in self.warehouse

    @property
    def location(self) -> str:
        """The warehouse as both libraries read it."""
        return Path(self.warehouse).absolute().as_uri() if self.local else self.warehouse.rstrip("/")

    def new_location(self, table: str) -> str | None:
        """Where a table that is made has its files. None: as a REST catalog likes."""
        return f"{self.location}/{self.namespace}/{table}-{token_hex(4)}" if self.jdbc else None

    @property
    def shown(self) -> str:
        """The catalog in messages, without a secret."""
        return self._url.render_as_string(hide_password=True) if self.jdbc else self.catalog

    @property
    def _url(self) -> URL:
        try:
            return make_url(self.catalog)
        except (ArgumentError, ValueError) as error:
            raise ConfigError(
                f"the sink's catalog cannot be used: {quoted(str(error))}",
                hint='write catalog = "postgresql://user@host:5432/database"',
            ) from None

    def for_pyiceberg(self) -> dict[str, str]:
        """Its properties to pyiceberg."""
        given = {**self.options, **({"warehouse": self.location} if self.warehouse else {})}
        if not self.jdbc:
            return {**given, "uri": self.catalog}
        url = self._url.set(drivername="postgresql+psycopg")
        url = url if self.password is None else url.set(password=self.password)
        url = url if "connect_timeout" in url.query else url.update_query_dict({"connect_timeout": str(_CONNECT_S)})
        return {**given, "uri": url.render_as_string(hide_password=False)}

    def for_spark(self) -> dict[str, str]:
        """Its properties to Spark's catalog."""
        given = {**self.options, "cache-enabled": "false", **({"warehouse": self.location} if self.warehouse else {})}
        if self.local or not self.jdbc:
            # Iceberg asks the file system for its scheme, which the one that the session has does not know.
            given["hadoop.fs.file.impl"] = "org.apache.hadoop.fs.LocalFileSystem"
            given["hadoop.fs.file.impl.disable.cache"] = "true"
        if not self.jdbc:
            return {**given, "type": "rest", "uri": self.catalog}
        if self.location.startswith(S3):
            given.setdefault("io-impl", "org.apache.iceberg.aws.s3.S3FileIO")
        url = self._url
        # The driver has other names for all but these.
        query = {name: str(value) for name, value in url.query.items() if name.startswith("ssl")}
        more = {"connectTimeout": str(_CONNECT_S), "socketTimeout": str(_SILENT_S), **query}
        jdbc = URL.create("jdbc:postgresql", host=url.host or "localhost", port=url.port or 5432, database=url.database)
        options = "&".join(f"{name}={value}" for name, value in more.items())
        login = {"jdbc.user": url.username, "jdbc.password": self.password or url.password}
        uri = f"{jdbc.render_as_string()}?{options}"
        return {**given, "type": "jdbc", "uri": uri, **{name: str(said) for name, said in login.items() if said}}


def beside_namespace(namespace: str, number: int) -> str:
    """The namespace of a generation that is not in use."""
    return f"{namespace}__{number}"


def table_name(table: TableName) -> str:
    """A table's name in its namespace.

    >>> table_name(TableName("public", "Order items"))
    'public_Order=20items'
    """
    return f"{folder(table.schema)}_{folder(table.table)}"


def unrepeated_table(table: Table) -> Table:
    """The same, without pyiceberg's own repetitions of a commit: one that appends would append again behind a commit of
    somebody else's, which has perhaps the same keys. A caller looks at the table anew."""
    properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


class _JdbcCatalog(SqlCatalog):
    """Leaves no connection open where it cannot be opened, as without the right to make its tables."""

    def __init__(self, name: str, **properties: str) -> None:
        try:
            super().__init__(name, **properties)
        except Exception:
            self.close()
            raise


class LakeCatalog:
    """The catalog, opened at the first question, and again after :meth:`close`."""

    def __init__(self, place: LakePlace, clock: Clock = SYSTEM_CLOCK) -> None:
        self.place = place
        store = f"the Iceberg catalog {place.shown}"
        self.retry = StoreRetry(store=store, passing=PASSING, explain=self.explained, clock=clock, attempts=6)

    def explained(self, error: Exception, table: str = "") -> SinkError:
        """An error of the catalog's, or of a table of it, as the sink's own."""
        return explained(error, self.place.shown, table)

    def final(self, error: Exception, table: str = "") -> Exception:
        """The exception to raise for an error that may pass: the sink's own where no time mends it."""
        found = self.explained(error, table)
        return found if found.retry in (Retry.NEVER, Retry.SECRET) else error

    @cached_property
    def opened(self) -> Catalog:
        """The catalog of pyiceberg."""
        properties = self.place.for_pyiceberg()
        kind = _JdbcCatalog if self.place.jdbc else RestCatalog
        return self.asked(lambda: kind(self.place.name, **properties))

    def asked(self, act: Callable[[], T], *, again: Callable[[], object] | None = None) -> T:
        """The answer. Repeated while the error may pass, which that of a refused login does not."""

        def ask() -> T:
            try:
                return act()
            except PASSING as error:
                raise self.final(error) from None

        return self.retry.call(ask, again=again)

    def load(self, namespace: str, name: str) -> Table | None:
        """A table as it is now. None where there is none."""

        def load() -> Table | None:
            try:
                return unrepeated_table(self.opened.load_table((namespace, name)))
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

        return self.asked(load)

    def names(self, namespace: str) -> set[str]:
        """The tables of a namespace. Empty where there is none."""

        def names() -> set[str]:
            try:
                return {found[-1] for found in self.opened.list_tables(namespace)}
            except NoSuchNamespaceError:
                return set()

        return self.asked(names)

    def look_into_store(self) -> None:
        """See that the object store lets us in. Nothing happens where the catalog says where tables are."""
        place = self.place
        if place.location.startswith(S3):
            probe = f"{place.location}/{place.namespace}"
            self.asked(lambda: load_file_io(place.for_pyiceberg(), place.location).new_input(probe).exists())

    def make_namespace(self, namespace: str) -> None:
        """Make it, unless it is there."""
        self.asked(lambda: self.opened.create_namespace_if_not_exists(namespace))

    def drop(self, namespace: str, names: Iterable[str]) -> None:
        """Drop tables with their files. Nothing happens where there is none."""
        for name in names:
            self.asked(partial(self._purge, (namespace, name)))

    def drop_namespace(self, namespace: str) -> None:
        """Drop a namespace without tables. Nothing happens where there is none, or where somebody has a table in it."""
        self.asked(partial(self._drop_namespace, namespace))

    def _purge(self, identifier: tuple[str, str]) -> None:
        try:
            self.opened.purge_table(identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return

    def _drop_namespace(self, namespace: str) -> None:
        try:
            self.opened.drop_namespace(namespace)
        except (NoSuchNamespaceError, NamespaceNotEmptyError):
            return

    def move(self, moves: Sequence[tuple[tuple[str, str], tuple[str, str]]]) -> None:
        """Give tables other names, in this order: in one transaction where the catalog has them. Between two names of a
        REST catalog, a reader may find none."""
        if not moves:
            return
        catalog = self.opened
        if not isinstance(catalog, SqlCatalog):
            for old, new in moves:
                self.asked(partial(catalog.rename_table, old, new))
            return

        def rename() -> None:
            with Session(catalog.engine) as session:
                for old, new in moves:
                    session.execute(
                        update(IcebergTables)
                        .where(
                            IcebergTables.catalog_name == catalog.name,
                            IcebergTables.table_namespace == old[0],
                            IcebergTables.table_name == old[1],
                        )
                        .values(table_namespace=new[0], table_name=new[1])
                    )
                session.commit()

        self.asked(rename)

    def close(self) -> None:
        """Close the connections. Never raises."""
        opened = self.__dict__.pop("opened", None)
        if isinstance(opened, SqlCatalog):
            opened.close()


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
