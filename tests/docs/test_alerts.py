"""Alerts, board and their page: by Prometheus' own tool, and against the figures that are declared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc.figures.declared_figures import CAPTURE, SINKS, STREAMS
from tests.docs.test_manuals import anchors
from tests.promtool import run_promtool

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "compose" / "monitoring"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((MONITORING / "rules.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
BOARD: dict[str, Any] = json.loads((MONITORING / "grafana" / "headrace.json").read_text(encoding="utf-8"))
PANELS = {panel["title"]: panel for panel in BOARD["panels"] if panel["type"] != "row"}
PAGE = (MONITORING / "README.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| [^|]+\? \| ([^|]+) \| `(\w+)` \| \[[^\]]+\]\(\.\./\.\./([^)]+)\) \|$", PAGE, re.MULTILINE)


def expressions() -> Iterator[str]:
    """Every expression of the board, with its variables filled in."""
    for panel in PANELS.values():
        for target in panel["targets"]:
            expr = str(target["expr"]).replace("$pipeline", "shop").replace("$sink", "cache")
            yield expr.replace("$__rate_interval", "5m")


def test_the_rules_and_the_configuration_are_sound() -> None:
    for what, file in (("rules", "rules.yml"), ("config", "prometheus.yml")):
        done = run_promtool("check", what, file, folder=MONITORING)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_each_alert_fires_and_stays_silent_where_it_should() -> None:
    done = run_promtool("test", "rules", "rules_test.yml", folder=MONITORING)
    assert done.returncode == 0, done.stdout + done.stderr
    tests = yaml.safe_load((MONITORING / "rules_test.yml").read_text(encoding="utf-8"))["tests"]
    tried = sorted((one["alertname"], bool(one["exp_alerts"])) for test in tests for one in test["alert_rule_test"])
    assert tried == sorted((rule["alert"], fires) for rule in RULES for fires in (False, True))


def test_a_rule_that_is_turned_off_is_noticed(tmp_path: Path) -> None:
    """Each test of a rule fails without it: what the tool is asked is asked in earnest."""
    off = [{**rule, "expr": f"({rule['expr']}) and vector(0) > 1"} for rule in RULES]
    document = {"groups": [{"name": "all", "rules": off}]}
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    (tmp_path / "rules_test.yml").write_bytes((MONITORING / "rules_test.yml").read_bytes())
    done = run_promtool("test", "rules", "rules_test.yml", folder=tmp_path)
    assert done.returncode == 1
    noticed = set(re.findall(r"alertname: (\w+)", done.stderr + done.stdout))
    assert noticed == {rule["alert"] for rule in RULES}


def test_the_boards_expressions_are_sound(tmp_path: Path) -> None:
    records = [{"record": f"board:{number}", "expr": expr} for number, expr in enumerate(expressions())]
    document = {"groups": [{"name": "board", "rules": records}]}
    (tmp_path / "board.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    done = run_promtool("check", "rules", "board.yml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_and_board_speak_of_figures_that_exist() -> None:
    declared = {**CAPTURE, **SINKS, **STREAMS}
    used = {
        name for text in (*expressions(), *(rule["expr"] for rule in RULES)) for name in re.findall(r"cdc_\w+", text)
    }
    parts = {f"{one.name}_bucket" for one in declared.values() if one.kind == "histogram"}
    assert used - declared.keys() - parts == set()
    gauges = {one.known for one in declared.values() if one.known}
    # It goes with cdc_sink_up. And whatever Spark says of its queries, the stores' own lag decides.
    assert {name for name in gauges if name not in used} == {"cdc_sink_state_known", "cdc_query_known"}


def test_the_page_has_each_alert_with_its_panel_and_its_runbook() -> None:
    assert sorted(alert for _, alert, _ in ROWS) == sorted(rule["alert"] for rule in RULES)
    runbooks = {rule["alert"]: rule["annotations"]["runbook"] for rule in RULES}
    for panel, alert, runbook in ROWS:
        assert panel in PANELS, alert
        assert runbook == runbooks[alert]
        page, _, anchor = runbook.partition("#")
        assert anchor in anchors(ROOT / page), runbook
    named = {panel for panel, _, _ in ROWS} | set(re.findall(r"`([A-Z][^`]+)`", PAGE.partition("Panels without")[2]))
    assert named - {"CDC_PROMTOOL"} == PANELS.keys()


def test_the_board_can_be_provisioned() -> None:
    assert BOARD["uid"] and BOARD["title"] and BOARD["schemaVersion"] >= 36
    numbers = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in BOARD["panels"]}
    assert len(places) == len(numbers)
    variables = {one["name"] for one in BOARD["templating"]["list"]}
    assert variables == {"source", "pipeline", "sink"}
    for panel in PANELS.values():
        assert panel["datasource"]["uid"] == "${source}"
        assert panel["description"] and panel["targets"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${source}"}
    for name in ("dashboards.yml", "datasources.yml"):
        assert yaml.safe_load((MONITORING / "grafana" / name).read_text(encoding="utf-8"))["apiVersion"] == 1
