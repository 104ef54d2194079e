"""Each part is killed under ``cdc sink``, and every figure is read: none goes on saying what was so before (H110)."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from psycopg.conninfo import conninfo_to_dict

from cdc.figures.declared_figures import SINKS
from cdc.stack.local import free_ports
from tests.conftest import Stack
from tests.contract.conftest import postgres_url
from tests.figure_kinds import bound_to
from tests.integration.spark.handmade import HandMadeLog
from tests.integration.spark.test_process import START_S, rows
from tests.programs import Spawn, Spawned
from tests.waiting import wait_until

PARTS = {"redis": "cache", "opensearch": "search", "postgres": "reports"}
_SAMPLE = re.compile(r'^(cdc_\w+?)\{pipeline="\w+"(?:,sink="(\w+)")?\} (\S+)$', re.MULTILINE)
LACKING, STATE = bound_to(SINKS, "cdc_sink_lag_known"), bound_to(SINKS, "cdc_sink_state_known")


class Watched:
    """What a running application says of itself."""

    def __init__(self, program: Spawned, address: str) -> None:
        self.program = program
        self._address = address

    def figures(self) -> dict[tuple[str, str], float]:
        """(name, sink) -> value."""
        with urlopen(f"http://{self._address}/metrics", timeout=10) as page:
            text = page.read().decode()
        assert "NaN" not in text
        return {(name, sink): float(value) for name, sink, value in _SAMPLE.findall(text)}

    def ready(self) -> str:
        """Empty when it is; else why not."""
        try:
            urlopen(f"http://{self._address}/readyz", timeout=10).close()
        except HTTPError as refused:
            with refused:
                return refused.read().decode()
        except OSError:
            return "it does not answer"
        return ""

    def until_ready(self) -> None:
        wait_until(lambda: not self.ready(), START_S, lambda: self.ready() + self.program.stderr[-3000:])

    def until_level(self, sink: str) -> None:
        """Until the store is known to lack nothing."""
        wait_until(lambda: self.figures().get(("cdc_sink_lag_seconds", sink)) == 0, 90, self.figures)

    def until_not(self, words: str) -> None:
        wait_until(lambda: words in self.ready(), 120, lambda: self.ready() + self.program.stderr[-3000:])


@pytest.fixture
def watched(
    pipeline: HandMadeLog,
    spawn: Spawn,
    redis_url: str,
    opensearch: str,
    index_prefix: str,
    database: str,
    tmp_path: Path,
) -> Watched:
    stores = {
        "cache": {"kind": "redis", "url": redis_url},
        "search": {"kind": "opensearch", "url": opensearch, "prefix": index_prefix},
        "reports": {"kind": "sql", "url": postgres_url(conninfo_to_dict(database))},
    }
    address = f"127.0.0.1:{free_ports(['kafka'])['kafka']}"
    config = tmp_path / "cdc.toml"
    spark = {"checkpoint": str(tmp_path / "checkpoints"), "http_address": address}
    config.write_text(pipeline.toml(stores, **spark), encoding="utf-8")
    pipeline.put(rows(0, 50))
    return Watched(spawn("cdc", "--config", config, "sink"), address)


def store_killed(pipeline: HandMadeLog, watched: Watched, stack: Stack, part: str) -> None:
    """Only the figures of its own store tell of it, and when it is there again none does."""
    sink = PARTS[part]
    stack.stop_part(part, kill=True)
    first = len(pipeline.rows["orders"])
    pipeline.put(rows(first, first + 50))
    watched.until_not(f"{sink}: away")
    figures = watched.figures()
    assert (figures["cdc_sink_up", sink], figures["cdc_sink_lag_known", sink]) == (0, 0)
    assert not {(name, sink) for name in (*LACKING, *STATE)} & figures.keys()
    wait_until(lambda: watched.figures()["cdc_sink_answer_age_seconds", sink] > 1, 20)
    for other in {*PARTS.values()} - {sink}:
        watched.until_level(other)
        assert watched.figures()["cdc_sink_up", other] == 1
    stack.start_part(part)
    stack.ensure(part)
    watched.until_ready()
    watched.until_level(sink)


def log_killed(watched: Watched, stack: Stack) -> None:
    """What a store lacks is not known any more, and each store answers all the same."""
    stack.stop_part("kafka", kill=True)
    try:
        watched.until_not("log: Kafka has not said where it ends")
        figures = watched.figures()
        assert figures["cdc_sink_log_age_seconds", ""] > 30
        for sink in PARTS.values():
            assert figures["cdc_sink_lag_known", sink] == 0
            assert not {(name, sink) for name in LACKING} & figures.keys()
            assert {(name, sink) for name in STATE} <= figures.keys()
            assert figures["cdc_sink_up", sink] == 1, "the store itself answers"
    finally:
        # Others need it, too.
        stack.start_part("kafka")
        stack.ensure("kafka")
    watched.until_ready()
    for sink in PARTS.values():
        watched.until_level(sink)


@pytest.mark.slow
@pytest.mark.long
def test_h110_a_killed_store_shows_in_its_figures_alone(pipeline: HandMadeLog, watched: Watched, stack: Stack) -> None:
    watched.until_ready()
    store_killed(pipeline, watched, stack, "redis")


@pytest.mark.slow
@pytest.mark.long
def test_h110_a_killed_kafka_shows_in_what_stores_lack(watched: Watched, stack: Stack) -> None:
    watched.until_ready()
    log_killed(watched, stack)


@pytest.mark.long
def test_h110_each_killed_part_shows_in_every_figure_of_it(
    pipeline: HandMadeLog, watched: Watched, stack: Stack
) -> None:
    watched.until_ready()
    for part in PARTS:
        store_killed(pipeline, watched, stack, part)
    log_killed(watched, stack)
