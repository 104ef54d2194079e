"""SECURITY.md, "Rows": the plain value of a masked column is in no topic, store, spill file, dead letter or log.

A word stands in each masked column, in the words of every way that a row can take: snapshot, stream, old rows, changed
keys, values that are read again, spilled buffers, dead letters, faults, events and views. Then every byte is searched.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from redis import Redis

from cdc.settings.mask_rules import MaskKey
from tests.integration.cli.pipeline import Pipeline
from tests.programs import Spawn
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
MASKS = {"mail": "hmac", "name": "hmac", "ssn": "drop", "note": "truncate:3", "doc": "hmac"}
TABLES = (
    "create table people (id int, mail text, name text, ssn text, note text, doc jsonb, primary key (id, mail))",
    "alter table people replica identity full",
    "alter table people alter name set storage external",
    "create table letters (id int primary key, mail text, body text, n int)",
    "alter table letters alter body set storage external",
)
VIEW = "select l.id, l.mail, (select json_agg(json_build_object('id', p.id, 'name', p.name) order by p.id) " \
    "from people p where p.mail = l.mail) as people from letters l"  # fmt: skip


ALL = "--from-beginning --until-caught-up"
AFTER = (
    "status --json",
    "check",
    "verify --timeout 40",
    "dead list",
    f"events people {ALL}",
    f"events letters {ALL} --json",
    f"events view.letters {ALL}",
    "view show letters 2",
    "diff",
    "config lint",
)


def test_the_plain_value_of_a_masked_column_is_nowhere(
    pipeline: Pipeline, spawn: Spawn, redis_url: str, tmp_path: Path
) -> None:
    word, key = f"plainvalue{secrets.token_hex(6)}", f"maskkey{secrets.token_hex(16)}"
    spill = tmp_path / "spill"
    spill.mkdir()
    (pipeline.folder / "letters.sql").write_text(VIEW)
    pipeline.document["source"] |= {"tables": ["public.people", "public.letters"], "mask_key": "env:CDC_MASK_KEY"}
    pipeline.document["tables"] = {
        "public.people": {"columns": MASKS},
        "public.letters": {"columns": {"mail": "hmac", "body": "truncate:3"}},
    }
    pipeline.document["log"] |= {"oversized": "dead-letter", "max_message_bytes": "100kB"}
    pipeline.document["capture"] |= {"spill_path": str(spill), "memory_limit": "64kB"}
    pipeline.document["sinks"] = {
        "cache": {"kind": "redis", "url": redis_url},
        "reports": {"kind": "sql", "url": f"sqlite:///{tmp_path}/reports.db"},
        "lake": {"kind": "delta", "path": str(tmp_path / "lake")},
    }
    pipeline.document["views"] = {"letters": {"sql": "letters.sql"}}
    pipeline.sql(*TABLES, people(word, 1, 20), letters(word, 1, 3))
    said: dict[str, str] = {}

    def run(*command: str) -> str:
        done = pipeline.cdc(*command, timeout_s=120, CDC_MASK_KEY=key)
        said[" ".join(command).replace(word, "WORD")] = done.stdout + done.stderr
        return done.stdout + done.stderr

    for command in ("check", "init", "snapshot", "check"):
        run(command)
    capture = spawn("cdc", "-vv", "--config", pipeline.config, "run", env={"CDC_MASK_KEY": key})
    views = spawn("cdc", "--config", pipeline.config, "view", "run", env={"CDC_MASK_KEY": key})
    sink = spawn("cdc", "--config", pipeline.config, "sink")
    wait_until(lambda: sink.stderr.count('"sink_started"') == 3, 150, lambda: sink.stderr[-3000:])
    owner = locked_behind(pipeline, "update letters set n = n + 1", "letters")
    wait_until(lambda: '"table_waits"' in capture.stderr, 60, lambda: capture.stderr[-3000:])
    pipeline.sql(
        people(word, 100, 3000),
        f"update people set note = '{word} new' where id < 10",
        f"update people set mail = '{word} moved' where id = 11",
        "update people set id = id + 50 where id between 12 and 14",
        "delete from people where id in (1, 2)",
        # Larger than its topic takes: a value that is passed over while it comes in, and one without a mask.
        f"insert into people values (9999, '{word}', repeat('{word}', 60000), '{word}', '{word}', null)",
        "alter table people add more text default 'x'",
        f"insert into people (id, mail, ssn, more) values (10000, '{word} more', '{word}', repeat('z', 200000))",
    )
    spilled = dict(deleted_files(capture.process.pid, spill))
    owner.close()
    pipeline.sql("update letters set n = n + 1", f"update letters set body = '{word} short' where id = 2")
    run("wait", "--timeout", "90")
    for command in AFTER:
        run(*command.split())
    run("snapshot", "public.people", "--detach", "--where", f"name = '{word}'")
    run("snapshot", "public.people", "--detach", "--keys", f"1:{word}")
    run("snapshot", "public.letters", "--where", "id = 2")
    # A fault: the masked column has another name, so its table is set aside.
    pipeline.sql("alter table letters rename mail to address", f"insert into letters values (7, '{word}', '{word}', 1)")
    wait_until(lambda: '"table_aside"' in capture.stderr, 60, lambda: capture.stderr[-3000:])
    run("status")
    # Killed with rows in hand, as they are.
    pipeline.sql(people(word, 20000, 2000))
    capture.process.kill()
    assert sink.terminate() == 0, sink.stderr
    views.terminate()
    ran = {"run": capture, "sink": sink, "view": views}
    said |= {name: one.stdout + one.stderr for name, one in ran.items()}
    assert "masked" in said["snapshot public.people --detach --where name = 'WORD'"]
    assert "masked" in said["snapshot public.people --detach --keys 1:WORD"]
    assert said["run"].count('"row_put_aside"') >= 2
    found = {
        **{f"said by {name}": text.encode() for name, text in said.items()},
        **spilled,
        **dict(everything_under(pipeline.folder)),
        **dict(everything_under(tmp_path)),
        **dict(everything_in_redis(redis_url)),
        **dict(every_record(pipeline)),
    }
    wanted = MaskKey(key).masked(f"{word} 5".encode())
    assert [name for name, content in found.items() if wanted in content and name.startswith("topic")]
    assert [name for name, content in found.items() if wanted in content and name.startswith("redis")]
    assert [name for name, content in found.items() if word.encode() in content] == []
    assert [name for name, content in found.items() if key.encode() in content] == []


def people(word: str, first: int, count: int) -> str:
    return (
        f"insert into people select n, '{word} ' || n, repeat('{word} ' || n, 300), '{word}', 'abc{word}', "
        f"jsonb_build_object('a', '{word}') from generate_series({first}, {first + count - 1}) n"
    )


def letters(word: str, first: int, count: int) -> str:
    last = first + count - 1
    return (
        f"insert into letters select n, '{word} ' || n, 'abc' || repeat('{word}', 500), 0 "
        f"from generate_series({first}, {last}) n"
    )


def everything_under(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield str(path), path.read_bytes()


def locked_behind(pipeline: Pipeline, update: str, table: str) -> psycopg.Connection[Any]:
    """A session that has the table's lock from the moment on at which the update is committed."""
    owner = psycopg.connect(pipeline.dsn, autocommit=True)
    with psycopg.connect(pipeline.dsn) as writer, psycopg.connect(pipeline.dsn, autocommit=True) as watcher:
        writer.execute(update.encode())
        owner.execute("begin")
        owner.pgconn.send_query(f"lock table {table} in access exclusive mode".encode())
        waits = b"select from pg_locks where pid = %s and not granted"
        wait_until(lambda: watcher.execute(waits, (owner.info.backend_pid,)).fetchone() is not None, 20)
        writer.commit()
    return owner


def deleted_files(pid: int, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Files of a process that have no name any more, as its buffers have none."""
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            if os.readlink(entry).startswith(str(folder)):
                yield os.readlink(entry), entry.read_bytes()


def everything_in_redis(url: str) -> Iterator[tuple[str, bytes]]:
    store: Any = Redis.from_url(url)
    for key in store.scan_iter():
        read = {
            b"string": store.get,
            b"hash": store.hgetall,
            b"set": store.smembers,
            b"list": lambda name: store.lrange(name, 0, -1),
            b"zset": lambda name: store.zrange(name, 0, -1),
        }[store.type(key)]
        yield f"redis {key!r}", key + repr(read(key)).encode()


def every_record(pipeline: Pipeline) -> Iterator[tuple[str, bytes]]:
    """Every record of every topic of the pipeline: key, value and headers."""
    consumer = Consumer({"bootstrap.servers": pipeline.document["log"]["bootstrap_servers"], "group.id": "search",
                         "enable.auto.commit": False})  # fmt: skip
    name = f"{pipeline.document['name']}."
    for topic, about in sorted(consumer.list_topics(timeout=20).topics.items()):
        for partition in about.partitions if topic.startswith(name) else ():
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
            consumer.assign([TopicPartition(topic, partition, low)])
            parts: list[bytes] = []
            while consumer.position([TopicPartition(topic, partition)])[0].offset < high and low < high:
                for message in consumer.consume(1000, timeout=1):
                    parts += [repr((message.headers(), message.key())).encode(), message.value() or b""]
            yield f"topic {topic} {partition}", b"\n".join(parts)
    consumer.close()
