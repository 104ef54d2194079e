"""Each command about a table that is set aside, from the change of its key until it is read again (H119)."""

from __future__ import annotations

from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from cdc.process.errors import Exit
from cdc.stack.local import free_ports
from tests.integration.cli.pipeline import Pipeline, assert_refused
from tests.programs import Spawn
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
NEW_KEY = (
    "alter table orders drop constraint orders_pkey, alter status set not null, add primary key (id, status)",
    "insert into orders values (42, 'paid')",
    "insert into beside values (2)",
)


def test_h119_h120_every_command_names_a_table_that_is_aside(pipeline: Pipeline, spawn: Spawn, redis_url: str) -> None:
    address = f"127.0.0.1:{free_ports()['kafka']}"
    pipeline.sql("create table beside (id int primary key)", "insert into beside values (1)")
    pipeline.document["source"]["tables"] = ["public.orders", "public.beside"]
    pipeline.document["capture"] |= {"http_address": address, "waiting_ready": "1s"}
    pipeline.document["sinks"] = {"cache": {"kind": "redis", "url": redis_url}}
    pipeline.begin()
    running = spawn("cdc", "--config", pipeline.config, "run")
    feeding = spawn("cdc", "--config", pipeline.config, "sink")
    wait_until(lambda: pipeline.cdc("verify", "--timeout", "300").returncode == 0, 120, lambda: feeding.stderr[-3000:])
    pipeline.sql(*NEW_KEY)
    wait_until(lambda: "public.orders" in readiness(address), 60, lambda: running.stderr[-3000:])
    assert "the key of public.orders" in readiness(address)
    assert "table_aside" in running.stderr
    with urlopen(f"http://{address}/metrics", timeout=10) as page:
        assert 'state="aside",table="public.orders"} 1.0' in page.read().decode()

    wait_until(lambda: "  aside " in pipeline.cdc("status").stdout, 30)
    shown = pipeline.cdc("status")
    assert shown.returncode == Exit.DIFFERENCE, shown.stdout + shown.stderr
    assert "public.orders" in shown.stdout
    wait_until(lambda: "these: public.orders" in pipeline.cdc("wait", "cache", "0/1").stderr, 60)
    assert_refused(pipeline.cdc("wait", "cache", "0/1"), Exit.DIFFERENCE, "public.orders")
    unequal = pipeline.cdc("verify", "--timeout", "300")
    assert_refused(unequal, Exit.DIFFERENCE, "not compared: public.orders", "cdc status")
    checked = pipeline.cdc("check")
    assert_refused(checked, Exit.DIFFERENCE, "public.orders is set aside", "cdc snapshot public.orders")
    assert "public.beside" not in "".join(line for line in checked.stdout.splitlines() if "fail" in line)
    assert running.process.poll() is None

    # An operator takes the key as it is now, for this table alone.
    taken = pipeline.cdc("snapshot", "public.orders", timeout_s=120)
    assert taken.returncode == 0, taken.stderr
    wait_until(lambda: pipeline.cdc("verify", "--timeout", "300").returncode == 0, 120, lambda: running.stderr[-3000:])
    assert pipeline.cdc("wait", "cache", "0/1").returncode == 0
    assert "each of the 2 captured tables is followed" in pipeline.good("check")
    assert readiness(address) == ""
    assert "table_follows" in running.stderr
    assert feeding.terminate() == running.terminate() == 0


def test_h96_check_names_tables_that_are_not_followed(pipeline: Pipeline) -> None:
    """Out of the publication, made anew under the name, renamed: as ``cdc status`` says it."""
    pipeline.sql("create table beside (id int primary key)")
    pipeline.document["source"]["tables"] = ["public.orders", "public.beside"]
    pipeline.begin()
    assert "each of the 2 captured tables is followed" in pipeline.good("check")
    pipeline.sql("drop table beside", "create table beside (id int primary key)", "alter table orders rename to other")
    said = pipeline.cdc("check").stdout
    assert "public.beside was made anew, and is not in the publication" in said
    assert "public.orders was renamed to public.other, and is not followed under that name" in said
    assert "does not hold public.beside" not in said, "one finding is enough"
    assert "rename it back, or publish it again: cdc init" in said


def readiness(address: str) -> str:
    """Why capture is not ready. Empty when it is."""
    try:
        urlopen(f"http://{address}/readyz", timeout=10).close()
    except HTTPError as refused:
        with refused:
            return refused.read().decode()
    return ""
