"""The compose files: by Compose's own schema, and of one mind with the image, the manifests and the monitoring."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from sinks.contract.kinds import load_settings
from tests.docs.test_kubernetes import PODS
from tests.promtool import run_promtool

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose"
FILES = ("compose.yaml", "pipeline.yaml")
SCHEMA = json.loads((ROOT / "tests" / "fixtures" / "compose" / "compose-spec.json").read_text(encoding="utf-8"))
CDC = ("init", "snapshot", "capture", "sink")
SPARK = ("spark-master", "spark-worker")
OURS = (*CDC, *SPARK)


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((COMPOSE / name).read_text(encoding="utf-8"))
    return found


def faults(document: dict[str, Any]) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(document)]


SERVERS: dict[str, Any] = read("compose.yaml")["services"]
SERVICES: dict[str, Any] = read("pipeline.yaml")["services"]


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_one_that_compose_takes(name: str) -> None:
    assert faults(read(name)) == []


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_a_wrong_word_is_no_compose_file(name: str) -> None:
    """The validator looks at what it is given."""
    document = read(name)
    next(iter(document["services"].values()))["restarts"] = "always"
    assert any("restarts" in fault for fault in faults(document))


def test_the_parts_that_one_waits_for_are_there() -> None:
    known = SERVERS.keys() | SERVICES.keys()
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            assert other in known, name
            waited = SERVICES.get(other) or SERVERS[other]
            if how["condition"] == "service_healthy":
                assert "healthcheck" in waited, f"{name} waits for {other}"
    assert not SERVERS.keys() & SERVICES.keys(), "a name of both files would be one service"


def test_a_process_may_do_as_little_as_a_pod() -> None:
    (image,) = {container["image"] for pod in PODS.values() for container in pod["containers"]}
    for name in OURS:
        service = SERVICES[name]
        assert service["image"] == image
        assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "ports" not in service, "strangers reach none of them"
        assert bool(service["environment"]) == (name in CDC), "Spark's own processes have no secret"


@pytest.mark.parametrize("name", CDC)
def test_a_process_has_the_command_and_the_time_of_its_pod(name: str) -> None:
    service, pod = SERVICES[name], PODS["first" if name in ("init", "snapshot") else name]
    commands = [container["args"] for container in [*pod.get("initContainers", []), *pod["containers"]]]
    assert service["command"] in commands
    if "stop_grace_period" in service:
        assert service["stop_grace_period"] == f"{pod['terminationGracePeriodSeconds']}s"


def test_the_settings_name_the_containers() -> None:
    settings = load_settings(COMPOSE / "pipeline.toml", environment={"CDC_SOURCE_PASSWORD": "for us alone"})
    text = (COMPOSE / "pipeline.toml").read_text(encoding="utf-8")
    assert "127.0.0.1" not in text, "in a container that is the container"
    hosts = set(re.findall(r"(?:host=|//|bootstrap_servers = \")([a-z-]+)", text))
    assert hosts == {"postgres", "kafka", "redis", "opensearch", "spark-master"}
    assert hosts <= SERVERS.keys() | SERVICES.keys()
    assert set(settings.sinks) == {"cache", "search", "warehouse"}
    assert settings.spark.conf["spark.driver.host"] == SERVICES["sink"]["hostname"]
    assert "--host spark-master --port 7077" in SERVICES["spark-master"]["command"][0]
    assert settings.spark.master in SERVICES["spark-worker"]["command"][0]
    for name, address in (("capture", settings.capture.http_address), ("sink", settings.spark.http_address)):
        port = address.rpartition(":")[2]
        assert f":{port}/livez" in SERVICES[name]["healthcheck"]["test"][-1]
        assert f"{name}:{port}" in (COMPOSE / "monitoring" / "containers" / "prometheus.yml").read_text()


def test_what_is_mounted_is_there() -> None:
    volumes = read("pipeline.yaml")["volumes"]
    for name, service in SERVICES.items():
        for volume in service.get("volumes", []):
            source, target, *rest = volume.split(":")
            assert source in volumes or ((COMPOSE / source).is_file() and rest == ["ro"]), f"{name}: {volume}"
            assert target.startswith("/")


def test_prometheus_reads_what_is_mounted(tmp_path: Path) -> None:
    for volume in SERVICES["prometheus"]["volumes"]:
        source, target, *_ = volume.split(":")
        if (COMPOSE / source).is_file():
            (tmp_path / Path(target).name).write_bytes((COMPOSE / source).read_bytes())
    done = run_promtool("check", "config", "prometheus.yml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"SUCCESS: [1-9]\d* rules found", done.stdout + done.stderr)
    version = SERVICES["prometheus"]["image"].partition(":v")[2]
    assert version in (ROOT / "tests" / "promtool.py").read_text(encoding="utf-8"), "the version that is drilled"


def test_grafana_asks_the_prometheus_beside_it() -> None:
    (source,) = read("monitoring/containers/datasources.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert SERVICES["prometheus"]["ports"][0].endswith(":9090")
    mounted = {volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]}
    (provider,) = read("monitoring/grafana/dashboards.yml")["providers"]
    assert f"{provider['options']['path']}/headrace.json" in mounted
    assert all(":127.0.0.1" in f":{port}" for one in SERVICES.values() for port in one.get("ports", []))


def test_the_page_names_each_part_and_its_port() -> None:
    page = (COMPOSE / "README.md").read_text(encoding="utf-8")
    part = page.partition("## A whole pipeline")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-z, -]+) \| [^|]+ \|([^|]*)\|$", part, re.MULTILINE)
    named = {name: port for cell, port in rows for name in cell.split(", ") if name not in ("part", "---")}
    assert named.keys() == SERVICES.keys()
    for name, service in SERVICES.items():
        ports = [port.rpartition(":")[2] for port in service.get("ports", [])]
        assert [port for port in ports if port not in named[name]] == []
        assert bool(ports) == bool(named[name].strip())
