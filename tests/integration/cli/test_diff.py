"""``cdc diff`` on servers: from an empty database to a pipeline whose settings moved on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdc.process.errors import Exit
from tests.integration.cli.pipeline import Pipeline


def _told(pipeline: Pipeline) -> dict[str, str]:
    """What is told, and what ends it."""
    done = pipeline.cdc("diff", "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == (Exit.DIFFERENCE if found else Exit.OK), done.stderr
    assert "Traceback" not in done.stderr
    return {one["what"]: one["cure"] for one in found}


@pytest.mark.slow
def test_a_pipeline_differs_until_its_commands_ran(pipeline: Pipeline, tmp_path: Path) -> None:
    name = pipeline.document["name"]
    assert _told(pipeline) == {
        f"there is no publication cdc_{name} yet": "cdc init",
        "the pipeline's topics are not made yet": "cdc init",
    }
    pipeline.good("init")
    assert _told(pipeline) == {"there is no first snapshot yet": "cdc snapshot"}
    pipeline.good("snapshot")
    assert _told(pipeline) == {}
    assert "as the settings say" in pipeline.cdc("diff").stderr

    pipeline.sql("create table notes (id int primary key)")
    pipeline.document["source"]["tables"] = ["public.notes"]
    pipeline.document["sinks"] = {"reports": {"kind": "sql", "url": f"sqlite:///{tmp_path}/reports.db"}}
    assert _told(pipeline) == {
        "public.notes is captured by the settings, and not published": "cdc init",
        "public.orders is published, and the settings do not capture it": (
            f"alter publication cdc_{name} drop table only public.orders"
        ),
        f"the topic {name}.public.notes is not made yet": "cdc init",
        "public.orders is not captured any more: its topic and its rows in stores stay": "",
        "the store of reports shows nothing yet": "cdc sink reports",
    }


@pytest.mark.slow
def test_h109_a_part_that_is_away_is_not_compared(pipeline: Pipeline, no_server: str) -> None:
    pipeline.good("init")
    pipeline.document["log"]["bootstrap_servers"] = f"127.0.0.1:{no_server}"
    done = pipeline.cdc("diff")
    assert done.returncode == Exit.UNAVAILABLE
    assert done.stdout == ""
    assert "kafka was not compared" in done.stderr
    assert done.stderr.count("error: ") == 1
