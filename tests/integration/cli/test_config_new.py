"""``cdc config new``: a settings file and rights for a database, with which ``cdc check`` finds nothing to mend."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc.process.errors import Exit
from tests.fresh import fresh_name
from tests.integration.cli.pipeline import assert_refused
from tests.programs import RunCdc

TABLES = """
create schema sales;
create type sales.state as enum ('open', 'paid');
create table sales.orders (id int primary key, status sales.state, note text);
create table sales."a$publication$'b" (id int primary key);
create table sales."Odd.Name*" (a int, b text, primary key (a, b));
create table sales.events (id int, at date, doc text, primary key (at, id)) partition by range (at);
create schema parts;
create table parts.events_2026 partition of sales.events for values from ('2026-01-01') to ('2027-01-01');
create table sales.log (line text);
create unlogged table sales.cached (id int primary key);
create table sales.alembic_version (version_num text primary key);
insert into sales.orders select n, 'open', 'x' from generate_series(1, 5000) n;
insert into sales.events select n, '2026-01-01', string_agg(md5(m::text), '')
    from generate_series(1, 50) n, generate_series(1, 300) m group by n;
insert into sales.orders values (0, 'paid', '');
"""


@pytest.fixture
def capture_role(postgres: str) -> Iterator[str]:
    """A role's name, free before and after."""
    name = fresh_name()
    yield name
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(name)))


@pytest.mark.slow
def test_a_database_is_proposed_and_then_checked(
    capture_role: str, database: str, kafka: str, topic_prefix: str, redis_url: str, tmp_path: Path, run_cdc: RunCdc
) -> None:
    """From nothing but a database: a file, its rights run as they are, and a check without a fault."""
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(TABLES.encode())
        owner.execute("vacuum analyze")
    command = (
        "config", "new", "--dsn", database, "--name", topic_prefix, "--role", capture_role, "--kafka", kafka,
        "--sink", f"redis={redis_url}",
    )  # fmt: skip
    done = run_cdc(*command, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (Exit.OK, ""), done.stderr
    for words in (
        "take   sales.orders: about 5,001 rows", "key id", "out of line", "alembic_version: kept by a framework",
        "sales.log: has no key", "sales.cached: it is unlogged", "cdc.toml follows 4",
    ):  # fmt: skip
        assert words in done.stderr
    document = tomllib.loads((tmp_path / "cdc.toml").read_text(encoding="utf-8"))
    taken = {"sales.orders", '"sales"."Odd.Name*"', "sales.events", "sales.a$publication$'b"}
    assert set(document["source"]["tables"]) == taken
    assert "passfile" not in document["source"]["dsn"]
    assert f"user={capture_role}" in document["source"]["dsn"]
    with psycopg.connect(database, autocommit=True) as owner:
        rights = (tmp_path / "cdc-rights.sql").read_bytes()
        owner.execute(rights)
        owner.execute(sql.SQL("alter role {} password 'secret'").format(sql.Identifier(capture_role)))
        publication = sql.Identifier(f"cdc_{topic_prefix}")
        published = "select schemaname, tablename from pg_publication_tables where pubname = %s order by 1, 2"
        first = owner.execute(published, [f"cdc_{topic_prefix}"]).fetchall()
        owner.execute(sql.SQL("alter publication {} drop table sales.orders").format(publication))
        owner.execute("create table sales.by_hand (id int primary key)")
        owner.execute(sql.SQL("alter publication {} add table sales.by_hand").format(publication))
        owner.execute(rights)
        assert owner.execute(published, [f"cdc_{topic_prefix}"]).fetchall() == sorted([*first, ("sales", "by_hand")])
        owner.execute("drop table sales.by_hand")
    checked = run_cdc("check", "--json", cwd=tmp_path, env={"CDC_SOURCE_PASSWORD": "secret"})
    assert '"level": "fail"' not in checked.stdout, checked.stdout
    made = run_cdc("init", cwd=tmp_path, env={"CDC_SOURCE_PASSWORD": "secret"})
    assert made.returncode == Exit.OK, made.stderr
    read = run_cdc("snapshot", "--workers", "1", cwd=tmp_path, env={"CDC_SOURCE_PASSWORD": "secret"})
    assert read.returncode == Exit.OK, read.stderr
    again = run_cdc(*command, cwd=tmp_path)
    assert_refused(again, Exit.USAGE, "cdc.toml exists", "--config")
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("select pg_drop_replication_slot(%s)", [f"cdc_{topic_prefix}"])
        owner.execute(sql.SQL("drop owned by {}").format(sql.Identifier(capture_role)))


@pytest.mark.slow
def test_a_refused_proposal_writes_nothing(database: str, tmp_path: Path, run_cdc: RunCdc) -> None:
    secret = make_conninfo("", **{**conninfo_to_dict(database), "password": "hunter2"})
    for arguments, code, words in (
        (("--dsn", database), Exit.CONFIG, ("has no table that could be captured",)),
        (("--dsn", secret), Exit.CONFIG, ("--dsn holds a password", "CDC_SOURCE_PASSWORD")),
        (("--dsn", "shop"), Exit.CONFIG, ("no libpq connection string",)),
        (("--dsn", database, "--sink", "redis=redis://u:hunter2@h"), Exit.USAGE, ("--sink holds a password",)),
        (("--dsn", database, "--sink", "redys=redis://h"), Exit.USAGE, ("redys", "redis")),
        (("--dsn", database, "--sink", "redis"), Exit.USAGE, ("KIND=PLACE",)),
        (("--dsn", "host=127.0.0.1 port=1 dbname=shop"), Exit.UNAVAILABLE, ("127.0.0.1",)),
    ):
        done = run_cdc("config", "new", *arguments, cwd=tmp_path)
        assert_refused(done, code, *words)
        assert "hunter2" not in done.stderr
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("create table log (line text)")
    done = run_cdc("config", "new", "--dsn", database, cwd=tmp_path)
    assert_refused(done, Exit.CONFIG, "no table of the database")
    assert "log" in done.stderr
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("alter table log add primary key (line)")
    done = run_cdc("config", "new", "--dsn", database, "--name", "1 bad", cwd=tmp_path)
    assert_refused(done, Exit.CONFIG, "name")
    assert not [file.name for file in tmp_path.iterdir() if file.name.startswith("cdc")]
