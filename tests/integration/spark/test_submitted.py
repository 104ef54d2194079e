"""Spark's cluster mode on Kubernetes, by ``compose/kubernetes/submitted``: spark-submit itself, before a stand-in."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc.stack.local import free_ports
from sinks.contract.port import OpenSink
from tests.integration.spark.handmade import HandMadeLog
from tests.kustomize import rendered
from tests.pods import Document, Pods, pods_api
from tests.programs import Spawned
from tests.standalone_cluster import LIGHT_JVM, START_S, bare_python_in
from tests.waiting import TIME_SCALE, wait_until

ROOT = Path(__file__).parents[3]
COMPOSE = ROOT / "compose"
FOLDER = COMPOSE / "kubernetes" / "submitted"
SUBMIT, SINK, DRIVER = "headrace-shop-submit", "headrace-shop-sink", "headrace-shop-driver"
SECRET = "kept-to-itself"
TRIES = 3
_PROGRAMS = {"submit-sinks": "submit.sh", "spark-driver": "driver.sh", "spark-executor": "executor.sh"}
Opened = Callable[[Any, str], OpenSink]


class Submitted:
    """What the folder makes, in a stand-in for a cluster that has applied it."""

    def __init__(self, pods: Pods, made: list[Document]) -> None:
        self.pods = pods
        self._made = made
        self._submitters = 0

    def one(self, kind: str, name: str) -> Document:
        """A document of the folder."""
        (found,) = [one for one in self._made if (one["kind"], one["metadata"]["name"]) == (kind, name)]
        return found

    def configure(self, settings: str | None = None, **more: str) -> None:
        """Put the ConfigMap there. ``settings``: in place of the file. ``more``: settings of the submission."""
        (files,) = [one for one in self._made if one["kind"] == "ConfigMap"]
        urls = self.pods.urls
        own = {
            "spark.master": f"k8s://{urls[SUBMIT]}",
            "spark.kubernetes.driver.master": urls[SINK],
            # There is no long watch here: pods are asked for instead.
            "spark.kubernetes.executor.enableApiWatcher": "false",
            "spark.kubernetes.executor.apiPollingInterval": "1s",
            **more,
        }
        data = dict(files["data"])
        data["spark-defaults.conf"] += "".join(f"{name} {value}\n" for name, value in own.items())
        data["cdc.toml"] = settings or data["cdc.toml"]
        self.pods.files[files["metadata"]["name"]] = data

    def submit(self) -> str:
        """A pod of the Deployment. Returns its name."""
        template = copy.deepcopy(self.one("Deployment", SUBMIT)["spec"]["template"])
        self._submitters += 1
        name = f"{SUBMIT}-{self._submitters}"
        template["metadata"]["name"] = name
        self.pods.make({"apiVersion": "v1", "kind": "Pod", **template})
        return name

    def drivers(self) -> list[Document]:
        """Those that were asked for, and made."""
        return [pod for pod in self.pods.made if pod["metadata"]["name"] == DRIVER]

    def words(self) -> str:
        """What the pods wrote last."""
        return "\n".join(log[-2500:] for log in self.pods.logs())


@pytest.fixture
def programs() -> dict[str, tuple[str, ...]]:
    """The image's programs, as this machine has them."""
    image = COMPOSE / "image"
    return {f"/opt/headrace/bin/{name}": ("sh", str(image / file)) for name, file in _PROGRAMS.items()}


@pytest.fixture
def made() -> list[Document]:
    return rendered(FOLDER)


@pytest.fixture
def submitted(
    made: list[Document], programs: dict[str, tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Submitted]:
    folder = tmp_path / "pods"
    folder.mkdir()
    for name, value in LIGHT_JVM.items():
        monkeypatch.setenv(name, value)
    rules = {one["metadata"]["name"]: one["rules"] for one in made if one["kind"] == "Role"}
    pods = Pods(
        folder,
        rules,
        programs,
        places={"/opt/headrace/sink.py": str(ROOT / "spark" / "jobs" / "sink.py")},
        secrets={"headrace-shop": {"CDC_SOURCE_PASSWORD": SECRET}},
    )
    with pods_api(pods):
        yield Submitted(pods, made)


def ended(program: Spawned) -> int:
    return program.process.wait(START_S * TIME_SCALE)


@pytest.mark.slow
def test_h422_the_driver_that_spark_asks_for_is_the_templates(
    submitted: Submitted, programs: dict[str, tuple[str, ...]]
) -> None:
    """It ends at once here, and the pod that submitted it ends with it."""
    programs["/opt/headrace/bin/spark-driver"] = ("true",)
    submitted.configure()
    submitter = submitted.pods.program(submitted.submit())
    assert ended(submitter) == 0, submitter.stderr[-3000:]
    pods, driver = submitted.pods, submitted.drivers()[-1]
    assert pods.refused == set()

    template = yaml.safe_load((FOLDER / "driver.yaml").read_text(encoding="utf-8"))
    assert driver["metadata"]["labels"].items() >= template["metadata"]["labels"].items()
    selected = submitted.one("Service", SINK)["spec"]["selector"]
    assert driver["metadata"]["labels"].items() >= selected.items(), "Prometheus finds it"
    assert driver["spec"]["serviceAccountName"] == submitted.one("ServiceAccount", SINK)["metadata"]["name"]
    assert driver["spec"]["securityContext"] == template["spec"]["securityContext"]
    assert driver["spec"]["terminationGracePeriodSeconds"] == template["spec"]["terminationGracePeriodSeconds"]
    (container,), (wanted,) = driver["spec"]["containers"], template["spec"]["containers"]
    for name in ("command", "envFrom", "livenessProbe", "securityContext"):
        assert container[name] == wanted[name], name
    assert "readinessProbe" not in container and "startupProbe" not in container, (
        "executors wait for a ready pod's name"
    )
    assert container["args"][:1] == ["driver"]
    assert container["args"][-3:] == ["local:///opt/headrace/sink.py", "--config", "/opt/spark/conf/cdc.toml"]
    assert container["resources"]["limits"] == {"memory": "3072Mi", "ephemeral-storage": "4Gi"}

    mounted = {one["name"]: one["configMap"] for one in driver["spec"]["volumes"] if "configMap" in one}
    written = {key: text for one in mounted.values() for key, text in pods.files[one["name"]].items()}
    assert written["cdc.toml"] == (FOLDER / "cdc.toml").read_text(encoding="utf-8")
    assert written["podspec-configmap-key"] == (FOLDER / "executor.yaml").read_text(encoding="utf-8")
    shown = "\n".join(pods.told) + json.dumps(pods.made)
    assert "env:CDC_SOURCE_PASSWORD" in shown and SECRET not in shown


@pytest.mark.slow
@pytest.mark.long
def test_h422_one_driver_at_a_time_whoever_submits(submitted: Submitted, programs: dict[str, tuple[str, ...]]) -> None:
    """A pod that submits is gone without a word, and the next one ends the driver that it left, then has its own."""
    programs["/opt/headrace/bin/spark-driver"] = ("sh", "-c", "exec tail -f /dev/null")
    submitted.configure()
    pods = submitted.pods
    first = submitted.submit()
    left = wait_until(lambda: pods.program(DRIVER), START_S, submitted.words)
    pods.kill(first)
    assert left.process.poll() is None, "nobody has ended it"
    submitter = _until_it_has_a_driver(submitted)
    own = wait_until(lambda: pods.program(DRIVER), START_S, submitted.words)
    assert own is not left
    assert left.process.poll() is not None and own.process.poll() is None
    submitter.process.terminate()
    assert ended(submitter) == 0, submitter.stderr[-3000:]
    assert DRIVER not in pods.names(), "its end is the driver's"
    assert pods.refused == set()


def _until_it_has_a_driver(submitted: Submitted) -> Spawned:
    """Submit, and a few times more as a kubelet would while the name is taken."""
    known = len(submitted.drivers())
    for _ in range(TRIES):
        submitter = submitted.pods.program(submitted.submit())
        wait_until(partial(_has_begun, submitted, submitter, known), START_S, submitted.words)
        if submitter.process.poll() is None:
            return submitter
    raise AssertionError(f"no driver after {TRIES} tries: {submitted.words()}")


def _has_begun(submitted: Submitted, submitter: Spawned, known: int) -> bool:
    return len(submitted.drivers()) > known or submitter.process.poll() is not None


@pytest.mark.long
def test_h422_a_driver_that_is_lost_is_submitted_again(
    submitted: Submitted,
    pipeline: HandMadeLog,
    redis_url: str,
    opened: Opened,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Driver and executors are the image's programs. The driver is killed while it has a batch in hand."""
    pipeline.put({"id": n, "status": "new", "total": "1.00"} for n in range(3000))
    pipeline.progress()
    sinks = {"cache": {"kind": "redis", "url": redis_url}}
    store = opened(pipeline.settings(sinks), "cache")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "python")
    monkeypatch.setenv("PYSPARK_PYTHON", os.fspath(bare_python_in(tmp_path)))
    ports = free_ports(["kafka", "redis"])
    settings = pipeline.toml(sinks, checkpoint="checkpoints", driver_batch_rows=0, slice_bytes=128 * 1024)
    more = {
        "spark.driver.port": str(ports["kafka"]),
        "spark.driver.blockManager.port": str(ports["redis"]),
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.executor.cores": "1",
    }
    submitted.configure(settings, **more)
    pods = submitted.pods
    first = pods.program(submitted.submit())
    wait_until(lambda: len(pipeline.shown(store)) == 3000, START_S, submitted.words)
    pipeline.put({"id": n, "status": "paid", "total": "2.00"} for n in range(20_000))
    wait_until(lambda: len(pipeline.shown(store)) > 3000, START_S, submitted.words)
    pods.kill(DRIVER)
    assert ended(first) == 0, first.stderr[-3000:]
    lsn = pipeline.progress()
    second = pods.program(submitted.submit())
    wait_until(lambda: (mark := store.watermarks.read()) is not None and mark.lsn == lsn, START_S, submitted.words)
    pipeline.assert_shown(store)
    assert [log for log in pods.logs() if "Finished task" in log], "executors had a part in it"
    executors = [pod for pod in pods.made if pod["metadata"]["labels"].get("spark-role") == "executor"]
    (shipped,) = {pod["spec"]["containers"][0]["command"][0] for pod in executors}
    assert shipped == "/opt/headrace/bin/spark-executor"
    driver = pods.program(DRIVER)
    second.process.terminate()
    assert ended(second) == 0, second.stderr[-3000:]
    assert driver.process.poll() == 0, "it has ended between two batches: " + driver.stderr[-3000:]
    assert pods.refused == set()
    assert SECRET not in "\n".join(pods.told)
    granted = {
        (account, verb, kind)
        for account, rules in pods.rules.items()
        for rule in rules
        for kind in rule["resources"]
        for verb in rule["verbs"]
    }
    unused = {(SINK, "watch", "pods"), (SINK, "delete", "pods")}
    assert granted - pods.asked <= unused, "rights that nobody used"
