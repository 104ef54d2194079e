"""SECURITY.md's table of rights, given by the file that is shipped: users who have just these, and who lack one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis as redis_client
from confluent_kafka.admin import ResourceType  # type: ignore[attr-defined]  # re-exported without saying so

from cdc import outbox
from cdc.cli.app import run
from cdc.process.errors import Exit
from tests.fresh import new_database, new_redis_url
from tests.programs import Spawn
from tests.secured import SecuredKafka, login, secured_kafka
from tests.settings_file import write_settings
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
"""A broker of their own, which checks rights."""
ROOT = Path(__file__).parents[3]
SECURITY = ROOT / "SECURITY.md"
SHIPPED = ROOT / "compose" / "rights" / "kafka-acls.sh"
USERS = ("shop_capture", "shop_operator", "shop_sinks", "shop_views")
CAPTURE, OPERATOR, SINKS, VIEWS = USERS
GROUP = "cdc-reader"
TABLES = "shop.public."
"""All tables' topics begin so."""
PREFIXES = (TABLES, "shop.outbox.", "shop.view.", "shop.stream.")
"""What the file gives by the beginning of a name. Those of views and streams begin their runners' transactions, too."""
TO_BEGIN: tuple[tuple[str, ...], ...] = (("check",), ("init",), ("snapshot", "--workers", "1"))
"""What the operator does first; every test stands on it."""
AS_OPERATOR: tuple[tuple[str, ...], ...] = (("status",), ("events", "--until-caught-up"))
AS_SINKS: tuple[tuple[str, ...], ...] = (("verify", "--timeout", "200"), ("wait", "cache", "0/1", "--timeout", "300"))

START_S = 240.0

Cdc = Callable[..., tuple[int, str]]


def rights_of(name: str, table: str) -> dict[tuple[str, str], list[str]]:
    """(user, topic) -> rights, as SECURITY.md says."""
    found: dict[tuple[str, str], list[str]] = {}
    for line in SECURITY.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        topic = re.fullmatch(r"`(<name>\.\S+)`", cells[0])
        if topic is not None and len(cells) == 1 + len(USERS):
            real = topic[1].replace("<name>", name).replace("<schema>.<table>", table)
            for user, cell in zip(USERS, cells[1:], strict=True):
                found[user, real] = [right.strip() for right in cell.split(",") if right.strip() not in ("", "-")]
    return found


@dataclass
class Shop:
    """A pipeline over one table, whose brokers check rights."""

    folder: Path
    dsn: str
    url: str
    kafka: SecuredKafka
    name: str = "shop"
    views: Mapping[str, str] = field(default_factory=dict)
    """Of the settings, by name, and their texts."""
    streams: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def settings(self, user: str) -> Path:
        client = login(user)
        secret = self.folder / f"{user}.password"
        secret.write_text(client.pop("sasl.password"), encoding="utf-8")
        secret.chmod(0o600)
        folder = self.folder / user
        folder.mkdir(exist_ok=True)
        document: dict[str, Any] = {
            "name": self.name,
            "source": {"dsn": self.dsn, "tables": ["public.orders"]},
            "log": {
                "bootstrap_servers": self.kafka.address,
                "partitions": 1,
                "client": client,
                "client_secrets": {"sasl.password": f"file:{secret}"},
                "oversized": "dead-letter",
            },
            "capture": {"http_address": ""},
            "sinks": {"cache": {"kind": "redis", "url": self.url}},
            "spark": {"checkpoint": str(folder / "checkpoints"), "http_address": ""},
        }
        if self.views:
            document["sinks"]["cache"]["tables"] = [f"view.{name}" for name in self.views]
        for name, text in self.views.items():
            (folder / f"{name}.sql").write_text(text, encoding="utf-8")
            section = {"sql": str(folder / f"{name}.sql"), "state": str(folder / "state")}
            document.setdefault("views", {})[name] = section
        if self.streams:
            document |= {"outbox": {}, "streams": self.streams}
            document["sinks"]["cache"]["tables"] = [f"stream.{name}" for name in self.streams]
        return write_settings(folder, document)

    @contextmanager
    def without(self, user: str, topic: str, right: str) -> Iterator[None]:
        """One right less meanwhile. Describe comes with Read and Write, so it is given by itself."""
        name = TABLES if topic.startswith(TABLES) else topic
        kind = ResourceType.GROUP if topic.startswith("cdc-") else ResourceType.TOPIC
        if kind is ResourceType.TOPIC:
            self.kafka.grant(user, kind, name, ["Describe"])
        self.kafka.revoke(user, kind, name, right)
        try:
            yield
        finally:
            self.kafka.grant(user, kind, name, [right])

    def grant_all(self) -> None:
        for (user, topic), rights in rights_of(self.name, "public.orders").items():
            if not rights:
                continue
            self.kafka.grant(user, ResourceType.TOPIC, topic, rights)
        for user in USERS:
            self.kafka.grant(user, ResourceType.GROUP, GROUP, ["Read"])


@pytest.fixture(scope="module")
def shop(postgres: str, redis_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("rights")
    with ExitStack() as stack:
        kafka = stack.enter_context(secured_kafka(folder, USERS))
        dsn = stack.enter_context(new_database(postgres))
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("create table orders (id int primary key); insert into orders values (1)")
        made = Shop(folder, dsn, stack.enter_context(new_redis_url(redis_server)), kafka)
        kafka.apply(SHIPPED)
        for command in TO_BEGIN:
            assert run(["--config", str(made.settings(OPERATOR)), *command]) == Exit.OK, command
        yield made


@pytest.fixture
def cdc(capsys: pytest.CaptureFixture[str]) -> Cdc:
    def call(config: Path, *arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = run(["--config", str(config), *arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out + err

    return call


def test_h137_who_has_the_rights_of_the_table_can_do_its_work(shop: Shop, cdc: Cdc, spawn: Spawn) -> None:
    table = rights_of(shop.name, "public.orders")
    assert {user for user, _ in table} == set(USERS)
    capture = spawn("cdc", "--config", shop.settings(CAPTURE), "run")
    wait_until(lambda: '"streaming"' in capture.stderr, 60, describe=lambda: capture.stderr)
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        connection.execute("insert into orders values (2)")
    for command in AS_OPERATOR:
        code, words = cdc(shop.settings(OPERATOR), *command)
        assert code in (Exit.OK, Exit.DIFFERENCE), (command, words)
        assert "lacks the right" not in words
    # Only where there are records of it already.
    told_which(shop, cdc, OPERATOR, "shop.progress", "Read", ("status",))
    sink = spawn("cdc", "--config", shop.settings(SINKS), "sink")
    for command in AS_SINKS:
        done = spawn("cdc", "--config", shop.settings(SINKS), *command)
        assert done.wait(START_S) == Exit.OK, (command, done.stdout + done.stderr + sink.stderr)
    for program in (sink, capture):
        assert program.terminate(90) == Exit.OK, program.stderr


# A right, the user who has it, and a command of that user that cannot do without.
LESS = [
    (OPERATOR, "shop.public.orders", "DescribeConfigs", ("check",)),
    (OPERATOR, "shop.state", "Read", ("status",)),
    (OPERATOR, "shop.state", "DescribeConfigs", ("init",)),
    (OPERATOR, "shop.schema", "Read", ("events", "--until-caught-up")),
    (OPERATOR, "shop.public.orders", "Read", ("events", "--until-caught-up", "--from-beginning")),
    (SINKS, "shop.state", "Read", ("verify", "--timeout", "1")),
]


@pytest.mark.parametrize(("user", "topic", "right", "command"), LESS)
def test_h137_who_lacks_one_right_is_told_which(
    shop: Shop, cdc: Cdc, user: str, topic: str, right: str, command: tuple[str, ...]
) -> None:
    told_which(shop, cdc, user, topic, right, command)


def told_which(shop: Shop, cdc: Cdc, user: str, topic: str, right: str, command: tuple[str, ...]) -> None:
    with shop.without(user, topic, right):
        code, words = cdc(shop.settings(user), *command)
    assert code == Exit.CONFIG, words
    (error,) = [line for line in words.splitlines() if line.startswith("error: ")]
    assert topic in error
    assert f"lacks the right {right} on the topic" in error
    assert "kafka-acls --add" in words


@pytest.mark.long
def test_h306_a_sink_without_its_group_ends_and_names_it(shop: Shop, spawn: Spawn, redis_url: str) -> None:
    """Of a store that is empty, so that there is something to read."""
    with shop.without(SINKS, "cdc-sink", "Read"):
        settings = replace(shop, url=redis_url).settings(SINKS)
        sink = spawn("cdc", "--config", settings, "sink", "--until-caught-up")
        assert sink.wait(START_S) == Exit.CONFIG, sink.stderr
    (error,) = [line for line in sink.stderr.splitlines() if line.startswith("error: ")]
    assert "lacks the right Read on the group cdc-sink" in error
    assert "kafka-acls --add" in sink.stderr
    assert "Traceback" not in sink.stderr


def dropped_with_delete(shop: Shop, cdc: Cdc, kind: str, topics: Sequence[str]) -> None:
    """A view or a stream, called ``counted``, is dropped by its runner's principal once that may delete its topics."""
    drop = (shop.settings(VIEWS), kind, "drop", "counted", "--yes")
    code, words = cdc(*drop)
    assert code == Exit.CONFIG, words
    assert "lacks the right Delete on the topic" in words
    for topic in topics:
        shop.kafka.grant(VIEWS, ResourceType.TOPIC, f"shop.{kind}.counted.{topic}", ["Delete"])
    code, words = cdc(*drop)
    assert code == Exit.OK, words


@pytest.mark.long
def test_a_view_is_run_and_read_with_the_rights_of_the_table(
    shop: Shop, spawn: Spawn, cdc: Cdc, redis_url: str
) -> None:
    """Capture has to be there, so that something is told of how far the topics are."""
    viewed = replace(shop, views={"counted": "select count(*) as n from orders"}, url=redis_url)
    capture = spawn("cdc", "--config", shop.settings(CAPTURE), "run")
    runner = spawn("cdc", "-v", "--config", viewed.settings(VIEWS), "view", "run")
    wait_until(lambda: '"view_published"' in runner.stderr, START_S, lambda: runner.stderr)
    sink = spawn("cdc", "--config", viewed.settings(SINKS), "sink", "--until-caught-up")
    assert sink.wait(START_S) == Exit.OK, sink.stderr
    with redis_client.Redis.from_url(redis_url) as client:
        assert client.hget("shop:view.counted:all", "row"), runner.stderr
    assert run(["--config", str(viewed.settings(OPERATOR)), "status"]) in (Exit.OK, Exit.DIFFERENCE)
    feeding = spawn("cdc", "--config", viewed.settings(SINKS), "sink")
    repaired_with_the_right_to_ask(viewed, spawn)
    for program in (feeding, runner, capture):
        assert program.terminate(90) == Exit.OK, program.stderr
    dropped_with_delete(viewed, cdc, "view", ["1"])


@pytest.mark.long
def test_a_stream_is_run_and_read_with_the_rights_of_the_table(
    shop: Shop, spawn: Spawn, cdc: Cdc, redis_url: str
) -> None:
    """One event is counted, and one that is too old is set apart."""
    text = shop.folder / "paid.sql"
    text.write_text("select window.start as begin, count(*) as n from paid group by window(at, '1 minute')\n")
    paid = {"topic": "shop.outbox.Order", "time": "at", "late": "1 minute", "schema": "at timestamp"}
    stream = {"sql": str(text), "key": ["begin"], "events": {"paid": paid}}
    streamed = replace(shop, streams={"counted": stream}, url=redis_url)
    capture = spawn("cdc", "--config", streamed.settings(CAPTURE), "run")
    with psycopg.connect(shop.dsn) as connection:
        for at in (datetime.now(UTC), datetime(2026, 3, 1, tzinfo=UTC)):
            outbox.emit(connection, "Order", "42", "OrderPaid", {"at": at.isoformat()})
    operator = streamed.settings(OPERATOR)
    seen = ("--config", str(operator), "events", "outbox", "--from-beginning", "--until-caught-up")
    wait_until(lambda: run(seen) == Exit.OK, 60, lambda: capture.stderr)
    runner = spawn("cdc", "--config", streamed.settings(VIEWS), "stream", "run", "--until-caught-up")
    assert runner.wait(START_S) == Exit.OK, runner.stderr
    sink = spawn("cdc", "--config", streamed.settings(SINKS), "sink", "--until-caught-up")
    assert sink.wait(START_S) == Exit.OK, sink.stderr
    listing = spawn("cdc", "--config", operator, "stream", "list", "--json")
    assert listing.wait(60) == Exit.OK, listing.stderr
    assert '"late":{"late":1}' in listing.stdout
    with redis_client.Redis.from_url(redis_url) as client:
        (key,) = client.scan_iter("shop:stream.counted:2*")
        assert b'"n":1' in (client.hget(key, "row") or b"")
    assert capture.terminate(90) == Exit.OK, capture.stderr
    dropped_with_delete(streamed, cdc, "stream", ["1", "late"])


def repaired_with_the_right_to_ask(viewed: Shop, spawn: Spawn) -> None:
    """H380: who repairs a view asks its runner by a record of the state topic."""
    with redis_client.Redis.from_url(viewed.url) as client:
        client.hset("shop:view.counted:all", "row", b'{"n":99}')
    verify = ("verify", "cache", "view.counted", "--repair", "--timeout", "300")
    refused = spawn("cdc", "--config", viewed.settings(SINKS), *verify)
    assert refused.wait(START_S) == Exit.CONFIG, refused.stderr + refused.stdout
    assert "lacks the right Write on the topic" in refused.stderr
    done = spawn("cdc", "--config", viewed.settings(OPERATOR), *verify)
    assert done.wait(START_S) == Exit.OK, done.stderr + done.stdout
    assert "view.counted: 1 published anew by its runner" in done.stdout


def test_capture_that_may_not_write_a_table_is_told_so(shop: Shop, spawn: Spawn) -> None:
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        connection.execute("insert into orders values (3)")
    with shop.without(CAPTURE, "shop.public.orders", "Write"):
        done = spawn("cdc", "--config", shop.settings(CAPTURE), "run")
        assert done.wait(START_S) == Exit.CONFIG, done.stderr
    assert "lacks the right Write on the topic" in done.stderr


def test_the_file_gives_what_the_table_says_and_no_more(shop: Shop) -> None:
    """Each right alone. Describe, which other tests gave beside it, comes with Read and Write."""
    wanted = {
        (user, next((prefix for prefix in PREFIXES if topic.startswith(prefix)), topic), right)
        for (user, topic), rights in rights_of("shop", "public.orders").items()
        for right in rights
    }
    wanted |= {(user, GROUP, "Read") for user in USERS} | {(user, "cdc-sink", "Read") for user in (SINKS, VIEWS)}
    wanted.add((VIEWS, "cdc-frame", "Read"))
    given = {one for one in shop.kafka.given() if one[2] != "Describe" and not one[1].startswith("gone.")}
    assert given == wanted


def test_dropping_topics_needs_delete(shop: Shop, cdc: Cdc) -> None:
    other = replace(shop, name="gone")
    other.grant_all()
    assert run(["--config", str(other.settings(OPERATOR)), "init"]) == Exit.OK
    code, words = cdc(other.settings(OPERATOR), "drop", "--yes", "--topics")
    assert code == Exit.CONFIG, words
    assert "deleting the topic gone." in words
    assert "lacks the right Delete on the topic" in words
    for kind in ("public.orders", "state", "schema", "progress", "dead"):
        shop.kafka.grant(OPERATOR, ResourceType.TOPIC, f"gone.{kind}", ["Delete"])
    code, words = cdc(other.settings(OPERATOR), "drop", "--yes", "--topics")
    assert code == Exit.OK, words
