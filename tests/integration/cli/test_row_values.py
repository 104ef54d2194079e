"""SECURITY.md, "Rows": no log line above DEBUG and no error holds a row. What goes wrong with rows is searched."""

from __future__ import annotations

import secrets
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

from cdc.record.topic_names import partition_of
from cdc.stack.local import free_ports
from tests.integration.cli.pipeline import Pipeline
from tests.programs import Spawn
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
CLAIM = "No log line above DEBUG and no error holds one."
TABLES = (
    "create table people (id text primary key, name text, born date, doc jsonb)",
    "alter table people alter name set storage external",
)


@pytest.mark.long
def test_no_log_line_and_no_error_holds_a_row(pipeline: Pipeline, spawn: Spawn, redis_url: str, tmp_path: Path) -> None:
    assert CLAIM in (Path(__file__).parents[3] / "SECURITY.md").read_text(encoding="utf-8")
    word = f"rowvalue{secrets.token_hex(6)}"
    addresses = [f"127.0.0.1:{port}" for port in (free_ports(["kafka"])["kafka"], free_ports(["connect"])["connect"])]
    pipeline.document["source"]["tables"] = ["public.people"]
    pipeline.document["log"] |= {"oversized": "dead-letter", "max_message_bytes": "100kB"}
    pipeline.document["capture"]["http_address"] = addresses[0]
    pipeline.document["spark"]["http_address"] = addresses[1]
    pipeline.document["sinks"] = {
        "cache": {"kind": "redis", "url": redis_url},
        "reports": {"kind": "sql", "url": f"sqlite:///{tmp_path}/reports.db"},
    }
    pipeline.sql(*TABLES, f"insert into people values ('{word}', '{word}', 'infinity', '{{\"a\": \"{word}\"}}')")
    said: dict[str, str] = {}

    def run(*command: str) -> None:
        lines = pipeline.cdc(*command, timeout_s=120).stderr.splitlines()
        # What verify says of each difference is its report, and names keys.
        said[" ".join(command)] = "\n".join(one for one in lines if command[0] != "verify" or one[:1] in "{eh")

    for command in ("init", "snapshot"):
        run(command)
    capture = spawn("cdc", "--config", pipeline.config, "run")
    sink = spawn("cdc", "--config", pipeline.config, "sink")
    wait_until(lambda: sink.stderr.count('"sink_started"') == 2, 120, lambda: sink.stderr[-3000:])
    pipeline.sql(
        # Larger than the topic takes, a key that changes, values that are read again, a delete of what is there.
        f"insert into people values ('{word} large', repeat('{word}', 20000))",
        f"insert into people values ('{word} toast', repeat('{word}', 500))",
        f"update people set born = '2020-01-01' where id = '{word} toast'",
        f"update people set id = '{word} moved' where id = '{word}'",
        f"delete from people where id = '{word} toast'",
        # Shapes and types that a store has to refuse or widen.
        "alter table people alter name type jsonb using to_jsonb(name)",
        f"insert into people values ('{word} later', '[\"{word}\"]')",
    )
    poison(pipeline, word)
    wait_until(lambda: pipeline.cdc("dead", "list").stdout.count("people") >= 3, 90, lambda: sink.stderr[-3000:])
    for command in ("status", "check", "verify --timeout 20", "verify --repair --timeout 20", "dead list"):
        run(*command.split())
    run("snapshot", "public.people", "--where", f"name = '{word}' and nope = 1")
    run("snapshot", "public.people", "--detach", "--where", f"id = '{word}'")
    for address in addresses:
        for page in ("metrics", "status"):
            with urlopen(f"http://{address}/{page}", timeout=10) as answer:
                said[f"{address}/{page}"] = answer.read().decode()
    assert sink.terminate() == 0, sink.stderr
    assert capture.terminate() == 0, capture.stderr
    said |= {"run": capture.stderr + capture.stdout, "sink": sink.stderr + sink.stdout}
    assert '"row_put_aside"' in said["run"], said["run"]
    assert {name: line for name, words in said.items() for line in words.splitlines() if word in line} == {}


def poison(pipeline: Pipeline, word: str) -> None:
    """Records of somebody else's in the table's topic, each with the word in it."""
    producer = Producer({"bootstrap.servers": pipeline.document["log"]["bootstrap_servers"]})
    topic = f"{pipeline.document['name']}.public.people"
    key = b'{"id":"%b poison"}' % word.encode()
    headers: list[tuple[str, str | bytes | None]] = [("pos", b"00000001000000000000000800000001"), ("op", b"u")]
    for value in (b"{%b" % word.encode(), b'{"after":"%b"}' % word.encode(), word.encode()):
        producer.produce(topic, value, key, partition=partition_of(key, 2), headers=headers)
    producer.produce(topic, b"{}", word.encode(), partition=0, headers=[("pos", word.encode())])
    assert producer.flush(20) == 0
