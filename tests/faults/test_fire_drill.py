"""The words that the fire drill follows stand in the runbook of the alert that it waits for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests.faults.experiments.fire_drill import DRILLS, Drill, require_told
from tests.faults.lab import Found
from tests.prometheus import RULES, hurried
from tests.runbooks import section


def rules(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in document["groups"] for rule in group["rules"]}


ALL = rules(yaml.safe_load(RULES.read_text(encoding="utf-8")))


@pytest.mark.parametrize("drill", DRILLS, ids=lambda drill: drill.name)
def test_a_runbook_says_what_the_drill_does(drill: Drill) -> None:
    require_told(drill, ALL[drill.alert]["annotations"]["runbook"])


@pytest.mark.parametrize("drill", DRILLS, ids=lambda drill: drill.name)
def test_words_that_no_runbook_has_are_noticed(drill: Drill) -> None:
    runbook = ALL[drill.alert]["annotations"]["runbook"]
    with pytest.raises(Found, match="does not say"):
        require_told(replace(drill, lines=(*drill.lines, "hope")), runbook)
    with pytest.raises(Found, match="does not lead to"):
        require_told(replace(drill, path=("README.md#nowhere",)), runbook)


def test_a_page_without_the_heading_is_refused() -> None:
    with pytest.raises(LookupError, match="no heading"):
        section("README.md#nowhere")


def test_the_drills_rules_are_ours_but_for_their_waiting() -> None:
    found = rules(hurried(RULES))
    assert [rule.pop("for") for rule in found.values() if "for" in rule] == ["2s"] * sum(
        "for" in rule for rule in ALL.values()
    )
    assert found == {name: {word: said for word, said in rule.items() if word != "for"} for name, rule in ALL.items()}
