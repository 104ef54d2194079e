"""A Prometheus of its own: it asks the two processes every second, and has the alerts of ``compose/monitoring``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
import yaml

from cdc.stack.local import free_ports
from tests.programs import Spawned
from tests.promtool import prometheus_program
from tests.waiting import wait_until

ROOT = Path(__file__).parents[1]
RULES = ROOT / "compose" / "monitoring" / "rules.yml"
_AT_ONCE = "2s"
"""Instead of the minutes that an alert waits for."""
_START_S = 60.0


@dataclass(frozen=True, slots=True)
class Alert:
    """One that fires. ``runbook``: the page that it names, with the heading."""

    name: str
    labels: Mapping[str, str]
    runbook: str


class Prometheus:
    """A running server. ``targets``: the job -> ``host:port``."""

    def __init__(self, folder: Path, targets: Mapping[str, str]) -> None:
        port = free_ports(["prometheus"])["prometheus"]
        self._url = f"http://127.0.0.1:{port}"
        (folder / "rules.yml").write_text(yaml.safe_dump(hurried(RULES)), encoding="utf-8")
        (folder / "prometheus.yml").write_text(yaml.safe_dump(_asking(targets)), encoding="utf-8")
        argv = [
            str(prometheus_program("prometheus")), f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'samples'}", f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
        ]  # fmt: skip
        self._process = Spawned.cold(argv, folder / "prometheus.out", folder / "prometheus.err", os.environ)
        wait_until(self._ready, _START_S, lambda: self._process.stderr)

    def firing(self) -> list[Alert]:
        """What fires now."""
        found = requests.get(f"{self._url}/api/v1/alerts", timeout=10).json()["data"]["alerts"]
        return [
            Alert(one["labels"]["alertname"], one["labels"], one["annotations"]["runbook"])
            for one in found
            if one["state"] == "firing"
        ]

    def close(self) -> None:
        """End it."""
        self._process.kill()

    def _ready(self) -> bool:
        assert self._process.process.poll() is None, self._process.stderr
        try:
            return requests.get(f"{self._url}/-/ready", timeout=5).status_code == 200
        except requests.ConnectionError:
            return False


def hurried(rules: Path) -> dict[str, Any]:
    """The rules with their waiting cut short, all else as it is."""
    document: dict[str, Any] = yaml.safe_load(rules.read_text(encoding="utf-8"))
    for group in document["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = _AT_ONCE
    return document


def _asking(targets: Mapping[str, str]) -> dict[str, Any]:
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [target]}]} for job, target in targets.items()
        ],
    }
