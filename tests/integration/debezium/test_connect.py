"""Debezium on a real Kafka Connect: deployed, watched, hurt, mended and removed by ``cdc connect``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from psycopg import sql

from cdc.cli.app import run
from cdc.process.errors import ConfigError, Exit, SourceError, UsageError
from cdc.record.topic_names import TableName
from cdc.wire.debezium.reading import DebeziumChange, DebeziumReader
from cdc.wiring import open_schemas
from connectors.debezium.checks import check_connect
from connectors.debezium.client import MissingConnector
from connectors.debezium.offsets import reads_incrementally, snapshot_state
from connectors.debezium.status import FAILED, ConnectorStatus
from connectors.debezium.topics import noted_topics
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import read_range
from connectors.kafka.schema_registry import EmbeddedShapes
from sinks.contract.batch import Event, events_of
from sinks.contract.memory_store import MemoryStore
from tests.contract.topics import Shapes as Known
from tests.integration.debezium.conftest import Pipeline, Record
from tests.programs import Spawn
from tests.waiting import wait_until


def payload(record: Record) -> Any:
    key, value = record
    return key, None if value is None else (value["payload"]["op"], value["payload"]["after"])


@pytest.mark.slow
def test_deploy_snapshot_stream_update_and_delete(pipeline: Pipeline) -> None:
    pipeline.run("insert into a select i, 's' || i, i from generate_series(1, 3) i")
    connector = pipeline.connector()
    done = connector.deploy()
    assert done.action == "created"
    assert done.status.runs
    pipeline.arrived("public.a", 3)
    assert {record[1]["payload"]["op"] for record in pipeline.records("public.a")} == {"r"}

    pipeline.run("update a set v = 'x', n = null where id = 1", "delete from a where id = 2")
    records = pipeline.arrived("public.a", 6, 20)
    assert [payload(r) for r in records if r[0] == {"id": 2}][1:] == [({"id": 2}, ("d", None)), ({"id": 2}, None)]
    # NULL stays NULL, although the column has a default; numbers are exact text.
    assert payload([r for r in records if r[0] == {"id": 1}][1]) == ({"id": 1}, ("u", {"id": 1, "v": "x", "n": None}))
    assert payload(next(r for r in records if r[0] == {"id": 3}))[1][1]["n"] == "3.00"

    again = connector.deploy()
    assert (again.action, again.changes) == ("unchanged", {})
    assert connector.diff() == {}
    options = pipeline.document["debezium"]["options"] | {"poll.interval.ms": "30"}
    changed = pipeline.connector(options=options)
    assert changed.diff() == {"poll.interval.ms": ("20", "30")}
    assert changed.deploy().action == "updated"

    def streaming() -> ConnectorStatus:
        """The task of the new configuration runs a moment before it has the slot."""
        found = changed.status()
        assert found.lag is not None
        assert found.lag.active
        return found

    status = wait_until(streaming, 20)
    assert status.lag is not None
    assert status.lag.wal_status == "reserved"
    assert status.offsets
    findings = check_connect(pipeline.settings(options=options))
    assert {finding.level.value for finding in findings} == {"ok"}

    changed.delete()
    with pytest.raises(MissingConnector):
        changed.status()


@pytest.mark.slow
def test_a_failed_task_is_named_and_restarted_when_mended(
    pipeline: Pipeline, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    connector = pipeline.connector()
    connector.deploy()
    role = sql.Identifier(pipeline.role)
    pipeline.session.execute(sql.SQL("alter role {} nologin").format(role))
    pipeline.session.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", [pipeline.role]
    )
    wait_until(lambda: connector.client.status(connector.name)["tasks"][0]["state"] == FAILED, 30)

    capfd.readouterr()
    code = run(["--config", str(pipeline.toml(tmp_path)), "connect", "status"])
    out, err = capfd.readouterr()
    assert code == Exit.DIFFERENCE
    assert "task 0  FAILED" in out
    assert "not permitted to log in" in out
    assert "\tat " not in out
    assert "hint: mend the cause, then cdc connect restart" in err

    pipeline.session.execute(sql.SQL("alter role {} login").format(role))
    assert connector.restart() == (0,)
    assert connector.restart() == ()
    assert connector.status().runs


@pytest.mark.slow
def test_h91_a_resnapshot_begins_new_topics(pipeline: Pipeline) -> None:
    pipeline.run("insert into b values (1, 'one')")
    connector = pipeline.connector()
    connector.deploy()
    pipeline.arrived("public.b", 1)
    topic = f"{connector.name}.public.b"
    before = TopicAdmin(pipeline.settings().log).describe([topic])[topic].topic_id
    pipeline.run("update b set v = 'two'")
    pipeline.arrived("public.b", 2)
    assert connector.resnapshot().runs
    found = TopicAdmin(pipeline.settings().log).describe([topic])[topic]
    assert found.topic_id != before
    state = noted_topics(pipeline.settings())
    assert state is not None
    assert state.topics[topic]["id"] == found.topic_id
    assert [payload(record)[1] for record in pipeline.arrived("public.b", 1, 40)] == [("r", {"id": 1, "v": "two"})]
    assert connector.deploy().action == "unchanged"


@pytest.mark.slow
def test_a_connector_that_is_gone_is_not_laid_over_its_rows(pipeline: Pipeline) -> None:
    pipeline.run("insert into b values (1, 'one')")
    connector = pipeline.connector()
    connector.deploy()
    pipeline.arrived("public.b", 1)
    connector.delete()
    with pytest.raises(ConfigError, match="the topics hold records of a connector that is gone"):
        connector.deploy()
    with pytest.raises(MissingConnector):
        connector.status()
    assert connector.resnapshot().runs


@pytest.mark.slow
def test_a_source_that_cannot_be_read_is_left_as_it_is(pipeline: Pipeline) -> None:
    """Nothing is stopped, and no topic is deleted."""
    connector = pipeline.connector()
    connector.deploy()
    pipeline.run("insert into b values (1, 'one')")
    pipeline.arrived("public.b", 1)
    pipeline.run("alter table b replica identity default")
    with pytest.raises(ConfigError, match=r"public\.b: an update lacks a large value"):
        connector.resnapshot()
    assert connector.status().runs
    assert len(pipeline.records("public.b")) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"connector.class": "io.debezium.connector.mysql.MySqlConnector"}, "has no plugin"),
        ({"topic.prefix": "not ok!"}, r"topic\.prefix"),
        ({"database.hostname": "nowhere.invalid"}, r"database\.hostname"),
    ],
)
def test_an_unfit_configuration_is_refused_before_it_is_deployed(
    pipeline: Pipeline, options: dict[str, str], words: str
) -> None:
    connector = pipeline.connector(options=options)
    with pytest.raises(ConfigError, match=words):
        connector.deploy()
    with pytest.raises(MissingConnector):
        connector.client.running_config(connector.name)


@pytest.mark.slow
def test_the_commands_print_data_on_stdout_and_no_secret(
    pipeline: Pipeline, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = (tmp_path / "password").read_text(encoding="utf-8")
    settings = pipeline.toml(tmp_path)

    def cdc(*arguments: str) -> tuple[int, str, str]:
        code = run(["--config", str(settings), "connect", *arguments])
        out, err = capfd.readouterr()
        assert secret not in out + err
        return code, out, err

    code, out, _ = cdc("config")
    assert code == 0
    assert orjson.loads(out)["database.password"].startswith("${file:")
    assert cdc("validate")[:2] == (0, "")
    code, _, err = cdc("status")
    assert code == Exit.CONFIG
    assert "hint: cdc connect deploy" in err
    code, out, err = cdc("deploy", "--json")
    assert code == 0, err
    assert orjson.loads(out)["action"] == "created"
    code, out, _ = cdc("signal", "pause")
    assert (code, len(out.strip())) == (0, 36)
    assert cdc("delete", "--yes")[0] == 0


@pytest.mark.slow
def test_rows_are_read_again_while_the_stream_goes_on(pipeline: Pipeline) -> None:
    pipeline.run("insert into a select i, 's' || i, i from generate_series(1, 3) i")
    connector = pipeline.connector()
    connector.deploy()
    pipeline.arrived("public.a", 3)
    pipeline.run("update a set v = 'streamed' where id = 1")
    pipeline.arrived("public.a", 4)

    wait_until(lambda: snapshot_state(connector.offsets()) == "complete", 90, "Connect stores an offset")
    for condition in ("nonsense >", "true); select (1"):
        with pytest.raises(UsageError, match="does not take the condition of --where: "):
            connector.snapshot(["public.a"], where=condition)
    pipeline.run("begin", "lock table a in access exclusive mode")
    with pytest.raises(SourceError, match="did not try the condition of --where: canceling statement due to lock"):
        connector.snapshot(["public.a"], where="id < 3")
    pipeline.run("commit")
    connector.snapshot(["public.a"], where="id < 3")
    pipeline.run("update a set v = 'next' where id = 3")
    found = pipeline.arrived("public.a", 7, 60)
    repeated = [value["payload"] for _, value in found if value["payload"]["source"]["snapshot"] == "incremental"]
    assert {row["after"]["id"] for row in repeated} == {1, 2}


@pytest.mark.slow
def test_h91_without_embedded_schemas_the_topic_has_the_types(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.document["debezium"]["schemas"] = False
    assert run(["--config", str(pipeline.toml(tmp_path)), "init"]) == 0
    pipeline.connector().deploy()
    pipeline.run("insert into b values (1, 'one'), (2, 'two')", "update b set v = 'x' where id = 1")
    name = pipeline.settings().name
    pipeline.arrived("public.b", 3)
    shapes = EmbeddedShapes(open_schemas(pipeline.settings()))
    topic = f"{name}.public.b"
    newest = shapes.newest(topic)
    assert newest is not None
    assert newest.version == 1
    store = MemoryStore()
    events = []
    for partition in range(2):
        reader = DebeziumReader()
        for message in read_range(pipeline.settings().log, topic, partition):
            found = reader.read(topic, message.offset() or 0, message.key(), message.value(), newest)
            assert isinstance(found, DebeziumChange), found
            place = (topic, partition, message.offset() or 0)
            events.append(Event(*place, found.key, found.value, found.pos.text(), found.op, 1))
    assert not store.open().sink.apply(events_of(events), Known(*open_schemas(pipeline.settings()).versions())).refused
    rows = store.table(TableName("public", "b"))
    assert {key: orjson.loads(row.row or b"null") for key, row in rows.items()} == {
        "1": {"id": 1, "v": "x"},
        "2": {"id": 2, "v": "two"},
    }


OF_A_CONNECTOR = (
    "config", "validate", "status", "deploy", "restart", "stop", "resume", "status", "signal snapshot public.a",
    "resnapshot --yes", "stop", "handover", "delete --yes",
)  # fmt: skip
"""In an order in which each has something to do. One that runs is looked at for a quarter of a minute: once."""


@pytest.mark.slow
def test_h112_no_command_shows_the_secret_of_a_connector(pipeline: Pipeline, spawn: Spawn, tmp_path: Path) -> None:
    secret = (tmp_path / "password").read_text(encoding="utf-8")
    settings, connector = pipeline.toml(tmp_path), pipeline.connector()
    pipeline.run("insert into a select i, 's' || i, i from generate_series(1, 3) i")
    said: dict[str, str] = {}

    def cdc(*commands: str, **env: str) -> dict[str, int]:
        """All at once: a refused login is tried for a quarter of a minute."""
        begun = {one: spawn("cdc", "--config", settings, "-vv", "connect", *one.split(), env=env) for one in commands}
        found = {command: program.wait(240) for command, program in begun.items()}
        for command, program in begun.items():
            said[f"{command} {env}"] = words = program.stdout + program.stderr
            assert "Traceback" not in words, words
        return found

    codes: dict[str, int] = {}
    for command in OF_A_CONNECTOR:
        codes |= cdc(command)
        if command == "deploy":
            pipeline.arrived("public.a", 3)
            wait_until(lambda: bool(connector.offsets()), 90, "Connect stores an offset")
            said["its configuration"] = orjson.dumps(connector.client.running_config(connector.name)).decode()
        if command.startswith("signal"):
            # The handover is refused until what was asked for is read, which begins with the next transaction.
            pipeline.run("update a set v = 'next' where id = 1")
            pipeline.arrived("public.a", 7, 90)
            wait_until(lambda: not reads_incrementally(connector.offsets()), 90, "Debezium has read the table")
    refused = {command: code for command, code in codes.items() if code not in (Exit.OK, Exit.DIFFERENCE)}
    # A handover may be refused, and one that is carried out leaves no connector.
    assert refused.keys() <= {"handover", "delete --yes"}, {command: said[f"{command} {{}}"] for command in refused}
    assert Exit.BUG not in refused.values()
    wrong = f"wrong{secret}"
    (tmp_path / "password").write_text(wrong, encoding="utf-8")
    wronged = cdc("validate", "deploy", "status", "handover", "signal snapshot public.a", WRONG="password")
    assert Exit.BUG not in wronged.values(), said
    pipeline.run(f'alter role "{pipeline.role}" nologin')
    wronged = cdc("deploy", "status", "restart", "resnapshot --yes", "delete --yes", WRONG="role")
    assert Exit.BUG not in wronged.values(), said
    said["topics"] = str([pipeline.records(table) for table in ("public.a", "public.b")])
    assert [command for command, words in said.items() if secret in words] == []
