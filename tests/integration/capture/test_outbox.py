"""Outbox events: those of committed transactions, each once, in the order of commits, whatever is killed."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

import orjson
import psycopg
import pytest

from cdc import outbox
from cdc.capture.topic_specs import kept_topic_spec, table_topic_spec
from cdc.cli.app import run
from cdc.process.crash_points import CRASH_EXIT
from cdc.process.errors import ConfigError, Exit
from cdc.record.topic_names import dead_topic
from cdc.wire.dead_letter import waiting
from cdc.wiring.pipeline import prepare_pipeline
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import read_range
from connectors.kafka.dead_letters import DeadLetterTopic
from tests.integration.capture.pipeline import Pipeline, Record, refused
from tests.integration.capture.test_restart import CRASH_POINTS
from tests.waiting import wait_until

TABLE = (
    "create table outbox (id uuid primary key default gen_random_uuid(), aggregatetype text, aggregateid text, "
    "type text not null, payload jsonb)"
)
ORDERS = "create table orders (id int primary key, v text)"


@pytest.fixture
def events(pipeline: Pipeline) -> Pipeline:
    """The pipeline with an outbox table and messages."""
    pipeline.document["outbox"] = {"table": "public.outbox", "message": "outbox"}
    return pipeline


def put(aggregate: str, what: str, payload: str = "{}", kind: str = "Order") -> str:
    """The statement that inserts an event."""
    into = "insert into outbox (aggregatetype, aggregateid, type, payload)"
    return f"{into} values ('{kind}', '{aggregate}', '{what}', '{payload}')"


def message(content: str, *, transactional: bool = True, prefix: str = "outbox") -> str:
    return f"select pg_logical_emit_message({str(transactional).lower()}, '{prefix}', '{content}')"


def of(pipeline: Pipeline, kind: str = "Order") -> list[Record]:
    """The events of a kind, in the order of the stream."""
    return sorted(pipeline.records(f"outbox.{kind}"), key=lambda one: one.pos)


def letters(pipeline: Pipeline) -> list[str]:
    topic = DeadLetterTopic(pipeline.settings.log, dead_topic(pipeline.name))
    return [one.reason for one in topic.read()]


def test_rows_and_messages_become_events_in_commit_order(events: Pipeline) -> None:
    events.prepare(TABLE, ORDERS)
    with events.capturing() as capturing:
        events.transaction("insert into orders values (1, 'a')", put("7", "Placed", '{"n": 1.10}'))
        with events.session() as session, session.transaction():
            outbox.emit(session, "Order", 7, "Paid", {"amount": "10.50"})
            outbox.emit(session, "Order", "8", "Placed", b'{"big": 12345678901234567890.10}')
            outbox.emit(session, "Bill", "b", "Sent", None, table="public.outbox")
            session.execute("delete from outbox")
        with pytest.raises(psycopg.errors.DivisionByZero):
            events.transaction(put("7", "Undone"), "select 1/0")
        events.transaction(put("7", "Shipped"), "delete from outbox")
        events.settle()
        assert capturing.figures.outbox() == {"event": 5}
    found = of(events)
    assert [(one.key, one.headers["eventType"]) for one in found] == [
        ("7", b"Placed"), ("7", b"Paid"), ("8", b"Placed"), ("7", b"Shipped"),
    ]  # fmt: skip
    assert [one.value for one in found[:2]] == [{"n": 1.1}, {"amount": "10.50"}]
    assert [*found[0].headers] == ["pos", "id", "eventType", "at"]
    assert len({one.headers["id"] for one in found}) == 4
    assert found[1].pos.commit_lsn == found[2].pos.commit_lsn
    assert [one.pos.tx_seq for one in found] == [1, 1, 2, 1]
    assert [one.value for one in of(events, "Bill")] == [None]
    assert "public.outbox" not in events.topics().tables
    assert events.shorts("orders") == ['c {"id":1}']


def test_the_digits_of_a_payload_stay(events: Pipeline) -> None:
    events.prepare(TABLE, ORDERS)
    texts = ['{"n": 12345678901234567890.10}', '"a text"', "1.00", "[1, {}]", '{"deep": {"x": "\\u00e4"}}']
    with events.capturing():
        with events.session() as session, session.transaction():
            for text in texts:
                outbox.emit(session, "Order", "7", "Placed", text.encode())
        events.settle()
    assert [raw(events, one) for one in of(events)] == texts


def raw(pipeline: Pipeline, record: Record) -> str:
    found = {one.offset(): one.value() for one in read_range(pipeline.settings.log, record.topic, record.partition)}
    value = found[record.offset]
    assert isinstance(value, bytes)
    return value.decode()


def test_what_is_no_event_is_put_aside_and_holds_up_nothing(events: Pipeline) -> None:
    events.document["log"]["max_message_bytes"] = 20_000
    events.prepare(TABLE.replace("payload jsonb", "payload text"), ORDERS)
    with events.capturing() as capturing:
        events.execute(
            put("", "Nameless"),
            put("7", "NoJson", "{"),
            put("7", "Large", '"' + "x" * 20_000 + '"'),
            put("7", "Larger", '"' + "x" * 400_000 + '"'),
            message('{"id": "1"}'),
            message("no JSON"),
            message(
                '{"id": "1", "aggregatetype": "Order", "aggregateid": "7", "type": "A", "payload": 1}',
                transactional=False,
            ),
            message("x" * 400_000),
            message("theirs", prefix="another"),
            "update outbox set type = 'Changed' where type = 'NoJson'",
            put("7", "Fine"),
        )
        events.settle()
        assert capturing.figures.outbox() == {"event": 1, "refused": 8, "update": 1}
    assert [one.headers["eventType"] for one in of(events)] == [b"Fine"]
    found = letters(events)
    for word, reason in zip(
        ["aggregateid is empty", "payload is no JSON", "has 20,", "bytes and more", "has no aggregatetype",
         "no JSON object", "not transactional", "larger than any record"],
        found, strict=True,
    ):  # fmt: skip
        assert word in reason


def test_e3_an_outbox_changes_no_position_of_a_table(events: Pipeline) -> None:
    events.document["source"]["tables"] = ["public.orders"]
    events.prepare(TABLE, ORDERS)
    script = (
        "insert into orders values (1, 'a')",
        message('{"id": "m", "aggregatetype": "Order", "aggregateid": "7", "type": "A", "payload": 1}'),
        "update orders set v = 'b'",
        "delete from orders",
    )
    run = events.stream()
    events.transaction(*script)
    events.settle()
    before = [(one.pos.tx_seq, one.short) for one in events.by_position("orders")]
    assert run.terminate() == 0
    events.document["outbox"]["message"] = ""
    with events.capturing():
        events.transaction(*script)
        events.settle()
    after = [(one.pos.tx_seq, one.short) for one in events.by_position("orders")]
    assert after == before * 2
    assert len(of(events)) == 1


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("", "does not exist"),
        (TABLE.replace("primary key ", ""), "no primary key"),
        (TABLE.replace("aggregateid text, ", ""), "no column aggregateid"),
        (TABLE.replace("jsonb", "bytea"), "payload is bytea"),
        (TABLE.replace(" primary key", "") + " partition by hash (aggregateid)", "is partitioned"),
    ],
)  # fmt: skip
def test_init_refuses_an_outbox_table_that_is_none(events: Pipeline, sql: str, word: str) -> None:
    with pytest.raises(Exception, match=word):
        events.prepare(*filter(None, [sql]), ORDERS)


def test_a_type_that_is_a_tables_topic_is_put_aside(events: Pipeline) -> None:
    events.execute("create schema outbox")
    events.document["source"]["tables"] = ["outbox.orders"]
    events.prepare(TABLE, "create table outbox.orders (id int primary key)")
    with events.capturing():
        events.execute(put("7", "Placed", kind="orders"), put("7", "Placed"))
        events.settle()
    assert ["a table's or the pipeline's own" in one for one in letters(events)] == [True]
    assert len(of(events)) == 1


def test_topics_that_cannot_be_used_stop_nothing(events: Pipeline) -> None:
    events.document["source"]["tables"] = ["public.orders"]
    events.prepare(TABLE, ORDERS)
    admin = TopicAdmin(events.settings.log)
    spec = kept_topic_spec(events.settings.log, f"{events.name}.outbox.Early", -1)
    admin.create([replace(spec, partitions=1)])
    admin.create([table_topic_spec(events.settings.log, f"{events.name}.outbox.Packed")])
    with events.capturing():
        events.execute(put("7", "A", kind="Order.Line"), put("7", "B", kind="Order_Line"))
        events.execute(put("7", "C", kind="Early"), put("7", "D", kind="Packed"), put("7", "E"))
        events.settle()
    found = letters(events)
    assert len(found) == 2
    assert "collides" in found[0]
    assert "must be delete" in found[1]
    assert [one.headers["eventType"] for one in (*of(events, "Early"), *of(events))] == [b"C", b"E"]


def test_each_refused_row_of_one_copy_is_a_letter(events: Pipeline) -> None:
    events.prepare(TABLE, ORDERS)
    with events.capturing(), events.session() as session:
        columns = "id, aggregatetype, aggregateid, type"
        with session.cursor() as cursor, cursor.copy(f"copy outbox ({columns}) from stdin".encode()) as copy:
            for number in range(20):
                copy.write_row((str(UUID(int=number)), "Order", "", "Nameless"))
        events.settle()
    topic = DeadLetterTopic(events.settings.log, dead_topic(events.name))
    assert len(waiting(topic.read())) == 20


def test_an_outbox_that_is_captured_is_refused(events: Pipeline) -> None:
    events.document["source"]["tables"] = ["public.outbox"]
    with pytest.raises(ConfigError, match="a captured table at once"):
        events.settings  # noqa: B018


def test_a_topic_of_events_that_was_deleted_is_forgotten_by_init(events: Pipeline) -> None:
    events.document["history"] = {"tables": ["public.orders"]}
    events.prepare(TABLE, "create table orders (id int primary key)")
    with events.capturing():
        events.transaction(put("7", "Placed"), "insert into orders values (1)")
        events.settle()
    gone = [f"{events.name}.outbox.Order", f"{events.name}.public.orders.history"]
    admin = TopicAdmin(events.settings.log)
    admin.delete(gone)
    wait_until(lambda: not admin.describe(gone), 30)
    said = refused(events.start(), Exit.TOPIC, "does not exist any more", "no store needs it: run cdc init")
    assert "cdc drop" not in said
    prepare_pipeline(events.settings)
    with events.capturing():
        events.transaction(put("7", "Shipped"), "insert into orders values (2)")
        events.settle()
    assert [one.headers["eventType"] for one in of(events)] == [b"Shipped"]
    ops = [one.op for one in events.records("public.orders.history")]
    assert sorted(ops) == ["c", "gap", "gap", "gap"]
    events.assert_equal("orders")


@pytest.mark.slow
def test_e4_e5_killed_anywhere_each_event_is_there_once(events: Pipeline) -> None:
    events.prepare(TABLE, ORDERS)
    events.execute("create table said (n int primary key, key text not null)")
    random_ = random.Random(5)
    number = 0
    with events.session() as session:
        for nth, point in enumerate(CRASH_POINTS * 2):
            run = events.start(crash_at=f"{point}:{nth % 5 + 1}")
            while run.process.poll() is None:
                number = write(session, random_, number)
                with suppress(subprocess.TimeoutExpired):
                    run.process.wait(0.005)
            assert run.process.returncode == CRASH_EXIT, run.stderr
        number = write(session, random_, number)
    with events.capturing():
        events.settle()
    said = events.one("select json_agg(json_build_array(n, key) order by n)::text from said")
    expected = [(one, key) for one, key in orjson.loads(said)]
    found = [(one.value["n"], one.key) for one in of(events)]
    assert sorted(found) == expected
    for key in {key for _, key in expected}:
        assert [n for n, k in found if k == key] == [n for n, k in expected if k == key]
    last: dict[int, Any] = {}
    for one in events.records("outbox.Order"):
        assert one.partition not in last or one.pos > last[one.partition]
        last[one.partition] = one.pos


def write(session: psycopg.Connection[Any], random_: random.Random, number: int) -> int:
    """A transaction of one to four events, one in five rolled back. The number of the last one that was used."""
    with session.transaction() as transaction:
        for _ in range(random_.randint(1, 4)):
            number += 1
            key = f"k{random_.randint(0, 5)}"
            session.execute("insert into said values (%s, %s)", (number, key))
            session.execute("insert into orders values (%s, 'v')", (number,))
            table = random_.choice([None, "public.outbox"])
            outbox.emit(session, "Order", key, "Happened", {"n": number}, table=table)
        if random_.random() < 0.2:
            raise psycopg.Rollback(transaction)
    return number


Cdc = Callable[..., tuple[int, str]]


@pytest.fixture
def cdc(events: Pipeline, capsys: pytest.CaptureFixture[str]) -> Cdc:
    """Runs a command on the pipeline: its exit code and what it printed."""

    def command(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = run(["--config", str(events.config()), *arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out + err

    return command


def test_a_captured_table_that_becomes_the_outbox_is_uncounted(events: Pipeline, cdc: Cdc) -> None:
    events.document["source"]["tables"] = ["public.*"]
    outbox = events.document.pop("outbox")
    events.prepare(TABLE, ORDERS)
    events.document["outbox"] = outbox
    assert cdc("init")[0] == 0
    assert "tables    1 followed" in cdc("status")[1]


def test_the_commands_know_the_outbox(events: Pipeline, cdc: Cdc) -> None:
    events.prepare(TABLE, ORDERS)
    code, said = cdc("check")
    assert "inserts into public.outbox are events" in said
    assert "every role of the database may write messages" in said
    assert "which the settings do not name" not in said
    assert cdc("events", "outbox", "--until-caught-up") == (
        Exit.USAGE,
        "error: there are no events\nhint: the topics of events are none yet: a topic is made with its first event\n",
    )
    with events.capturing():
        events.transaction(put("7", "Placed", '{"n": 1.10}'), put("8", "Placed"), put("b", "Sent", kind="Bill"))
        events.execute(put("", "Nameless"))
        events.settle()
    code, said = cdc("events", "outbox.Order", "--from-beginning", "--until-caught-up")
    assert code == 0
    line = re.fullmatch(rf"{events.name}.outbox.Order 7  Placed  [0-9A-F/]+  (.*)", said.splitlines()[0])
    assert line is not None
    assert line[1] == '{"n": 1.10}'
    code, said = cdc("events", "outbox", "--json", "--from-beginning", "--until-caught-up")
    assert sorted(orjson.loads(one)["key"] for one in said.splitlines()) == ["7", "8", "b"]
    code, said = cdc("status")
    assert code == Exit.DIFFERENCE
    said = " ".join(said.split())
    assert "of what was written to the outbox, 1 of them is put aside: cdc dead list says why" in said
    assert "larger than the topic takes" not in said
    assert "its aggregateid is empty" in cdc("dead", "list")[1]
    assert cdc("dead", "drop", "--sink", "(capture)")[0] == 0
    assert "put aside" not in cdc("status")[1]
    events.execute("create schema outbox", 'create table outbox."Order" (id int primary key)')
    events.document["source"]["tables"] = ["public.*", "outbox.*"]
    events.document["outbox"]["keep"] = "30d"
    code, said = cdc("check")
    said = " ".join(said.split())
    topic = f"{events.name}.outbox.Order"
    assert f"outbox.Order would use the topic {topic}, which holds records from before" in said
    assert f"the topic {topic} has retention.ms=604800000, and by the settings it would be 2592000000" in said
    assert "which must be compact" not in said
    del events.document["outbox"]["keep"]
    events.execute(f"alter publication {events.settings.publication} drop table outbox")
    code, said = cdc("check")
    assert "does not hold the outbox public.outbox: its events are not sent" in said
    assert code == Exit.CONFIG
