"""Hostile documents through the whole pipeline: the snapshot, the stream, three stores, verify and events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc.wire.jsontree import loads, written
from tests.hostile_documents import BINARY, EVERY
from tests.integration.cli.pipeline import Pipeline
from tests.programs import Spawn
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def shown(document: Any) -> str:
    """Texts compare at any depth."""
    return written(document, json.dumps)


def insert(pipeline: Pipeline, first: int) -> None:
    with psycopg.connect(pipeline.dsn, autocommit=True) as connection:
        for number, (name, text) in enumerate(EVERY.items(), first):
            binary = text if name in BINARY else None
            connection.execute("insert into documents values (%s, %s::json, %s::jsonb)", [number, text, binary])


@pytest.mark.long
def test_w6_hostile_documents_reach_the_stores_and_verify(
    pipeline: Pipeline, spawn: Spawn, redis_url: str, opensearch: str, index_prefix: str, tmp_path: Path
) -> None:
    pipeline.document["source"]["tables"] = ["public.documents", "public.keyed"]
    pipeline.document["log"]["max_message_bytes"] = "4MB"
    pipeline.document["sinks"] = {
        "cache": {"kind": "redis", "url": redis_url},
        "search": {"kind": "opensearch", "url": opensearch, "prefix": index_prefix},
        "reports": {"kind": "sql", "url": f"sqlite:///{tmp_path}/reports.db"},
    }
    pipeline.sql(
        "create table documents (id int primary key, doc json, bin jsonb)",
        "create table keyed (doc jsonb primary key, n int)",
        "insert into keyed values ((repeat('[', 600) || repeat(']', 600))::jsonb, 1)",
        "insert into keyed values ('{\"a\": [1.10]}', 2), ('\"\"', 3)",
    )
    insert(pipeline, 0)
    pipeline.begin()
    capture = spawn("cdc", "--config", pipeline.config, "run")
    sink = spawn("cdc", "--config", pipeline.config, "sink")
    insert(pipeline, len(EVERY))

    def compared() -> str:
        done = pipeline.cdc("verify", "--timeout", "300", timeout_s=300)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    wait_until(lambda: not compared(), 300, lambda: compared() + sink.stderr[-3000:])
    assert pipeline.good("dead", "list", "--json") == ""
    said = pipeline.good("events", "--from-beginning", "--until-caught-up", "--json", "public.documents")
    lines = said.rstrip("\n").split("\n")
    documents = [loads(line, str)["after"] for line in lines]
    texts = [*EVERY.values(), *EVERY.values()]
    assert {int(one["id"]): shown(one["doc"]) for one in documents} == {
        number: shown(loads(text, str)) for number, text in enumerate(texts)
    }
    assert sink.terminate() == 0, sink.stderr
    assert capture.terminate() == 0, capture.stderr
