"""Executors as pods, by the files of ``compose/kubernetes/executors``: each pod is a program of this machine."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc.process.errors import Exit
from cdc.settings.model import Settings
from sinks.contract.port import OpenSink
from tests.integration.spark.handmade import HandMadeLog
from tests.pods import Pods, pods_api
from tests.programs import Spawn
from tests.standalone_cluster import LIGHT_JVM, START_S, bare_python_in

COMPOSE = Path(__file__).parents[3] / "compose"
FOLDER = COMPOSE / "kubernetes" / "executors"
PROGRAM = "/opt/headrace/bin/spark-executor"
SINK = "headrace-shop-sink"

Opened = Callable[[Settings, str], OpenSink]


def rules() -> list[dict[str, Any]]:
    """Those of the Role."""
    documents = yaml.safe_load_all((FOLDER / "rights.yaml").read_text(encoding="utf-8"))
    (role,) = [one for one in documents if one["kind"] == "Role"]
    found: list[dict[str, Any]] = role["rules"]
    return found


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    folder = tmp_path / "pods"
    folder.mkdir()
    with pods_api(Pods(folder, {SINK: rules()}, {PROGRAM: ("sh", str(COMPOSE / "image" / "executor.sh"))})) as made:
        yield made


@pytest.mark.long
def test_executors_in_pods_write_to_the_store(
    pipeline: HandMadeLog, pods: Pods, redis_url: str, spawn: Spawn, opened: Opened, tmp_path: Path
) -> None:
    pipeline.put({"id": n, "status": "new", "total": "1.00"} for n in range(3000))
    lsn = pipeline.progress()
    sinks = {"cache": {"kind": "redis", "url": redis_url}}
    shipped = tomllib.loads((FOLDER / "cdc.toml").read_text(encoding="utf-8"))["spark"]
    here = {
        "spark.driver.host": "127.0.0.1",
        "spark.kubernetes.executor.podTemplateFile": str(FOLDER / "executor.yaml"),
        "spark.executor.memory": "512m",
        # There is no watch here: pods are asked for instead.
        "spark.kubernetes.executor.enableApiWatcher": "false",
        "spark.kubernetes.executor.apiPollingInterval": "1s",
    }
    spark = {
        "master": shipped["master"].replace("https://kubernetes.default.svc", pods.urls[SINK]),
        "checkpoint": str(tmp_path / "checkpoints"),
        "driver_batch_rows": 0,
        "conf": {**shipped["conf"], **here},
    }
    config = tmp_path / "cdc.toml"
    config.write_text(pipeline.toml(sinks, **spark), encoding="utf-8")
    environment = {"PYSPARK_PYTHON": os.fspath(bare_python_in(tmp_path)), **LIGHT_JVM}
    program = spawn("python", "-m", "cdc", "--config", config, "sink", "--until-caught-up", env=environment)
    assert program.wait(START_S) == Exit.OK, program.stderr + "".join(pods.logs())[-3000:]
    shown = opened(pipeline.settings(sinks), "cache")
    pipeline.assert_shown(shown)
    watermark = shown.watermarks.read()
    assert watermark is not None and watermark.lsn == lsn
    assert [log for log in pods.logs() if "Finished task" in log], "a pod had a part in it"
    assert pods.refused == set()
    assert {pod["spec"]["containers"][0]["image"] for pod in pods.made} == {"headrace:0.1.0"}
    assert len(pods.made) == 2
    granted = {(SINK, verb, kind) for rule in rules() for kind in rule["resources"] for verb in rule["verbs"]}
    # A pod that failed is deleted, and there is no watch here.
    assert granted - pods.asked <= {(SINK, "watch", "pods"), (SINK, "delete", "pods")}, "rights that nobody used"
