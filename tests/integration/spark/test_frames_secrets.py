"""No secret of a frame shows: not in plans, on Spark's pages, in its event log, a checkpoint or a local folder."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from cdc.jvm.java import java_home
from cdc.settings.model import LogSettings
from cdc.stack.local import free_ports
from tests.integration.spark import frames_program
from tests.integration.spark.handmade import HandMadeLog
from tests.programs import Spawn
from tests.secured import ADMIN, SecuredKafka, login, password, secured_kafka
from tests.standalone_cluster import LIGHT_JVM

pytestmark = pytest.mark.slow


class SecuredLog(HandMadeLog):
    """A pipeline of a broker that wants a login."""

    @property
    def log(self) -> LogSettings:
        return super().log.model_copy(update={"client": login(ADMIN)})


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("secured"), []) as made:
        yield made


def test_h168_no_secret_of_a_frame_shows(
    broker: SecuredKafka, spawn: Spawn, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pipeline = SecuredLog(f"t{secrets.token_hex(4)}", broker.address)
    pipeline.init()
    pipeline.put({"id": number, "status": "a", "total": "1"} for number in range(50))
    secret = tmp_path_factory.mktemp("secret") / "password"
    secret.write_text(password(ADMIN), encoding="utf-8")
    options = {
        "bootstrap_servers": broker.address,
        "pipeline": pipeline.name,
        "table": "public.orders",
        "kafka.security.protocol": "sasl_plaintext",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "env:KAFKA_USER",
        "kafka.sasl.password": f"file:{secret}",
    }
    (tmp_path / "local").mkdir()
    program = spawn(
        sys.executable,
        frames_program.__file__,
        str(free_ports()["kafka"]),
        tmp_path,
        secret,
        orjson.dumps(options).decode(),
        env={"KAFKA_USER": ADMIN, "JAVA_HOME": os.fspath(java_home()), "PYSPARK_PYTHON": sys.executable, **LIGHT_JVM},
    )
    assert program.wait(240) == 0, program.stderr
    assert "rows 50" in program.stdout
    assert "refused" in program.stdout
    assert "the option kafka.sasl.password holds a secret" in program.stdout
    word = password(ADMIN).encode()
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in kept if word in path.read_bytes()] == []
    assert word.decode() not in program.stdout + program.stderr
    names = {path.relative_to(tmp_path).parts[0] for path in kept}
    assert {"pages.txt", "checkpoint", "out"} <= names
    assert [path for path in kept if b"SparkListenerSQLExecutionStart" in path.read_bytes()], "the event log"
    assert "BatchScan headrace" in (tmp_path / "pages.txt").read_text(encoding="utf-8")
