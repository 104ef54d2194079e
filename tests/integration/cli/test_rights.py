"""SECURITY.md's table of rights, tried: users who have just these, and users who lack one of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
from confluent_kafka.admin import ResourceType  # type: ignore[attr-defined]  # re-exported without saying so

from cdc.cli.app import run
from cdc.errors import Exit
from tests.fresh import new_database, new_redis_url
from tests.programs import Spawn
from tests.secured import SecuredKafka, login, secured_kafka
from tests.settings_file import write_settings
from tests.waiting import wait_until

SECURITY = Path(__file__).parents[3] / "SECURITY.md"
USERS = ("capture", "operator", "sinks")
GROUP = "cdc-reader"
TO_BEGIN: tuple[tuple[str, ...], ...] = (("check",), ("init",), ("snapshot", "--workers", "1"))
"""What the operator does first; every test stands on it."""
AS_OPERATOR: tuple[tuple[str, ...], ...] = (("status",), ("events", "--until-caught-up"))
AS_SINKS: tuple[tuple[str, ...], ...] = (("verify", "--timeout", "1"), ("wait", "cache", "0/1", "--timeout", "1"))

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

    def settings(self, user: str) -> Path:
        client = login(user)
        secret = self.folder / f"{user}.password"
        secret.write_text(client.pop("sasl.password"), encoding="utf-8")
        secret.chmod(0o600)
        folder = self.folder / user
        folder.mkdir(exist_ok=True)
        document = {
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
        }
        return write_settings(folder, document)

    @contextmanager
    def without(self, user: str, topic: str, right: str) -> Iterator[None]:
        """One right less meanwhile. Describe comes with Read and Write, so it is given by itself."""
        self.kafka.grant(user, ResourceType.TOPIC, topic, ["Describe"])
        self.kafka.revoke(user, ResourceType.TOPIC, topic, right)
        try:
            yield
        finally:
            self.kafka.grant(user, ResourceType.TOPIC, topic, [right])

    def grant_all(self) -> None:
        for (user, topic), rights in rights_of(self.name, "public.orders").items():
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
        made.grant_all()
        for command in TO_BEGIN:
            assert run(["--config", str(made.settings("operator")), *command]) == Exit.OK, command
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
    capture = spawn("cdc", "--config", shop.settings("capture"), "run")
    wait_until(lambda: '"streaming"' in capture.stderr, 60, describe=lambda: capture.stderr)
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        connection.execute("insert into orders values (2)")
    for command in AS_OPERATOR:
        code, words = cdc(shop.settings("operator"), *command)
        assert code in (Exit.OK, Exit.DIFFERENCE), (command, words)
        assert "lacks the right" not in words
    # Only where there are records of it already.
    told_which(shop, cdc, "operator", "shop.progress", "Read", ("status",))
    for command in AS_SINKS:
        code, words = cdc(shop.settings("sinks"), *command)
        assert "lacks the right" not in words, (command, words)
        assert code != Exit.CONFIG or "nothing to compare" in words, (command, words)
    assert capture.terminate() == 0, capture.stderr


# A right, the user who has it, and a command of that user that cannot do without.
LESS = [
    ("operator", "shop.public.orders", "DescribeConfigs", ("check",)),
    ("operator", "shop.state", "Read", ("status",)),
    ("operator", "shop.state", "DescribeConfigs", ("init",)),
    ("operator", "shop.schema", "Read", ("events", "--until-caught-up")),
    ("operator", "shop.public.orders", "Read", ("events", "--until-caught-up", "--from-beginning")),
    ("sinks", "shop.state", "Read", ("wait", "cache", "0/1", "--timeout", "1")),
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


def test_dropping_topics_needs_delete(shop: Shop, cdc: Cdc) -> None:
    other = replace(shop, name="gone")
    other.grant_all()
    assert run(["--config", str(other.settings("operator")), "init"]) == Exit.OK
    shop.kafka.grant("operator", ResourceType.TOPIC, "gone.views", ["Describe"])
    code, words = cdc(other.settings("operator"), "drop", "--yes", "--topics")
    assert code == Exit.CONFIG, words
    assert "deleting the topic gone." in words
    assert "lacks the right Delete on the topic" in words
    for kind in ("public.orders", "state", "schema", "progress", "dead"):
        shop.kafka.grant("operator", ResourceType.TOPIC, f"gone.{kind}", ["Delete"])
    code, words = cdc(other.settings("operator"), "drop", "--yes", "--topics")
    assert code == Exit.OK, words
