"""Replay golden scripts through the commands a user has: init, snapshot, run, then read the topics."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
from confluent_kafka import Consumer

from cdc.record.progress import PROGRESS_KEY, Progress
from cdc.record.topic_names import progress_topic
from cdc.settings.model import LogSettings, Settings, load
from connectors.kafka.compacted_topic import KafkaCompactedTopic, read_range
from tests.golden.records import CASES, Wire
from tests.waiting import wait_until

STEPWISE = ("sh_toast",)
"""Cases whose next statement waits for the stream: a re-selected row must not have been deleted meanwhile."""

_CONFIG = """\
name = "{name}"
[source]
dsn = "{dsn}"
tables = [{tables}]
exclude = [{exclude}]
[log]
bootstrap_servers = "{kafka}"
partitions = 1
encoding = "{encoding}"
[capture]
http_address = ""
[snapshot]
workers = 1
watch = "0s"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The cases of one replay, all in one database: each has a schema of its own."""

    name: str
    dsn: str
    kafka: str
    encoding: str
    cases: Sequence[str]
    exclude: Sequence[str]
    psql: Path

    def write_config(self, folder: Path) -> Path:
        path = folder / "cdc.toml"
        path.write_text(
            _CONFIG.format(
                name=self.name,
                dsn=self.dsn,
                kafka=self.kafka,
                encoding=self.encoding,
                tables=", ".join(f'"{case}.*"' for case in self.cases),
                exclude=", ".join(f'"{table}"' for table in self.exclude),
            ),
            encoding="utf-8",
        )
        return path

    def run(self, case: str, file: str) -> None:
        """One SQL file of a case, as its README says."""
        self._psql(f"{case}/{file}", "-f", str(CASES / case / file))

    def steps(self, case: str) -> Iterator[None]:
        """The changes of a case one statement at a time; the caller waits in between."""
        lines = (CASES / case / "changes.sql").read_text(encoding="utf-8").splitlines()
        setting = [line for line in lines if line.startswith("SET ")]
        for number, line in enumerate(lines):
            if line and line not in setting:
                self._psql(f"{case}:{number}", *(part for text in (*setting, line) for part in ("-c", text)))
                yield

    def _psql(self, name: str, *arguments: str) -> None:
        command = [str(self.psql), self.dsn, "-X", "-q", "-v", "ON_ERROR_STOP=1", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name}: {done.stderr}"


def replay(
    script: Script, folder: Path, cdc: Callable[..., str], start_capture: Callable[[Path], object]
) -> list[Wire]:
    """Run it all; returns the records of all table topics.

    ``cdc`` runs one command to its end; ``start_capture`` starts ``cdc run`` and returns what ends it.
    """
    for case in script.cases:
        script.run(case, "schema.sql")
        script.run(case, "seed.sql")
    config = script.write_config(folder)
    cdc("init", "--config", str(config))
    cdc("snapshot", "--config", str(config))
    start_capture(config)
    settings = load(config, {})
    for case in script.cases:
        if case in STEPWISE:
            for _ in script.steps(case):
                wait_for_stream(settings, script.dsn)
        else:
            script.run(case, "changes.sql")
    wait_for_stream(settings, script.dsn)
    topics = [topic for topic in _topics(settings.log) if topic.startswith(f"{script.name}.sh_")]
    return [wire for topic in sorted(topics) for wire in read_topic(settings.log, topic)]


def wait_for_stream(settings: Settings, dsn: str) -> None:
    """Until the progress record has passed all that is written now."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "select pg_logical_emit_message(true, 'golden-end', ''), pg_current_wal_insert_lsn() - '0/0'"
        ).fetchone()
    assert row is not None
    upto = int(row[1])
    progress = KafkaCompactedTopic(settings.log, progress_topic(settings.name))

    def passed() -> bool:
        value = progress.read().get(PROGRESS_KEY)
        return value is not None and Progress.from_json(value).lsn >= upto

    wait_until(passed, 60, f"progress at {upto}")


def _topics(log: LogSettings) -> list[str]:
    consumer = Consumer({"bootstrap.servers": log.bootstrap_servers, "group.id": "golden"})
    try:
        return list(consumer.list_topics(timeout=10).topics)
    finally:
        consumer.close()


def read_topic(log: LogSettings, topic: str) -> list[Wire]:
    """Partition 0 of a topic, whole."""
    found: list[Wire] = []
    for message in read_range(log, topic, 0):
        key, value, offset = message.key(), message.value(), message.offset()
        assert isinstance(key, bytes)
        assert offset is not None
        headers = tuple((pair[0], text_of(pair[1])) for pair in message.headers() or [])
        found.append(Wire(topic=topic, offset=offset, key=key, value=value, headers=headers))
    return found


def text_of(header: str | bytes | None) -> str:
    """A header's bytes as text."""
    assert isinstance(header, bytes)
    return header.decode()
