"""A switch between two generations of a search index that is killed between its note and its aliases."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from cdc.process.crash_points import CRASH_EXIT
from cdc.record.progress import Watermark
from sinks.contract.kinds import beside, open_generations, spec_for
from sinks.contract.port import OpenSink
from sinks.contract.sink_spec import SinkSpec, open_sink
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch

ROOT = Path(__file__).parents[3]
SHAPES = Shapes(ORDERS)
SWITCH = """
import sys
from contextlib import closing
from sinks.contract.kinds import open_generations, spec_for
from tests.contract.topics import ORDERS

url, prefix, number = sys.argv[1:]
with closing(open_generations(spec_for("opensearch", prefix=prefix, options={"url": url}))) as generations:
    generations.switch(int(number), [ORDERS])
"""


def killed_in_switch(spec: SinkSpec, number: int) -> None:
    command = [sys.executable, "-c", SWITCH, spec.text("url"), spec.prefix, str(number)]
    environment = {**os.environ, "CDC_CRASH_AT": "search_generation_noted"}
    assert subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == CRASH_EXIT


def put(sink: OpenSink, offset: int, *rows: int) -> None:
    topic = Topic()
    changes = [topic.upsert({"id": number, "status": "open"}, at(offset)) for number in rows]
    sink.sink.prepare(ORDERS)
    sink.sink.apply(batch(*changes), SHAPES)
    sink.sink.show()
    sink.commit(Watermark(epoch=1, lsn=offset, offsets={ORDERS.topic: {0: offset}}))


def seen(spec: SinkSpec) -> list[str]:
    """By whoever searches the alias."""
    found = requests.get(f"{spec.text('url')}/{spec.prefix}-public.orders/_search", timeout=30).json()
    return sorted(hit["_id"] for hit in found["hits"]["hits"])


@pytest.fixture
def spec(opensearch: str, index_prefix: str) -> SinkSpec:
    """A store of two generations: the first one in use has row 1, the second one row 2 as well."""
    spec = spec_for("opensearch", prefix=index_prefix, options={"url": opensearch})
    for one, rows in ((spec, [1]), (beside(spec, 2), [1, 2])):
        with closing(open_sink(one)) as sink:
            put(sink, 5, *rows)
    return spec


@pytest.mark.slow
@pytest.mark.parametrize("back", [False, True], ids=["rebuild", "rollback"])
def test_h540_a_sink_leads_readers_on_behind_a_kill(spec: SinkSpec, back: bool) -> None:
    """The alias and the note spoke of two generations: rows went to the one, and the claim was of the other."""
    if back:
        with closing(open_generations(spec)) as generations:
            generations.switch(2, [ORDERS])
    with closing(open_sink(replace(spec, parallel=False))) as running:
        put(running, 6, 3)
        killed_in_switch(spec, 1 if back else 2)
        assert not running.current()
    for offset in (7, 8):  # It opens the store anew, and is started again.
        with closing(open_sink(spec)) as sink:
            assert sink.current()
            put(sink, offset, offset)
    assert seen(spec) == (["1", "7", "8"] if back else ["1", "2", "7", "8"])


def test_h540_readers_keep_their_index_behind_a_killed_rollback(spec: SinkSpec) -> None:
    """A rebuild begins by removing the generation that is not in use, and readers were led there still."""
    with closing(open_generations(spec)) as generations:
        generations.switch(2, [ORDERS])
        killed_in_switch(spec, 1)
        assert generations.in_use() == 1
        generations.discard(2, [ORDERS])
    assert seen(spec) == ["1"]
