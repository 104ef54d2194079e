"""All checks together: a part that does not answer hides no other, and the settings file is looked at first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc.checks.findings import Finding, Level, exit_code
from cdc.checks.preflight import preflight
from cdc.checks.secrecy import check_settings
from cdc.figures.process_status import Process
from cdc.process.errors import ConfigError, Exit, LogError, SinkError, SourceError
from cdc.record.server_facts import LogFacts, SourceFacts, StoreFacts, TopicFault, TopicRights
from cdc.record.state import Document, TopicsState
from cdc.record.tables_aside import Unfollowed
from cdc.settings.model import DebeziumSettings, Settings
from sinks.contract.kinds import kind_named, parse_settings
from tests.unit.cdc.checks.test_postgres import FACTS, KNOWN

HEALTHY_LOG = LogFacts(cluster_id="c", present=("shop.state",), missing=("shop.public.orders",))


def settings(sinks: dict[str, Any] | None = None, **source: Any) -> Settings:
    return parse_settings(
        {
            "name": "shop",
            "source": {"dsn": "host=127.0.0.1 dbname=app", "tables": ["public.*"], **source},
            "log": {"bootstrap_servers": "127.0.0.1:9092"},
            "sinks": {"cache": {"kind": "redis", "url": "redis://127.0.0.1"}} if sinks is None else sinks,
        }
    )


def fails(error: Exception) -> Callable[[], Any]:
    def raises() -> Any:
        raise error

    return raises


class Probes:
    """Answers, or raises."""

    def __init__(self, **answers: Callable[[], Any]) -> None:
        self._answers = answers

    def _answer(self, part: str, otherwise: Any) -> Any:
        return self._answers[part]() if part in self._answers else otherwise

    def state(self) -> Mapping[bytes, bytes]:
        documents: Iterable[Document] = self._answer("state", ())
        return {document.key(): document.to_json() for document in documents}

    def processes(self) -> Sequence[Process]:
        found: Sequence[Process] = self._answer("processes", ())
        return found

    def unfed_views(self) -> Sequence[str]:
        found: Sequence[str] = self._answer("unfed_views", ())
        return found

    def source(self) -> SourceFacts:
        facts: SourceFacts = self._answer("source", FACTS)
        return facts

    def not_followed(self, documents: Mapping[bytes, bytes]) -> Mapping[str, Unfollowed]:
        left: Mapping[str, Unfollowed] = self._answer("not_followed", {})
        return left

    def log(self, topics: list[str], known: TopicsState | None) -> LogFacts:
        facts: LogFacts = self._answer("log", HEALTHY_LOG)
        return facts

    def store(self, sink: str) -> Iterable[Finding]:
        facts: StoreFacts = self._answer("store", StoreFacts(product="Valkey", version="9.1.2"))
        return kind_named("opensearch" if sink == "search" else "redis").judged(sink, facts)


def test_a_healthy_pipeline_passes() -> None:
    found = list(preflight(settings(), Probes()))
    assert {f.level for f in found} == {Level.OK}
    assert list(dict.fromkeys(f.part for f in found)) == ["settings", "postgres", "kafka", "cache"]


def test_each_part_that_is_away_is_a_failure_and_hides_no_other() -> None:
    down = Probes(
        source=fails(SourceError("no Postgres", hint="start it")),
        state=fails(LogError("no Kafka", hint="start it")),
        store=fails(SinkError("no Redis", hint="start it")),
    )
    found = [f for f in preflight(settings(), down) if f.level is Level.FAIL]
    assert [(f.part, f.message) for f in found] == [
        ("postgres", "no Postgres"),
        ("kafka", "no Kafka"),
        ("cache", "no Redis"),
    ]
    assert exit_code(found) is Exit.UNAVAILABLE


def test_h197_a_table_whose_topic_changed_is_a_failure() -> None:
    table = FACTS.tables[0]
    topics = TopicsState(cluster_id="c", tables={str(table.table): "shop.before"})
    found = list(preflight(settings(), Probes(state=lambda: (topics, KNOWN))))
    (failed,) = [f for f in found if f.check == "topics"]
    assert (failed.level, failed.exit) == (Level.FAIL, Exit.CONFIG)
    assert failed.message == f"{table.table} has the topic shop.before, and the settings name {table.topic}"


def test_the_first_failure_gives_the_exit_code() -> None:
    found = list(
        preflight(settings(), Probes(source=fails(ConfigError("wrong password")), store=fails(SinkError("down"))))
    )
    assert exit_code(found) is Exit.CONFIG
    assert [f.document()["exit"] for f in found if f.level is Level.FAIL] == [78, 69]


@pytest.mark.parametrize(("fatal", "level"), [(True, Level.FAIL), (False, Level.WARN)])
def test_h62_a_topic_with_another_policy_is_refused(fatal: bool, level: Level) -> None:
    fault = TopicFault("the topic x has cleanup.policy=delete, which must be compact", "kafka-configs ...", fatal)
    log = LogFacts(cluster_id="c", present=("x",), missing=(), faults=(fault,))
    found = [f for f in preflight(settings(), Probes(log=lambda: log)) if f.check == "topic"]
    assert [(f.level, f.fix) for f in found] == [(level, "kafka-configs ...")]
    assert exit_code(found) is (Exit.TOPIC if fatal else Exit.OK)


def test_h61_a_topic_that_is_gone_after_init_is_refused() -> None:
    known = TopicsState(cluster_id="c")
    found = list(preflight(settings(), Probes(state=lambda: [known])))
    assert [f.message for f in found if f.level is Level.FAIL] == ["topics are missing: shop.public.orders"]


def test_h154_the_command_that_makes_the_topics_is_named() -> None:
    """``cdc init`` refuses a pipeline of Debezium's."""
    debezium = settings().model_copy(update={"source": settings().source.model_copy(update={"kind": "debezium"})})
    for given, maker in ((settings(), "cdc init"), (debezium, "cdc connect deploy")):
        new, known = Probes(), Probes(state=lambda: [TopicsState(cluster_id="c")])
        assert f"1 topics will be made by {maker}" in [f.message for f in preflight(given, new)]
        assert f"{maker} makes the topics of tables that were added" in [f.fix for f in preflight(given, known)]


@pytest.mark.parametrize(
    ("notes", "level"),
    [
        ({"maxmemory": "1000", "maxmemory_policy": "allkeys-lru"}, Level.WARN),
        ({"maxmemory": "1000", "maxmemory_policy": "noeviction"}, Level.OK),
        ({"maxmemory": "0", "maxmemory_policy": "allkeys-lru"}, Level.OK),
    ],
)
def test_h66_a_cache_that_evicts_is_warned_of(notes: dict[str, str], level: Level) -> None:
    facts = StoreFacts(product="Redis", version="7.2.0", notes=notes)
    found = [f for f in preflight(settings(), Probes(store=lambda: facts)) if f.check == "eviction"]
    assert [f.level for f in found] == [level]


def test_an_old_store_is_refused() -> None:
    sinks = {"search": {"kind": "opensearch", "url": "http://127.0.0.1:9200"}}
    facts = StoreFacts(product="Elasticsearch", version="6.8.1", notes={"health": "red"})
    found = [f for f in preflight(settings(sinks), Probes(store=lambda: facts)) if f.level is Level.FAIL]
    assert [f.check for f in found] == ["version", "health"]


def test_a_missing_or_readable_secret_is_named_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_file = tmp_path / "pw"
    open_file.write_text("canary")
    open_file.chmod(0o644)
    monkeypatch.delenv("CDC_NOT_SET", raising=False)
    sinks = {"cache": {"kind": "redis", "url": "redis://127.0.0.1", "password": "env:CDC_NOT_SET"}}
    found = list(check_settings(settings(sinks, password=f"file:{open_file}")))
    assert [(f.level, f.fix) for f in found] == [
        (Level.WARN, f"chmod 600 {open_file}"),
        (Level.FAIL, "export CDC_NOT_SET=... first"),
    ]
    assert "canary" not in str(found)
    open_file.chmod(0o600)
    assert [f.level for f in check_settings(settings(password=f"file:{open_file}"))] == [Level.OK]


@pytest.mark.parametrize(
    ("source", "sinks"),
    [
        ({"dsn": "host=127.0.0.1 password=canary"}, {}),
        ({"dsn": "postgresql://cdc:canary@127.0.0.1/app"}, {}),
        ({"dsn": "postgresql://cdc@127.0.0.1/app?password=canary"}, {}),
        ({"dsn": "host=127.0.0.1 password = 'canary'"}, {}),
        ({"dsn": "host=127.0.0.1 sslpassword=canary"}, {}),
        ({}, {"sql": {"kind": "sql", "url": "postgresql+psycopg://127.0.0.1/x?password=canary"}}),
        ({}, {"cache": {"kind": "redis", "url": "redis://:canary@127.0.0.1"}}),
        ({}, {"sql": {"kind": "sql", "url": "postgresql+psycopg://u:canary@127.0.0.1/x"}}),
    ],
)
def test_a_password_in_a_connection_string_is_warned_of(source: dict[str, Any], sinks: dict[str, Any]) -> None:
    (found,) = check_settings(settings(sinks, **source))
    assert (found.level, found.check) == (Level.WARN, "password")
    assert "canary" not in str(found)


def test_x7_a_service_is_not_said_to_hold_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = check_settings(settings(dsn="service=shop"))
    assert (found.level, found.check) == (Level.WARN, "service")
    assert "is not read here" in found.message
    monkeypatch.setenv("PGSERVICE", "shop")
    assert [f.check for f in check_settings(settings(dsn="dbname=app"))] == ["service"]


@pytest.mark.parametrize(
    ("source", "sinks", "warned"),
    [
        ({"dsn": "host = 'db.example.org' dbname=app"}, {}, True),
        ({"dsn": "host=a,db.example.org dbname=app"}, {}, True),
        ({"dsn": "host=db.example.org sslrootcert=system"}, {}, False),
        ({"dsn": "host=db.example.org dbname=app"}, {}, True),
        ({"dsn": "host=db.example.org dbname=app sslmode=require"}, {}, True),
        ({"dsn": "host=db.example.org dbname=app sslmode=verify-full"}, {}, False),
        ({"dsn": "postgresql://db.example.org/app?sslmode=verify-full"}, {}, False),
        ({"dsn": "host=/run/postgresql dbname=app"}, {}, False),
        ({}, {"search": {"kind": "opensearch", "url": "http://search.example.org:9200"}}, True),
        ({}, {"search": {"kind": "opensearch", "url": "https://search.example.org:9200"}}, False),
        ({}, {"cache": {"kind": "redis", "url": "redis://10.0.0.7"}}, True),
        ({}, {"cache": {"kind": "redis", "url": "rediss://10.0.0.7"}}, False),
        ({}, {"cache": {"kind": "redis", "url": "redis://[::1]:6379"}}, False),
    ],
)
def test_plain_connections_to_other_machines_are_warned_of(
    source: dict[str, Any], sinks: dict[str, Any], warned: bool
) -> None:
    assert any(f.check == "plain" for f in check_settings(settings(sinks, **source))) is warned


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://127.0.0.1:8083", False),
        ("http://localhost:8083", False),
        ("http://[::1]:8083", False),
        ("https://connect.example.com", False),
        ("http://connect.example.com:8083", True),
        ("http://10.0.0.7:8083", True),
    ],
)
def test_plain_http_to_another_kafka_connect_is_warned_of(url: str, warned: bool) -> None:
    debezium = DebeziumSettings(url=url)
    found = [f for f in check_settings(settings().model_copy(update={"debezium": debezium})) if f.check == "plain"]
    assert [f.message.startswith("debezium.url goes to ") for f in found] == [True] * warned


def test_records_sent_to_another_machine_in_clear_are_warned_of() -> None:
    document = {
        "name": "shop",
        "source": {"dsn": "host=127.0.0.1", "tables": ["a.b"]},
        "log": {"bootstrap_servers": "127.0.0.1:9092,kafka.example.org:9092"},
    }
    (found,) = check_settings(parse_settings(document))
    assert "kafka.example.org" in found.message
    document["log"] = {**document["log"], "client": {"security.protocol": "sasl_ssl"}}  # type: ignore[dict-item]
    assert [f.level for f in check_settings(parse_settings(document))] == [Level.OK]


@pytest.mark.parametrize(
    ("rights", "level", "words"),
    [
        (TopicRights(topic="shop.state", checked=None), Level.OK, "was not told"),
        (TopicRights(topic="shop.state", checked=False), Level.WARN, "the brokers check no rights"),
        (TopicRights(topic="shop.state", checked=True), Level.OK, "super users alone"),
        (TopicRights(topic="shop.state", checked=True, writers=("User:*",)), Level.WARN, "everybody"),
        (TopicRights(topic="shop.state", checked=True, writers=("User:a", "User:b")), Level.OK, "User:a, User:b"),
    ],
)
def test_h111_who_may_write_requests_is_said(rights: TopicRights, level: Level, words: str) -> None:
    log = replace(HEALTHY_LOG, rights=rights)
    (found,) = [f for f in preflight(settings(), Probes(log=lambda: log)) if f.check == "rights"]
    assert found.level is level
    assert words in found.message
    assert "shop.state" in found.message


def test_a_publication_that_our_role_cannot_make() -> None:
    refused = ("the role cdc cannot make the publication cdc_shop", "let the tables' owner run: create publication")
    facts = replace(FACTS, publication=None, unpublishable=refused)
    found = [
        finding for finding in preflight(settings(), Probes(source=lambda: facts)) if finding.check == "publication"
    ]
    assert [(finding.level, finding.message, finding.fix) for finding in found] == [(Level.FAIL, *refused)]


def test_a_left_over_section_of_another_database_hides_nothing() -> None:
    """cdc run captures, so Postgres is the source, whatever a [debezium] section says."""
    document = settings().model_dump(include={"name"}) | {
        "source": {"dsn": "host=127.0.0.1 dbname=app", "tables": ["public.*"]},
        "log": {"bootstrap_servers": "127.0.0.1:9092"},
        "debezium": {"database": "mysql"},
    }
    parts = {finding.part for finding in preflight(parse_settings(document), Probes())}
    assert "postgres" in parts
    other = {**document, "source": {**document["source"], "kind": "debezium"}}
    assert "postgres" not in {finding.part for finding in preflight(parse_settings(other), Probes())}
