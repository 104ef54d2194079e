"""``cdc verify`` beside masks: a view that never can be compared fails nothing, other masks than capture's do."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.process.errors import Exit
from tests.integration.cli.pipeline import Pipeline
from tests.programs import Spawn
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
KEYS = {"CDC_MASK_KEY": "a key of masks that is long enough for the tests"}
TABLES = (
    "create table people (id int primary key, mail text)",
    "create table places (id int primary key, name text)",
    "insert into people values (1, 'a@b.c')",
    "insert into places values (1, 'here')",
)


@pytest.mark.long
def test_h333_h334_verify_ends_well_beside_masks(pipeline: Pipeline, spawn: Spawn, tmp_path: Path) -> None:
    (pipeline.folder / "mails.sql").write_text("select id, mail from people", encoding="utf-8")
    pipeline.document["source"] |= {"tables": ["public.people", "public.places"], "mask_key": "env:CDC_MASK_KEY"}
    masks = pipeline.document["tables"] = {"public.people": {"columns": {"mail": "hmac"}}}
    pipeline.document["views"] = {"mails": {"sql": "mails.sql", "state": f"{tmp_path}/views"}}
    pipeline.document["sinks"] = {
        "reports": {"kind": "sql", "url": f"sqlite:///{tmp_path}/reports.db", "tables": ["public.*", "view.mails"]}
    }
    pipeline.sql(*TABLES)
    for command in ("init", "snapshot"):
        done = pipeline.cdc(command, timeout_s=60, **KEYS)
        assert done.returncode == 0, done.stderr
    capture = spawn("cdc", "--config", pipeline.config, "run", env=KEYS)
    views = spawn("cdc", "--config", pipeline.config, "view", "run")
    sink = spawn("cdc", "--config", pipeline.config, "sink")
    wait_until(lambda: '"sink_started"' in sink.stderr, 120, lambda: sink.stderr[-3000:])
    wait_until(
        lambda: "mail" in (shown := pipeline.cdc("view", "show", "mails", "1")).stdout and shown.returncode == 0,
        60,
        lambda: pipeline.cdc("view", "show", "mails", "1").stderr + views.stderr[-2000:],
    )

    def verified(*names: str) -> tuple[int, str]:
        done = pipeline.cdc("verify", *names, timeout_s=120, **KEYS)
        return done.returncode, done.stdout + done.stderr

    code, said = verified()
    assert code == 0, said
    assert "view.mails left out: public.people has masks" in said and "2 rows compared" in said, said
    code, said = verified("view.mails")
    assert code == 0 and "nothing compared; 1 left out" in said, said
    # A mask that cannot be kept is of its table alone.
    masks["public.places"] = {"columns": {"gone": "drop"}}
    code, said = verified()
    assert code == Exit.DIFFERENCE, said
    assert "public.places not compared: the settings mask gone" in said and "1 rows compared" in said, said
    code, said = verified("public.people")
    assert code == 0, said
    del masks["public.places"]
    masks["public.people"] = {"columns": {"mail": "truncate:2"}}
    code, said = verified()
    assert code == Exit.DIFFERENCE and "public.people not compared: capture has other masks" in said, said
    assert capture.terminate() == 0, capture.stderr
    assert sink.terminate() == 0, sink.stderr
    assert views.terminate() == 0, views.stderr
