"""Settings beside what was made: each difference once, beside what ends it, and none of a part that was not seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.operate.diff import Followed, MadeFacts, ViewTexts, differences, silent
from cdc.process.errors import LogError, SourceError
from cdc.record.ports import Unknown
from cdc.record.progress import Watermark
from cdc.record.schema import Identity
from cdc.record.server_facts import LogFacts, PublicationFacts, SourceFacts, TableFacts, TopicFault
from cdc.record.state import SlotState, TopicsState
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings, parse
from tests.unit.snapshot.first.test_preconditions import SERVER

ORDERS, NOTES = TableName("public", "orders"), TableName("public", "notes")
SLOT = SlotState(
    epoch=1,
    system_identifier="7",
    timeline=1,
    database="shop",
    database_oid=5,
    slot="cdc_shop",
    publication="cdc_shop",
    consistent_point=1,
)
AWAY = Unknown(LogError("Kafka does not answer"))


def settings_of(**more: object) -> Settings:
    return parse(
        {
            "name": "shop",
            "source": {"dsn": "host=none", "tables": ["public.*"]},
            "log": {"bootstrap_servers": "kafka:9092"},
            **more,
        }
    )


def topic(table: TableName) -> str:
    return f"shop.{table}"


def table(name: TableName) -> TableFacts:
    return TableFacts(table=name, topic=topic(name), identity=Identity.DEFAULT, key=("id",))


def source(*tables: TableName, published: tuple[TableName, ...] | None = None) -> SourceFacts:
    sent = frozenset(tables if published is None else published)
    publication = PublicationFacts(publication="cdc_shop", operations=frozenset({"insert"}), via_root=True, tables=sent)
    return SourceFacts(server=SERVER, slot=None, publication=publication, tables=tuple(map(table, tables)))


def made(*tables: TableName, **more: object) -> MadeFacts:
    """As ``cdc init`` and ``cdc snapshot`` made it for these tables."""
    state = TopicsState(cluster_id="k", tables={str(one): topic(one) for one in tables})
    facts = MadeFacts(
        source=source(*tables),
        topics=state,
        slot=SLOT,
        log=LogFacts(cluster_id="k", present=tuple(map(topic, tables)), missing=()),
    )
    return replace(facts, **more)  # type: ignore[arg-type]  # members of the same class


def told(facts: MadeFacts, settings: Settings | None = None) -> list[tuple[str, str]]:
    return [(one.what, one.cure) for one in differences(settings or settings_of(), facts)]


def test_a_pipeline_as_the_settings_say_has_none() -> None:
    mark = Watermark(epoch=1, lsn=1, offsets={topic(ORDERS): {0: 1}})
    stores = {"cache": Followed(watermark=mark, wanted=frozenset({topic(ORDERS)}))}
    assert told(made(ORDERS, stores=stores, views=ViewTexts())) == []


def test_a_table_that_came_and_one_that_went() -> None:
    facts = made(ORDERS, source=source(NOTES, published=(ORDERS,)))
    assert told(facts) == [
        ("public.notes is captured by the settings, and not published", "cdc init"),
        (
            "public.orders is published, and the settings do not capture it",
            "alter publication cdc_shop drop table only public.orders",
        ),
        ("public.orders is not captured any more: its topic and its rows in stores stay", ""),
    ]


def test_before_the_first_command() -> None:
    facts = MadeFacts(source=replace(source(ORDERS), publication=None), topics=None, slot=None, log=None)
    assert told(facts) == [
        ("there is no publication cdc_shop yet", "cdc init"),
        ("the pipeline's topics are not made yet", "cdc init"),
    ]


def test_topics_are_as_the_log_says() -> None:
    fault = TopicFault("the topic t has cleanup.policy=delete, which must be compact", "kafka-configs …", fatal=True)
    log = LogFacts(cluster_id="k", present=(), missing=("shop.public.notes",), faults=(fault,))
    facts = made(ORDERS, log=log, slot=None)
    encoding = settings_of(log={"bootstrap_servers": "k:1", "encoding": "debezium"})
    assert told(facts, encoding) == [
        (
            "[log] encoding is debezium, and the topics hold readable",
            'encoding = "readable": a topic keeps its encoding',
        ),
        (fault.message, fault.fix),
        ("the topic shop.public.notes is not made yet", "cdc init"),
        ("there is no first snapshot yet", "cdc snapshot"),
    ]


def test_stores_follow_what_their_settings_take() -> None:
    mark = Watermark(epoch=1, lsn=1, offsets={topic(ORDERS): {0: 1}})
    stores = {
        "cache": Followed(watermark=mark, wanted=frozenset({topic(NOTES)})),
        "search": Followed(watermark=None, wanted=frozenset({topic(NOTES)})),
    }
    assert told(made(ORDERS, NOTES, stores=stores)) == [
        ("cache does not follow public.notes yet", "start cdc sink cache anew"),
        ("cache keeps rows of public.orders, which [sinks.cache] leaves out", ""),
        ("the store of search shows nothing yet", "cdc sink search"),
    ]


def test_h197_a_moved_table_is_told_once() -> None:
    facts = made(ORDERS)
    moved = settings_of(source={"dsn": "host=none", "tables": ["public.*"], "topics": {str(ORDERS): "own.y"}})
    there = replace(source(ORDERS), tables=(replace(table(ORDERS), topic="own.y"),))
    log = LogFacts(cluster_id="k", present=(), missing=("own.y",))
    assert told(replace(facts, source=there, log=log), moved) == [
        (
            f"{ORDERS} has the topic {topic(ORDERS)}, and the settings name own.y",
            f'put it back: [source.topics] "{ORDERS}" = "{topic(ORDERS)}"; a pipeline of another name may have another',
        )
    ]


def test_h197_a_topic_that_is_no_tables_any_more_is_not_told() -> None:
    mark = Watermark(epoch=1, lsn=1, offsets={"own.former": {0: 9}, topic(ORDERS): {0: 1}})
    stores = {"cache": Followed(watermark=mark, wanted=frozenset({topic(ORDERS)}))}
    assert told(made(ORDERS, stores=stores)) == []


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        ("complete", []),
        ("missing", [("the connector is not deployed yet", "cdc connect deploy")]),
        ("none", [("the connector has stored no offset behind its first snapshot yet", "cdc connect status")]),
        ("running", [("the connector has stored no offset behind its first snapshot yet", "cdc connect status")]),
    ],
)
def test_debeziums_first_snapshot_is_the_connectors_to_know(snapshot: str, words: list[tuple[str, str]]) -> None:
    settings = settings_of(source={"kind": "debezium", "dsn": "host=none", "tables": ["public.*"]})
    assert told(made(ORDERS, slot=None, connector=snapshot), settings) == words


def test_views_by_name_and_text() -> None:
    settings = settings_of(views={"fresh": {"sql": "f.sql"}, "other": {"sql": "o.sql"}})
    views = ViewTexts(published=frozenset({"other", "gone"}), changed=frozenset({"other"}))
    assert told(made(ORDERS, views=views), settings) == [
        ("the view fresh is not published yet", "cdc view run fresh"),
        ("the view other was published from another text", "give a changed view a new name"),
        ("the view gone is published, and the settings have none", "cdc view drop gone"),
    ]


def test_streams_by_name() -> None:
    one = {"topic": "t", "time": "at", "late": "1m", "schema": "at timestamp"}
    stream = {"sql": "f.sql", "key": ["at"], "events": {"requests": one}}
    settings = settings_of(streams={"fresh": stream, "known": stream})
    views = ViewTexts(streams=frozenset({"known", "gone"}))
    assert told(made(ORDERS, views=views), settings) == [
        ("the stream fresh is not published yet", "cdc stream run fresh"),
        ("the stream gone is published, and the settings have none", "cdc stream drop gone"),
    ]


@pytest.mark.parametrize("part", ["source", "topics", "log", "views", "connector"])
def test_h109_nothing_is_told_of_a_part_that_is_silent(part: str) -> None:
    facts = made(ORDERS, **{"views": ViewTexts(), part: AWAY})
    assert told(facts) == []
    assert list(silent(facts)) == [{"source": "postgres", "topics": "kafka", "connector": "connect"}.get(part, part)]


def test_h109_one_cause_is_told_once() -> None:
    facts = made(ORDERS, topics=AWAY, slot=AWAY, log=AWAY, source=Unknown(SourceError("Postgres does not answer")))
    assert list(silent(facts)) == ["postgres", "kafka"]
    assert told(facts) == []


def test_h109_a_silent_store_hides_no_other() -> None:
    stores = {
        "cache": Followed(watermark=AWAY, wanted=frozenset({topic(ORDERS)})),
        "search": Followed(watermark=None, wanted=frozenset({topic(ORDERS)})),
    }
    facts = made(ORDERS, stores=stores)
    assert [what for what, _ in told(facts)] == ["the store of search shows nothing yet"]
    assert list(silent(facts)) == ["cache"]
