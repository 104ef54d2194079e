"""What a key needs, asked of the publication as it is: every part of it in the stream, and never null."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from cdc.process.errors import ConfigError
from cdc.settings.model import Settings
from connectors.postgres.server.catalog_shapes import captured_schema, survey
from connectors.postgres.server.connections import Connection, connect
from tests.debian_postgres import debian_postgres
from tests.integration.catalog.test_catalog import settings_for

GENERATED = (
    "create table {0} (tenant int, n int, code text generated always as ('k' || n) stored, primary key (tenant, code))"
)


class Source:
    """A database, and the tables that the settings take from it."""

    def __init__(self, dsn: str, session: Connection) -> None:
        self.settings: Settings = settings_for(dsn, "public.*")
        self.session = session
        self._dsn = dsn

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as owner:
            for statement in statements:
                owner.execute(statement.format(p=self.settings.publication).encode())

    def problems(self) -> list[tuple[str, str]]:
        found = survey(self.session, self.settings).tables
        return [(problem.message, problem.hint) for table in found for problem in table.problems]

    def refused(self, table: str) -> str:
        """Why nobody gets a shape of the table: neither the snapshot, nor capture, nor verify."""
        oids = {str(found.table): found.oid for found in survey(self.session, self.settings).tables}
        with pytest.raises(ConfigError) as error:
            captured_schema(self.session, self.settings, oids[table], topic="t")
        return error.value.message


@pytest.fixture
def source(database: str) -> Iterator[Source]:
    settings = settings_for(database, "public.*")
    with closing(connect(settings.source, autocommit=True)) as session:
        yield Source(database, session)


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with debian_postgres(tmp_path_factory.mktemp("older"), below=18) as dsn:
        yield dsn


@pytest.mark.slow
def test_w2_before_18_a_generated_column_is_in_no_key(older: str) -> None:
    settings = settings_for(older, "public.*")
    with closing(connect(settings.source, autocommit=True)) as session:
        source = Source(older, session)
        source.execute(
            GENERATED.format("t"), "create table usual (id int primary key, g int generated always as (id) stored)"
        )
        ((message, hint),) = source.problems()
        assert message == (
            "the key of public.t has the generated column code, which PostgreSQL before 18 does not put into the stream"
        )
        assert "replica identity using index" in hint
        source.execute("create publication {p} for all tables")
        assert source.refused("public.t") == message
        source.execute("alter table t replica identity full")
        assert [one for one, _ in source.problems()] == [message], "the key is the primary key under FULL as well"
        source.execute("create unique index plain on t (tenant)", "alter table t replica identity using index plain")
        assert source.problems() == [] or "tenant" not in source.problems()[0][0]


def test_w2_a_publication_of_18_without_generated_columns(source: Source) -> None:
    source.execute(GENERATED.format("t"))
    assert source.problems() == [], "cdc init makes one that carries them"
    source.execute("create publication {p} for table t")
    ((message, hint),) = source.problems()
    assert message == f"the publication {source.settings.publication} leaves out code, a part of the key of public.t"
    assert source.refused("public.t") == message
    source.execute(hint.replace("{", "").split(";", maxsplit=1)[0])
    assert source.problems() == []


@pytest.mark.parametrize("identity", ["default", "full"])
def test_w2_a_column_list_has_to_have_the_whole_key(source: Source, identity: str) -> None:
    source.execute(
        "create table t (a int, b int, v text, primary key (a, b))",
        f"alter table t replica identity {identity}",
        "create publication {p} for table t (a, v)",
    )
    ((message, hint),) = source.problems()
    assert message == f"the publication {source.settings.publication} leaves out b, a part of the key of public.t"
    assert source.refused("public.t") == message
    assert hint.startswith("begin; ")
    source.execute(*hint.split("   ")[0].rstrip(";").split("; "))
    assert source.problems() == []


def test_w2_a_captured_partition_has_the_list_of_its_own(source: Source) -> None:
    source.execute(
        "create table t (a int, b int, primary key (a, b)) partition by list (a)",
        "create table t_1 partition of t for values in (1)",
        "create publication {p} for table t, t_1 (a)",
    )
    assert source.problems() == [], "the whole tree comes under the root"
    source.settings = source.settings.model_copy(
        update={"source": source.settings.source.model_copy(update={"tables": ("public.t_1",)})}
    )
    assert [message for message, _ in source.problems()] == [
        f"the publication {source.settings.publication} leaves out b, a part of the key of public.t_1"
    ]


def test_w4_a_key_that_may_be_null_is_refused_until_validated(source: Source) -> None:
    if source.session.info.server_version < 180000:
        pytest.skip("NOT NULL is validated at once before PostgreSQL 18")
    source.execute(
        "create table nn (code text unique, v int)",
        "insert into nn values (null, 1)",
        'alter table nn add constraint "c""1" not null code not valid',
    )
    ((_, hint),) = source.problems()
    assert hint == (
        'alter table "public"."nn" alter column "code" set not null; '
        'alter table "public"."nn" replica identity using index "nn_code_key";'
    )
    source.execute("alter table nn replica identity using index nn_code_key")
    ((message, hint),) = source.problems()
    assert message == "code, a part of the key of public.nn, may be null: its NOT NULL is not validated"
    assert source.refused("public.nn") == message
    source.execute("update nn set code = 'x'", hint.split(";", maxsplit=1)[0])
    assert source.problems() == []


def test_w4_a_column_not_validated_is_nullable_in_its_shape(source: Source) -> None:
    if source.session.info.server_version < 180000:
        pytest.skip("NOT NULL is validated at once before PostgreSQL 18")
    source.execute("create table t (id int primary key, v int)", "alter table t add not null v not valid")
    (table,) = survey(source.session, source.settings).tables
    shape = captured_schema(source.session, source.settings, table.oid, topic="t")
    assert [column.nullable for column in shape.columns] == [False, True]


def test_y16_the_index_that_would_do_is_named(source: Source) -> None:
    source.execute(
        "create table t (a int, b int not null, c int not null)",
        "create unique index partly on t (c) where c > 0",
        "create unique index expressed on t ((c + 1))",
        "alter table t add constraint late unique (c) deferrable",
        "create unique index nearly on t (b, a)",
    )
    ((message, hint),) = source.problems()
    assert message == "public.t has no key, and a compacted topic needs one"
    assert hint == (
        'alter table "public"."t" alter column "a" set not null; '
        'alter table "public"."t" replica identity using index "nearly";'
    )
    source.execute('create unique index "It\'s" on t (b, c)')
    ((_, hint),) = source.problems()
    assert hint == 'alter table "public"."t" replica identity using index "It\'s";'
    source.execute(hint.rstrip(";"))
    assert source.problems() == []
    assert survey(source.session, source.settings).tables[0].key == ("b", "c")
