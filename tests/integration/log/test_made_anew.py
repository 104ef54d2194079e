"""A topic of Debezium's that nobody has noted, as a pattern's, deleted around a reset while an eager view's runner is
away."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Producer

from cdc.clock import SYSTEM_CLOCK
from cdc.progress import Progress
from cdc.settings import Settings, parse
from cdc.topic import TableName
from cdc.topic_specs import pipeline_topic_specs, table_topic_spec
from cdc.views.eager import ShownLsns
from cdc.views.keeper import Keeper, KeeperParts
from cdc.views.memory_views import MemoryEagerOutput, MemoryViewTopic
from cdc.views.view_plan import planned
from cdc.views.view_records import ViewRecords
from cdc.views.view_state import ViewState
from connectors.connect.connector_epochs import next_epoch, read_epochs, settle_epoch
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import producer_config
from connectors.view_eager import EagerViewInput, SourceLooks
from connectors.view_embedded import shape_in
from tests.unit.cdc.views.view_histories import shown
from tests.waiting import wait_until


def record(number: int, marker: str, pos: int) -> tuple[bytes, bytes]:
    fields = [{"type": "int32", "optional": False, "field": "id"}]
    row = {"type": "struct", "fields": fields, "optional": True, "field": "after"}
    schema = {
        "type": "struct",
        "fields": [row, {"type": "struct", "field": "source"}, {"type": "string", "field": "op"}],
    }
    place = {"connector": "mariadb", "db": "shop", "table": "t", "snapshot": marker, "file": "bin.000001", "pos": pos}
    payload = {"before": None, "after": {"id": number}, "source": place, "op": "r"}
    return orjson.dumps({"id": number}), orjson.dumps({"schema": schema, "payload": payload})


class Over:
    """Kafka Connect, which says that the reading of the latest epoch is over."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._said = 0

    def poll(self, timeout_s: float) -> list[Progress]:
        epochs = read_epochs(self._settings)
        if epochs.latest == self._said:
            return []
        self._said = epochs.latest
        return [Progress(epoch=epochs.latest, lsn=0, offsets={}, reread=epochs.reread == epochs.latest)]

    def close(self) -> None:
        pass


class ReadAnew:
    """A table that is read whole, and an eager view of it, in runs."""

    def __init__(self, kafka: str, name: str, folder: Path) -> None:
        source = {"kind": "debezium", "dsn": "host=none", "tables": ["shop.*"]}
        log = {"bootstrap_servers": kafka, "partitions": 1}
        self.settings = parse({"name": name, "source": source, "log": log})
        self._admin = TopicAdmin(self.settings.log)
        self._topic, self._table = f"{name}.shop.t", TableName("shop", "t")
        self._admin.create(pipeline_topic_specs(self.settings.log, name))
        self._folder, self._out = folder, MemoryViewTopic()
        shape = shape_in(self._topic, 0, [(0, *record(1, "first", 100))])
        assert shape is not None
        self._plan = planned("select t.id from t", [shape], search_path=("shop",))

    def delete(self) -> None:
        self._admin.delete([self._topic])
        wait_until(lambda: self._topic not in self._admin.names(), 60)

    def snapshot(self, numbers: Iterable[int], pos: int) -> None:
        """As Debezium writes it, which makes the topic."""
        if self._topic not in self._admin.names():
            self._admin.create([table_topic_spec(self.settings.log, self._topic)])
        producer, rows = Producer(producer_config(self.settings.log)), list(numbers)
        for number in rows:
            marker = "first" if number == rows[0] else "last" if number == rows[-1] else "true"
            key, value = record(number, marker, pos)
            producer.produce(self._topic, value, key, 0)
        assert producer.flush(30) == 0

    def run(self) -> list[int]:
        """The keys that the view shows when it is level."""
        topics = {self._table: self._topic}
        with closing(ViewState(self._folder / "state", self._plan, 1)) as state:
            source = EagerViewInput(
                self.settings, state, topics, ShownLsns(), compaction_lag_s=60.0, retention_s=86_400.0,
                looks=SourceLooks(self.settings, Over(self.settings)),
            )  # fmt: skip
            written = ViewRecords(self._plan, "v", "t.view.v.1", 2, name="t", database="d")
            parts = KeeperParts(self._plan, state, source, MemoryEagerOutput(self._out), written, topics)
            keeper = Keeper(parts, clock=SYSTEM_CLOCK)
            with closing(source):
                keeper.begin()
                wait_until(lambda: keeper.turn() is not None and keeper.level, 30)
        return sorted(orjson.loads(orjson.dumps(row))["id"] for row in shown(self._out).values())


@pytest.mark.slow
@pytest.mark.parametrize("first", ["delete", "reset"])
def test_h573_a_topic_made_anew_for_a_new_epoch(kafka: str, topic_prefix: str, tmp_path: Path, first: str) -> None:
    """It is read from its beginning, in whichever order the topic was deleted and the offsets reset."""
    table = ReadAnew(kafka, topic_prefix, tmp_path)
    table.snapshot(range(1, 10), 100)
    assert table.run() == [*range(1, 10)]
    if first == "delete":
        table.delete()
    settle_epoch(table.settings, next_epoch(table.settings))
    if first == "reset":
        table.delete()
    table.snapshot(range(1, 13), 500)
    assert table.run() == [*range(1, 13)]
