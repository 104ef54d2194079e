"""What the two running processes show is what the manual declares: names, types, labels, and figures that are true."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.request import urlopen

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cdc.figures.declared_figures import CAPTURE, SINKS
from cdc.figures.http_server import PIPELINE, Figure
from cdc.process.clock import SYSTEM_CLOCK
from cdc.stack.local import free_ports
from tests.integration.cli.pipeline import Pipeline
from tests.programs import Spawn
from tests.promtool import run_promtool
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
OTHERS = ("process_", "python_")


class Shown:
    """One process's page."""

    def __init__(self, address: str, pipeline: str) -> None:
        self._address = address
        self._pipeline = pipeline

    def text(self) -> str:
        """Empty while nobody answers."""
        try:
            with urlopen(f"http://{self._address}/metrics", timeout=10) as page:
                return str(page.read().decode())
        except OSError:
            return ""

    def status(self) -> dict[str, object]:
        with urlopen(f"http://{self._address}/status", timeout=10) as page:
            return dict(orjson.loads(page.read()))

    def value(self, name: str, **labels: str) -> float | None:
        wanted = {PIPELINE: self._pipeline, **labels}
        for family in text_string_to_metric_families(self.text()):
            for sample in family.samples:
                if sample.name == name and sample.labels == wanted:
                    return sample.value
        return None

    def check(self, declared: Mapping[str, Figure]) -> None:
        """Every figure is declared, with its type and labels; every one that is never absent is there."""
        seen = set()
        for family in text_string_to_metric_families(self.text()):
            if family.name.startswith(OTHERS):
                continue
            name = f"{family.name}_total" if family.type == "counter" else family.name
            figure = declared[name]
            assert (family.type, family.documentation) == (figure.kind, figure.text)
            seen.add(name)
            for sample in family.samples:
                assert set(sample.labels) - {"le"} == {PIPELINE, *figure.labels}, sample
                assert sample.labels[PIPELINE] == self._pipeline
        never_absent = {one.name for one in declared.values() if one.kind == "gauge" and not one.absent}
        assert never_absent - seen == set()


def test_both_processes_show_what_is_declared(pipeline: Pipeline, spawn: Spawn, redis_url: str) -> None:
    ports = free_ports(["kafka", "connect"])
    run_at, sink_at = (f"127.0.0.1:{ports[name]}" for name in ("kafka", "connect"))
    pipeline.document["capture"]["http_address"] = run_at
    pipeline.document["spark"]["http_address"] = sink_at
    pipeline.document["sinks"] = {"cache": {"kind": "redis", "url": redis_url}}
    pipeline.begin()
    running = spawn("cdc", "--config", pipeline.config, "run")
    sinking = spawn("cdc", "--config", pipeline.config, "sink")
    run, sink = (Shown(address, pipeline.document["name"]) for address in (run_at, sink_at))
    wait_until(lambda: run.value("cdc_source_lag_known") == 1, 60, lambda: running.stderr[-3000:])
    wait_until(lambda: sink.value("cdc_sink_lag_known", sink="cache") == 1, 120, lambda: sinking.stderr[-3000:])
    wait_until(lambda: sink.value("cdc_sink_fill_progress_ratio", sink="cache") is None, 60)

    begun_s = SYSTEM_CLOCK.monotonic()
    for number in range(20):
        pipeline.sql(f"update orders set status = 'at {number}' where id = 42")
    took = run.value("cdc_freshness_seconds_count", origin="change"), begun_s
    wait_until(lambda: (run.value("cdc_freshness_seconds_count", origin="change") or 0) >= 20, 60, lambda: str(took))
    counted = "cdc_sink_freshness_seconds_count"
    # Of a batch eight are looked at, each stands for as many whole ones as come to it.
    wait_until(lambda: (sink.value(counted, sink="cache", origin="change") or 0) >= 10, 60, sink.text)
    elapsed_s = SYSTEM_CLOCK.monotonic() - begun_s
    for shown, name, labels in (
        (run, "cdc_freshness_seconds", {"origin": "change"}),
        (sink, "cdc_sink_freshness_seconds", {"sink": "cache", "origin": "change"}),
    ):
        count, total = (shown.value(f"{name}_{part}", **labels) for part in ("count", "sum"))
        assert count is not None and total is not None and 0 < total / count <= elapsed_s
    # Nothing changes any more: what is idle says so.
    wait_until(lambda: (run.value("cdc_freshness_seconds_count", origin="heartbeat") or 0) >= 1, 60, run.text)
    wait_until(lambda: (sink.value(counted, sink="cache", origin="heartbeat") or 0) >= 1, 60, sink.text)
    wait_until(lambda: sink.value("cdc_sink_lag_seconds", sink="cache") == 0, 60, sink.text)
    wait_until(lambda: run.value("cdc_source_lag_seconds") == 0, 60, run.text)
    assert sink.value("cdc_sink_backlog_bytes", sink="cache") == 0
    run.check(CAPTURE)
    sink.check(SINKS)
    for shown in (run, sink):
        page = shown.text()
        assert "NaN" not in page
        checked = run_promtool("check", "metrics", page=page)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    assert sink.status()["pipeline"] == run.status()["pipeline"] == pipeline.document["name"]
