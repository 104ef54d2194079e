"""Events a second through a stream: windows of a minute by 50 paths, and a left outer join of two topics by user.

300,000 events over an hour of commit times stand in topics of two partitions, and one progress record releases them
all: timed from it until the stream has published the batch and closed the windows that it could. A Spark of two cores
with compiled plans; the first of each is a warm-up. CPU is that of all processes of the application.
"""

from __future__ import annotations

import os
import secrets
import time
from datetime import timedelta

from confluent_kafka import Producer

from cdc.record.position import Position
from connectors.kafka.clients import producer_config
from tests.bench.setting import RUNS, Bench, cpu_of, spread
from tests.integration.spark.family import below
from tests.integration.spark.handmade import HandMadeLog
from tests.integration.spark.handmade_events import NOON, WINDOWS, HandMadeEvents, us
from tests.lake_sessions import COMPILED, lake_spark

JOIN = """
select r.at as start, r.path, r._pos as pos, o.n from requests r
left join others o on o.user = r.user and o.at between r.at and r.at + interval 1 minute
"""
GOALS = {"windows": 60_000, "join": 25_000}


def bench(bench: Bench) -> None:
    events = bench.rows(300_000)
    servers = bench.stack.ensure("kafka")["kafka"]["bootstrap_servers"]
    with lake_spark(bench.folder / "spark", COMPILED) as session:
        session.conf.set("spark.sql.shuffle.partitions", "4")
        for way, kinds in (("windows", ("Request",)), ("join", ("Request", "Answer"))):
            topics = HandMadeLog(f"b{secrets.token_hex(4)}", servers)
            topics.init()
            made = HandMadeEvents(topics, bench.folder / way, kinds=kinds)
            settings = made.settings(JOIN, key=["pos"], mode="append") if way == "join" else made.settings(WINDOWS)
            rates, cpu_us, state = [], [], []
            try:
                with made.running(session, settings) as stream:
                    for hour in range(RUNS + 1):
                        _produce(made, events // len(kinds), hour)
                        begun, used = time.perf_counter(), _cpu_s()
                        made.settle(stream, made.cut())
                        rates.append(events / (time.perf_counter() - begun))
                        cpu_us.append((_cpu_s() - used) / events * 1e6)
                        assert stream.last is not None
                        state.append(stream.last.state_rows)
            finally:
                topics.admin.delete([name for name in topics.admin.names() if name.startswith(f"{topics.name}.")])
            rows = " to ".join(f"{one:,}" for one in (state[1], state[-1]))
            bench.say(
                f"{way}: {spread(rates[1:])} events/s   (goal {GOALS[way]:,}), {spread(cpu_us[1:], 1)} us CPU each, "
                f"rows of state {rows}"
            )


def _produce(made: HandMadeEvents, each: int, hour: int) -> None:
    """As many events of each kind, in turn, within an hour."""
    producer = Producer(producer_config(made.log.log))
    for number in range(each):
        made.now = NOON + timedelta(hours=hour, seconds=3600 * number / each)
        for kind in made.kinds:
            made.lsn += 64
            body = b'{"at":"%s","path":"/p%d","user":"u%d","n":%d}'
            value = body % (made.now.isoformat().encode(), number % 50, number, number)
            headers: list[tuple[str, str | bytes | None]] = [
                ("pos", Position(1, made.lsn, 1).text()),
                ("id", f"{number}"),
            ]
            headers += [("eventType", "Seen"), ("at", f"{us(made.now)}")]
            while True:
                try:
                    producer.produce(made.topic(kind), value, f"k{number}", number % 2, headers=headers)
                    break
                except BufferError:
                    producer.poll(0.1)
    assert producer.flush(60) == 0


def _cpu_s() -> float:
    return sum(cpu_of(pid) for pid in (os.getpid(), *(one.pid for one in below(os.getpid()))))
