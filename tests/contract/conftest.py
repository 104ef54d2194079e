"""The list of stores: a new one is done when it is added here and passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sinks.contract.kinds import spec_for
from sinks.contract.sink_spec import Option, SinkSpec
from tests.contract.stores import Store, closing
from tests.fresh import drop_database, fresh_name
from tests.lakes import lake_catalog
from tests.redis_rights import least_user

BY_SPARK = ("delta-spark", "iceberg")
"""Warehouses that Spark writes. Each merge is some jobs, of two to three CPU-s: they are held against those tests alone
that are marked ``by_spark``, which show what is theirs: the merge, the types, the commit, and what is put back."""
BY_STATEMENTS = "postgres-generic"
"""The ways of SQLite's with nothing but standard SQL, and the types of Postgres: each is there by itself. Together they
are held against the tests that are marked ``by_spark``."""
KINDS = ("memory", "redis", "opensearch", "delta", "postgres", "sqlite", "sqlite-generic", "folder")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves the sockets of its results to the collector."""
    for item in items:
        if any(kind in item.name for kind in BY_SPARK):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each store in turn. ``by_spark`` adds those that Spark merges, or some of them, and BY_STATEMENTS; ``alone``: no
    other one. A test may have a list of its own."""
    own = any("store" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if own or "store" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("by_spark")
    kinds = () if mark is None else mark.args or BY_SPARK
    alone = mark is not None and mark.kwargs.get("alone")
    slow = kinds if alone or mark is None else (*kinds, BY_STATEMENTS)
    metafunc.parametrize(
        "store",
        [*(() if alone else KINDS), *(pytest.param(kind, marks=pytest.mark.slow) for kind in slow)],
        indirect=True,
    )


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty corner of each store in turn."""
    kind = request.param
    with closing(Store(kind.removesuffix("-spark"), spec_of_kind(request, kind))) as made:
        yield made


def spec_of_kind(request: pytest.FixtureRequest, kind: str) -> SinkSpec | None:
    """An empty corner of a kind's store. None for the one in memory."""
    match kind:
        case "redis":
            url = request.getfixturevalue("least_redis_url")
            return spec_for("redis", prefix="shop", options={"url": url})
        case "opensearch":
            url, prefix = request.getfixturevalue("opensearch"), request.getfixturevalue("index_prefix")
            return spec_for("opensearch", prefix=prefix, options={"url": url})
        case "delta" | "delta-spark" | "iceberg":
            return _iceberg_spec(request) if kind == "iceberg" else _delta_spec(request, kind)
        case "sqlite" | "sqlite-generic":
            folder = request.getfixturevalue("tmp_path")
            return sql_spec(f"sqlite:///{folder}/shop.db", kind)
        case "postgres" | "postgres-generic":
            url = postgres_url(conninfo_to_dict(request.getfixturevalue("contract_database")))
            return sql_spec(url, kind, db_schema=fresh_name())
    return _folder_spec(request) if kind == "folder" else None


def _delta_spec(request: pytest.FixtureRequest, kind: str) -> SinkSpec:
    folder: Path = request.getfixturevalue("warehouse")
    options: dict[str, Option] = {"path": str(folder)}
    if kind in BY_SPARK:
        request.getfixturevalue("spark_session")
        options["engine"] = "spark"
    return spec_for("delta", prefix="shop", options=options)


def _iceberg_spec(request: pytest.FixtureRequest) -> SinkSpec:
    request.getfixturevalue("spark_session")
    folder: Path = request.getfixturevalue("warehouse")
    lake = lake_catalog(request.getfixturevalue("contract_database"))
    return spec_for("iceberg", prefix=fresh_name(), options={**lake.options, "path": str(folder)}, secrets=lake.secrets)


def _folder_spec(request: pytest.FixtureRequest) -> SinkSpec:
    request.getfixturevalue("other_store")
    folder: Path = request.getfixturevalue("tmp_path")
    return spec_for("folder", prefix="shop", options={"path": str(folder / "store")})


@pytest.fixture
def least_redis_url(redis_url: str) -> Iterator[str]:
    """The cache as the user of ``compose/rights/redis.acl`` who may write: the manual's rights are enough."""
    with least_user(redis_url, "shop_sink") as url:
        yield url


@pytest.fixture(scope="session")
def contract_database(postgres: str) -> Iterator[str]:
    """One database for all: each test has a schema of its own in it, which is made faster."""
    name = fresh_name()
    # No connection is held meanwhile: other tests of the session kill the server.
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    yield make_conninfo(postgres, dbname=name)
    with psycopg.connect(postgres, autocommit=True) as admin:
        drop_database(admin, name)


def sql_spec(url: str, kind: str, db_schema: str | None = None) -> SinkSpec:
    options: dict[str, Option] = {"url": url, "generic": kind.endswith("-generic"), "db_schema": db_schema}
    return spec_for("sql", prefix="shop", options=options)


def postgres_url(parts: Mapping[str, object]) -> str:
    """A SQLAlchemy url of a libpq connection string's parts; the password stays in its file."""
    rest = "&".join(f"{name}={parts[name]}" for name in ("passfile",) if name in parts)
    return f"postgresql+psycopg://{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}?{rest}"
