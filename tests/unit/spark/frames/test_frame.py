"""A frame over a log in memory: its place in a checkpoint, where it begins, how it travels."""

from __future__ import annotations

import pickle
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from cdc.process.errors import ConfigError, TopicError, UsageError
from spark.frames.data_source import HeadraceSource, read_given, spark_schema
from spark.frames.frame import (
    StreamOffsets,
    arrow_schema,
    columns_of,
    ends_of,
    require_forward,
    require_growth,
    starts_of,
)
from spark.frames.options import FrameOptions
from spark.frames.pickled_source import PickledByValue
from tests.memory_frames import MemoryConnect, MemoryFrameLog
from tests.unit.spark.frames.changes import TOPIC, change, shape

ASKED = {"bootstrap_servers": "k:1", "pipeline": "shop", "table": "public.orders"}
OPTIONS = FrameOptions(servers="k:1", pipeline="shop", tables=("public.orders",))
PLACE = StreamOffsets("shop", {TOPIC: "id"}, {TOPIC: {0: 5, 1: -2}})


def pickled(something: object) -> bytes:
    """As Spark sends it."""
    dumps: Any = cloudpickle.dumps
    made: bytes = dumps(something)
    return made


class MemorySource(HeadraceSource):
    connect = MemoryConnect(MemoryFrameLog([shape()], [change(3, {"id": 1})]))


def test_a_place_is_read_back() -> None:
    assert PLACE.read(PLACE.document()) == PLACE.offsets


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (PLACE._replace(pipeline="lab"), "of the pipeline lab, and this query reads"),
        (PLACE._replace(ids={"lab.x": "id"}, offsets={"lab.x": {0: 1}}), "the checkpoint is of lab.x"),
    ],
)
def test_anothers_checkpoint_is_refused(other: StreamOffsets, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        PLACE.read(other.document())
    with pytest.raises(ConfigError, match="none of headrace"):
        PLACE.read({"offset": 7})


def test_h63_a_topic_made_anew_is_refused() -> None:
    with pytest.raises(TopicError, match="was made anew"):
        PLACE.read(PLACE._replace(ids={TOPIC: "another"}).document())
    with pytest.raises(TopicError, match="ends before offset 5"):
        require_growth({TOPIC: {0: 5}}, {TOPIC: {0: 4}})


def test_a_batch_does_not_go_back() -> None:
    with pytest.raises(ConfigError, match="each start needs a fresh one") as refused:
        require_forward({TOPIC: {0: 5}}, {TOPIC: {0: 4}}, PLACE, limited=True)
    assert '{"shop.public.orders":{"0":5,"1":-2}}' in refused.value.hint
    with pytest.raises(TopicError, match="ends before the place"):
        require_forward({TOPIC: {0: 5}}, {TOPIC: {0: 4}}, PLACE, limited=False)


def test_offsets_have_to_be_of_the_frames_topics() -> None:
    ends = {TOPIC: {0: 10}}
    assert starts_of(OPTIONS, ends) == {TOPIC: {0: -2}}
    assert ends_of(OPTIONS, ends) == ends
    for given, kind in (({"x": {0: 1}}, UsageError), ({TOPIC: {1: 1}}, UsageError), ({TOPIC: {0: 11}}, TopicError)):
        options = FrameOptions(servers="k", pipeline="shop", tables=("a.b",), starting=given, ending=given)
        with pytest.raises(kind):
            starts_of(options, ends)
        with pytest.raises(kind):
            ends_of(options, ends)


def test_a_settings_file_gives_options_that_others_override() -> None:
    log = MemoryFrameLog([shape()])
    connect = MemoryConnect(log, {"bootstrap_servers": "a:1", "pipeline": "shop", "kafka.sasl.password": "env:X"})
    options = read_given({"config": "cdc.toml", "table": "public.orders", "pipeline": "lab"}, connect)
    assert (options.servers, options.pipeline) == ("a:1", "lab")
    assert options.secrets == (("sasl.password", "env:X"),)
    with pytest.raises(ConfigError, match="holds a secret"):
        read_given({"config": "x", "kafka.ssl.key.password": "y"}, connect)


def test_a_source_reads_its_table() -> None:
    source = MemorySource(ASKED)
    schema = source.schema()
    assert schema == spark_schema(arrow_schema(columns_of(OPTIONS, MemorySource.connect.own)))
    reader = source.reader(schema)
    (share,) = reader.partitions()
    assert [row["id"] for batch in reader.read(share) for row in batch.to_pylist()] == [1]


def test_h170_an_executor_without_the_package_says_so(tmp_path: Path) -> None:
    carried = tmp_path / "reader"
    reader = MemorySource(ASKED).reader(MemorySource(ASKED).schema())
    carried.write_bytes(pickled(reader))
    script = f"import pickle; pickle.load(open({str(carried)!r}, 'rb'))"
    libraries = sysconfig.get_paths()["purelib"]
    # Without `site` no .pth file is read, and with that no package installed from its source folder.
    bare = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env={"PYTHONPATH": libraries},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "RuntimeError: this worker's Python" in bare.stderr
    assert "lacks the module spark" in bare.stderr.splitlines()[-1]
    assert "install headrace[spark] on every executor" in bare.stderr.splitlines()[-1]


def test_what_is_open_does_not_travel() -> None:
    class Own(PickledByValue):
        def __init__(self) -> None:
            self.live_client, self.kept = object(), 7

    # A class of a test has no name to be found by.
    assert pickle.loads(pickled(Own().__dict__ | {"live_client": None})) == {"live_client": None, "kept": 7}
    reader = MemorySource(ASKED).reader(MemorySource(ASKED).schema())
    assert reader.live_connect is not None
    assert pickle.loads(pickled(reader)).live_connect is None
