"""The search index on a real OpenSearch: alias, mapping, hard documents, forgetting, and what goes wrong."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar
from urllib.parse import quote

import orjson
import pytest
import requests

from cdc.process.clock import SYSTEM_CLOCK, ManualClock
from cdc.process.errors import Exit, SinkError
from cdc.record.progress import Watermark
from cdc.record.schema import TableSchema
from sinks.contract.batch import events_of
from sinks.contract.kinds import spec_for
from sinks.contract.port import CannotCarry, OpenSink, StoreAway
from sinks.contract.sink_spec import open_sink
from sinks.contract.store_notes import TableFloor
from sinks.search.search_client import SearchClient
from sinks.search.search_generations import SearchNotes
from tests.contract.stores import live
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch, column, numeric, shape
from tests.hostile_documents import EVERY
from tests.single_rows import canonical_row, plain_row

T = TypeVar("T")
SHAPES = Shapes(ORDERS)
ROW = {"id": 1, "status": "open", "note": "two words"}


class Server:
    """Plain requests, as a reader of the index makes them."""

    def __init__(self, url: str, prefix: str) -> None:
        self.url = url
        self.prefix = prefix

    def sink(self, clock: ManualClock | None = None, **options: Any) -> OpenSink:
        spec = spec_for("opensearch", prefix=self.prefix, options={"url": self.url, **options})
        return open_sink(spec, clock) if clock is not None else open_sink(spec)

    def search(self, query: dict[str, Any], index: str = "public.orders") -> list[str]:
        path = f"{self.url}/{self.prefix}-{quote(index, safe='')}/_search"
        answer = requests.post(path, json={"query": query, "sort": ["_doc"]}, timeout=30).json()
        return sorted(hit["_id"] for hit in answer["hits"]["hits"])

    def get(self, path: str) -> Any:
        return requests.get(f"{self.url}/{path}", timeout=30).json()


@pytest.fixture
def server(opensearch: str, index_prefix: str) -> Server:
    return Server(opensearch, index_prefix)


def test_the_alias_shows_the_live_ones(server: Server) -> None:
    sink, topic = server.sink(), Topic()
    sink.sink.apply(batch(topic.upsert(ROW, at(1)), topic.upsert({**ROW, "id": 2}, at(1, 2))), SHAPES)
    sink.sink.apply(batch(topic.delete(ROW, at(2))), SHAPES)
    sink.sink.show()
    assert server.search({"match_all": {}}) == ["2"]
    marker = server.get(f"{server.prefix}-public.orders-1/_doc/1")
    assert marker["_source"].keys() == {"_deleted", "_pos", "_deleted_at"}
    assert marker["_version"] == at(2, 2).document_version()
    sink.close()


def test_fields_are_searched_as_what_they_are(server: Server) -> None:
    table = shape(
        column("id", "int8", key=1),
        column("t", "text"),
        numeric("total", 10, 2),
        column("at", "timestamptz"),
        column("d", "date"),
        column("doc", "jsonb"),
        column("tags", "text", array=True),
    )
    sink, topic = server.sink(), Topic(table)
    row = {"t": "Two Words", "total": "10.50", "at": "2016-11-04T11:51:30.123456Z", "d": "2016-11-04Z"}
    nested = {"doc": '{"a": {"b": "c"}}', "tags": ["x", "y"]}
    odd = {"t": "x", "total": "NaN", "at": "infinity", "d": "-0043-03-15Z", "doc": "5", "tags": []}
    sink.sink.apply(
        batch(topic.upsert({"id": 1, **row, **nested}, at(1)), topic.upsert({"id": 2, **odd}, at(2))), Shapes(table)
    )
    sink.sink.show()
    for query in (
        {"match": {"t": "words"}},
        {"term": {"t.keyword": "Two Words"}},
        {"term": {"total": "10.50"}},
        {"range": {"total.number": {"gte": 10, "lt": 11}}},
        {"range": {"at": {"gte": "2016-11-04T00:00:00Z", "lt": "2016-11-05T00:00:00Z"}}},
        {"term": {"d": "2016-11-04Z"}},
        {"term": {"doc.a.b": "c"}},
        {"term": {"tags.keyword": "y"}},
    ):
        assert server.search(query) == ["1"], query
    assert server.search({"range": {"d": {"lt": "0001-01-01"}}}) == ["2"]
    sink.close()


def _json_table(server: Server, mapping: str, texts: list[str]) -> tuple[OpenSink, TableSchema]:
    table = shape(column("id", "int8", key=1), column("doc", "json"), table=f"json_{mapping}")
    sink, topic = server.sink(json_mapping=mapping), Topic(table)
    for number, text in enumerate(texts):
        topic.upsert({"id": number, "doc": text}, at(number))
    done = sink.sink.apply(events_of(topic.events), Shapes(table))
    assert done.refused == ()
    assert done.applied == len(texts)
    found = live(sink, table)
    for number, text in enumerate(texts):
        plain = orjson.dumps(plain_row({"id": number, "doc": text}, table))
        assert found[str(number)] == canonical_row(plain, table), text[:80]
    return sink, table


def test_w5_an_id_that_no_document_can_have_is_absent(server: Server) -> None:
    requests.put(f"{server.url}/{server.prefix}-ids", timeout=30)
    with closing(SearchClient(server.url, None, None, None, SYSTEM_CLOCK)) as client:
        found = client.documents(f"/{server.prefix}-ids", ["", "1"])
    assert [one.get("found", False) for one in found] == [False, False]


@pytest.mark.slow
@pytest.mark.parametrize("mapping", ["flat_object", "object", "text"])
def test_no_legal_json_is_refused(server: Server, mapping: str) -> None:
    texts = ["5", '"text"', "true", "null", "[1, [2]]", '[{"a": 1}, 2]', "{}", "[]", '{"a": 1e400}', *EVERY.values()]
    texts += ['{"a.b": 1, "a": {"b": 2}}', '{"a": "' + "v" * 40_000 + '"}', '{"' + "k" * 40_000 + '": 1}']
    texts += ["[" * 30 + "]" * 30, '{"a":' * 60 + "1" + "}" * 60, '{"a": 1,\n"b": 2}', '{"a": {"b": 1}}', '{"a": 7}']
    sink, _ = _json_table(server, mapping, texts)
    sink.close()


def test_a_refused_document_does_not_hold_the_others_up(server: Server) -> None:
    # Of what Postgres sends nothing is refused; a foreign producer may nest deeper than the index takes.
    deep = orjson.loads("[" * 30 + '"canary-7"' + "]" * 30)
    sink, topic = server.sink(), Topic()
    rows = [topic.upsert({**ROW, "id": n, "note": note}, at(n)) for n, note in enumerate(["x", deep, "y"])]
    done = sink.sink.apply(batch(rows), SHAPES)
    assert [refused.key for refused in done.refused] == [b'{"id":1}']
    assert "the index refuses it" in done.refused[0].reason
    assert "canary" not in done.refused[0].reason
    assert done.applied == 2
    sink.close()


def test_deletes_are_forgotten_after_the_replay_window(server: Server) -> None:
    clock = ManualClock()
    sink, topic = server.sink(clock, replay_window_s=7200), Topic()
    sink.sink.apply(batch(topic.delete(ROW, at(1)), topic.upsert({**ROW, "id": 2}, at(1))), SHAPES)
    sink.sink.show()
    clock.advance(7000)
    sink.sink.show()
    assert sink.reader.get(ORDERS, "1") is not None
    clock.advance(3700)
    sink.sink.show()
    assert sink.reader.get(ORDERS, "1") is None
    assert sink.reader.get(ORDERS, "2") is not None
    assert sink.sink.apply(batch(topic.row("c", ROW, at(9))), SHAPES).applied == 1
    sink.close()


def test_h84_a_deleted_index_is_missed_and_its_place_with_it(server: Server) -> None:
    sink, topic = server.sink(), Topic()
    sink.sink.apply(batch(topic.upsert(ROW, at(1))), SHAPES)
    sink.commit(Watermark(epoch=1, lsn=99, offsets={ORDERS.topic: {0: 1}}))
    requests.delete(f"{server.url}/{server.prefix}-public.orders-1", timeout=30)
    with pytest.raises(SinkError):
        sink.sink.apply(batch(topic.upsert(ROW, at(2))), SHAPES)
    again = server.sink()
    assert again.places.read(ORDERS) is None
    again.sink.prepare(ORDERS)
    for opened in (sink, again):
        opened.close()


def test_a_generation_beside_the_one_that_is_read(server: Server) -> None:
    first, second, topic = server.sink(), server.sink(generation=2), Topic()
    first.sink.apply(batch(topic.upsert(ROW, at(1))), SHAPES)
    second.sink.apply(batch(topic.upsert({**ROW, "id": 2}, at(1))), SHAPES)
    for opened in (first, second):
        opened.sink.show()
    assert server.search({"match_all": {}}) == ["1"]
    assert list(live(second, ORDERS)) == ["2"]
    for opened in (first, second):
        opened.close()


def test_nobody_listening_is_one_sentence_and_a_hint() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    options = {"url": f"http://127.0.0.1:{port}", "user": "admin"}
    spec = spec_for("opensearch", prefix="x", options=options, secrets={"password": "canary-7"})
    with pytest.raises(SinkError) as refused:
        open_sink(spec, ManualClock())
    assert f"127.0.0.1:{port}" in refused.value.message
    assert refused.value.exit is Exit.UNAVAILABLE
    assert "canary" not in f"{refused.value!r}{refused.value.hint}{spec}"


@pytest.fixture(params=[1, 2])
def generation(request: pytest.FixtureRequest, server: Server) -> int:
    """The one in use, as after a rebuild where it is the second."""
    number: int = request.param
    if number > 1:
        path = f"{server.url}/{server.prefix}-_watermark/_doc/floors"
        requests.put(path, json={"generation": number}, timeout=30).raise_for_status()
    return number


def filled(server: Server) -> tuple[OpenSink, Watermark]:
    """A sink that shows a row, and says so."""
    sink, mark = server.sink(), Watermark(epoch=1, lsn=8, offsets={ORDERS.topic: {0: 1}})
    sink.sink.apply(batch(Topic().upsert(ROW, at(1))), SHAPES)
    sink.commit(mark)
    assert sink.current()
    return sink, mark


def lead(server: Server, to: str, *, leave: str) -> None:
    """Lead the alias of ``public.orders`` to another index, in one request."""
    alias = f"{server.prefix}-public.orders"
    actions = [{"remove": {"index": leave, "alias": alias}}, {"add": {"index": to, "alias": alias}}]
    requests.post(f"{server.url}/_aliases", json={"actions": actions}, timeout=30).raise_for_status()


def test_h165_an_alias_led_to_another_index_is_filled_anew(server: Server, generation: int) -> None:
    """An older copy, or one that was reindexed: what came since would be missing, and readers see nothing newer."""
    sink, _ = filled(server)
    first, copy = f"{server.prefix}-public.orders-{generation}", f"{server.prefix}-copy"
    mapping = server.get(f"{first}/_mapping")[first]
    requests.put(f"{server.url}/{copy}", json=mapping, timeout=30).raise_for_status()
    follower = open_sink(
        spec_for("opensearch", prefix=server.prefix, options={"url": server.url}, parallel=True), ManualClock()
    )
    follower.sink.apply(batch(Topic().upsert(ROW, at(1))), SHAPES)
    lead(server, copy, leave=first)
    assert not sink.current()
    follower.sink.apply(batch(Topic().upsert({**ROW, "id": 2}, at(2))), SHAPES)
    follower.sink.show()
    assert server.search({"match_all": {}}) == ["2"], "a task that keeps the store open follows"
    sink.close()
    again = server.sink()
    assert again.places.read(ORDERS) is None, "nothing is known of the other index"
    again.sink.prepare(ORDERS)
    assert again.current()
    again.close()
    follower.close()


def test_h165_an_alias_that_was_removed_is_made_anew(server: Server, generation: int) -> None:
    sink, mark = filled(server)
    removed = f"{server.url}/{server.prefix}-public.orders-{generation}/_alias/{server.prefix}-public.orders"
    requests.delete(removed, timeout=30).raise_for_status()
    assert not sink.current()
    sink.close()
    again = server.sink()
    again.sink.prepare(ORDERS)
    assert again.current()
    assert again.watermarks.read() == mark, "all of it is in the index still"
    assert server.search({"match_all": {}}) == ["1"]
    again.close()


def test_h100_an_index_with_all_its_fields_holds_its_table_alone(server: Server) -> None:
    """Members of JSON documents are fields, too: when there are a thousand, ADD COLUMN finds no room."""
    document = column("doc", "jsonb")
    orders, others = shape(column("id", "int8", key=1), document), shape(column("id", "int8", key=1), table="others")
    sink, topic, beside = server.sink(json_mapping="object"), Topic(orders), Topic(others)
    both = Shapes(orders, others)
    members = orjson.dumps({f"m{number}": number for number in range(980)}).decode()
    more = orjson.dumps({f"n{number}": number for number in range(50)}).decode()
    rows = [{"id": 1, "doc": members}, {"id": 2, "doc": more}, {"id": 3, "doc": "{}"}]
    done = sink.sink.apply(batch(*(topic.upsert(row, at(1, n)) for n, row in enumerate(rows, 1))), both)
    assert (done.applied, done.refused) == (3, ()), "what finds no field is kept without being indexed"
    wider = shape(*orders.columns, *(column(f"c{number}", "text") for number in range(50)), version=2)
    with pytest.raises(CannotCarry, match=r"public\.orders: .*fields"):
        sink.sink.apply(batch(Topic(wider).upsert({"id": 4, "c1": "x"}, at(2))), Shapes(wider, others))
    assert sink.sink.apply(batch(beside.upsert({"id": 1}, at(2))), Shapes(wider, others)).applied == 1
    limit = {"index.mapping.total_fields.limit": 5000}
    requests.put(f"{server.url}/{server.prefix}-public.orders-1/_settings", json=limit, timeout=30).raise_for_status()
    again = server.sink(json_mapping="object")
    assert again.sink.apply(batch(Topic(wider).upsert({"id": 4, "c1": "x"}, at(2))), Shapes(wider, others)).applied == 1
    assert sorted(live(again, wider)) == ["1", "2", "3", "4"]
    for one in (sink, again):
        one.close()


def shard_away(server: Server, index: str) -> None:
    """Have the server take the index's shard away, and recover it a moment later: as after its start."""
    server.get(f"_cluster/health/{index}?wait_for_status=yellow&wait_for_no_initializing_shards=true&timeout=30s")
    [node] = server.get("_nodes")["nodes"]
    cancel = {"index": index, "shard": 0, "node": node, "allow_primary": True}
    body = {"commands": [{"cancel": cancel}]}
    requests.post(f"{server.url}/_cluster/reroute", json=body, timeout=30).raise_for_status()


def asked(read: Callable[[], T]) -> T | StoreAway:
    try:
        return read()
    except StoreAway as away:
        return away


def test_h263_a_watermark_that_is_not_available_is_not_absent(server: Server) -> None:
    """The server answers 200, and says within it that the document's shard is not there."""
    opened = server.sink(ManualClock())
    written = Watermark(epoch=1, lsn=7, offsets={"t": {0: 3}})
    opened.commit(written, lambda: None)
    for _ in range(5):
        shard_away(server, f"{server.prefix}-_watermark")
        found = asked(opened.watermarks.read)
        assert isinstance(found, StoreAway) or found == written
    opened.close()


@pytest.mark.slow
def test_h263_rows_that_are_not_available_are_not_absent(server: Server) -> None:
    opened, topic = server.sink(ManualClock()), Topic()
    opened.sink.apply(batch(topic.upsert(ROW, at(1))), SHAPES)
    opened.sink.show()

    def scanned() -> int:
        return sum(part.num_rows for part in opened.reader.scan(ORDERS))

    for _ in range(5):
        shard_away(server, f"{server.prefix}-public.orders-1")
        assert asked(lambda: opened.reader.get(ORDERS, "1")) is not None
        shard_away(server, f"{server.prefix}-public.orders-1")
        assert asked(scanned) != 0
    opened.close()


def test_h364_a_note_replaces_the_one_before_it(server: Server) -> None:
    """Of a sweep that is over nothing stays: it would take a floor down, once later marks make it whole."""
    name, before = 'floor:["public","orders"]', TableFloor(sweeps={"a": (4, frozenset({0, 1}))})
    with closing(SearchClient(server.url, None, None, None, SYSTEM_CLOCK)) as client:
        notes = SearchNotes(client, lambda: f"{server.prefix}-_watermark")
        for floor in (before, TableFloor(floor="b", sweeps={"c": (4, frozenset({2}))}), TableFloor(floor="c")):
            notes.write(name, floor.to_json())
            notes.write("another", b'{"x":1}')
            assert TableFloor.from_json(notes.read()[name]) == floor
