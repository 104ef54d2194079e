"""Enums in a warehouse that is Postgres: text with a check, which no label of the source ever meets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from cdc.record.progress import Watermark
from sinks.contract.kinds import beside, open_generations, spec_for
from sinks.contract.port import OpenSink, StoreAway
from sinks.contract.sink_spec import SinkSpec, open_sink
from tests.contract.conftest import postgres_url
from tests.contract.stores import live
from tests.contract.topics import Shapes, Topic, at, batch, column, shape
from tests.integration.sinks.test_sql_types import asked

STATES = shape(column("id", "int8", key=1), column("state", "enum"), table="states")
AS_TEXT = shape(column("id", "int8", key=1), column("state", "text"), table="states", version=2)
CHECK = (
    "select pg_get_constraintdef(oid) from pg_constraint where conrelid = 'public_states'::regclass and contype = 'c'"
)
MARK = Watermark(epoch=1, lsn=99)
ODD = ["it's", "50%", ":x", "{}", 'two "words"', "", "ü"]


@pytest.fixture
def spec(database: str) -> Iterator[SinkSpec]:
    yield spec_for("sql", prefix="shop", options={"url": postgres_url(conninfo_to_dict(database))})


def put(sink: OpenSink, topic: Topic, lsn: int, *labels: str | None, shapes: Shapes | None = None) -> None:
    """A row of each label, numbered on."""
    events = (topic.upsert({"id": 100 * lsn + n, "state": label}, at(lsn)) for n, label in enumerate(labels))
    done = sink.sink.apply(batch(*events), shapes or Shapes(STATES))
    assert (done.applied, done.refused) == (len(labels), ())


def check(database: str) -> set[str]:
    """The labels of the one check."""
    [(definition,)] = asked(database, CHECK)
    [(labels,)] = asked(
        database, f"select {definition[definition.index('ARRAY[') : definition.rindex(']') + 1]}::text[]"
    )
    return set(labels)


def test_h435_a_label_that_nobody_announced_widens_the_check(spec: SinkSpec, database: str) -> None:
    topic = Topic(STATES)
    with closing(open_sink(spec)) as sink:
        put(sink, topic, 1, "open", "paid", None)
        sink.commit(MARK)
        assert check(database) == {"open", "paid"}
        put(sink, topic, 2, "open", *ODD)
        sink.commit(MARK)
        assert check(database) == {"open", "paid", *ODD}
        assert len(live(sink, STATES)) == 3 + 1 + len(ODD)
    with psycopg.connect(database) as other, pytest.raises(psycopg.errors.CheckViolation):
        other.execute("insert into public_states (_key, _pos, _deleted, state) values ('x', '', false, 'lost')")


def test_w7_an_enum_of_no_label_takes_rows_without_one(spec: SinkSpec, database: str) -> None:
    """Under the enum itself, or a domain over it: the kind is the same. A label that comes later widens the check."""
    topic = Topic(STATES)
    with closing(open_sink(spec)) as sink:
        put(sink, topic, 1, None, None)
        gone = topic.delete({"id": 100}, at(2))
        assert sink.sink.apply(batch(gone), Shapes(STATES)).refused == ()
        sink.commit(MARK)
        assert check(database) == set()
        assert len(live(sink, STATES)) == 1
        put(sink, topic, 3, "open", None)
        sink.commit(MARK)
        assert check(database) == {"open"}
    with psycopg.connect(database) as other, pytest.raises(psycopg.errors.CheckViolation):
        other.execute("insert into public_states (_key, _pos, _deleted, state) values ('x', '', false, 'lost')")


def test_w7_an_array_of_an_empty_enum_has_no_check(spec: SinkSpec, database: str) -> None:
    arrays = shape(column("id", "int8", key=1), replace(column("state", "enum"), array=True), table="states")
    topic = Topic(arrays)
    with closing(open_sink(spec)) as sink:
        rows = [topic.upsert({"id": n, "state": value}, at(n)) for n, value in ((1, None), (2, []), (3, [None]))]
        done = sink.sink.apply(batch(*rows), Shapes(arrays))
        assert (done.applied, done.refused) == (3, ())
        sink.commit(MARK)
    assert asked(database, CHECK) == []


def test_h435_odd_names_have_checks_too(spec: SinkSpec) -> None:
    """Of the table, and of two columns whose names are long and begin alike."""
    names = [f"{'x' * 60}_{n}" for n in (1, 2)]
    odd = shape(column("id", "int8", key=1), *(column(name, "enum") for name in names), table='50% "odd"')
    topic = Topic(odd)
    with closing(open_sink(spec)) as sink:
        for number in (1, 2):
            row = topic.upsert({"id": number, names[0]: f"a{number}", names[1]: f"b{number}"}, at(number))
            assert sink.sink.apply(batch(row), Shapes(odd)).applied == 1
            sink.commit(MARK)


def test_h435_two_writers_keep_each_others_labels(spec: SinkSpec, database: str) -> None:
    topic = Topic(STATES)
    with closing(open_sink(spec)) as one, closing(open_sink(spec)) as other:
        put(one, topic, 1, "a")
        one.commit(MARK)
        put(other, topic, 2, "b")
        other.commit(MARK)
        put(one, topic, 3, "c")
        one.commit(MARK)
        put(other, topic, 4, "a", "b", "c")
        other.commit(MARK)
    assert check(database) == {"a", "b", "c"}


def test_h435_what_is_rolled_back_is_widened_again(spec: SinkSpec, database: str) -> None:
    topic = Topic(STATES)
    with closing(open_sink(spec)) as sink:
        put(sink, topic, 1, "a")
        sink.commit(MARK)
        put(sink, topic, 2, "b")
        asked(
            database,
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() "
            "and datname = current_database()",
        )
        with pytest.raises(StoreAway):
            put(sink, topic, 3, "b", "c")
        put(sink, topic, 3, "b", "c")
        sink.commit(MARK)
    assert check(database) == {"a", "b", "c"}


def test_h435_an_enum_that_becomes_text_has_no_check(spec: SinkSpec, database: str) -> None:
    with closing(open_sink(spec)) as sink:
        put(sink, Topic(STATES), 1, "open")
        put(sink, Topic(AS_TEXT), 2, "anything", shapes=Shapes(STATES, AS_TEXT))
        put(sink, Topic(STATES), 3, "late", shapes=Shapes(STATES, AS_TEXT))
        sink.commit(MARK)
    assert asked(database, CHECK) == []


def test_h435_a_text_of_before_goes_into_an_enums_column(spec: SinkSpec) -> None:
    """A compacted topic keeps rows of the older shape: the newest one made the table."""
    later: Any = shape(column("id", "int8", key=1), column("state", "enum"), table="states", version=3)
    with closing(open_sink(spec)) as sink:
        put(sink, Topic(later), 5, "open", shapes=Shapes(AS_TEXT, later))
        put(sink, Topic(AS_TEXT), 4, "a text of old", shapes=Shapes(AS_TEXT, later))
        sink.commit(MARK)


def test_h435_a_table_of_before_gets_its_check_by_a_rebuild(spec: SinkSpec, database: str) -> None:
    topic = Topic(STATES)
    with closing(open_sink(spec)) as sink:
        put(sink, topic, 1, "open")
        sink.commit(MARK)
        asked(database, "alter table public_states drop constraint state_labels")
    with closing(open_sink(spec)) as sink:
        put(sink, topic, 2, "paid")
        sink.commit(MARK)
        assert asked(database, CHECK) == []
    with closing(open_sink(beside(spec, 2))) as sink:
        put(sink, topic, 3, "sent")
        sink.commit(MARK)
    with closing(open_generations(spec)) as generations:
        generations.keep(1, [STATES])
        generations.switch(2, [STATES])
        assert check(database) == {"sent"}
        generations.switch(1, [STATES])
    assert check(database) == {"open", "paid", "sent"}
    with closing(open_sink(spec)) as sink:
        put(sink, topic, 4, "new")
        sink.commit(MARK)
