"""The user's own mapping of a table's index, on a real OpenSearch."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from cdc.process.errors import ConfigError, Exit
from cdc.record.progress import Watermark
from sinks.contract.kinds import beside, open_generations, parse_settings, spec_for
from sinks.contract.port import CannotCarry, OpenSink
from sinks.contract.sink_spec import open_sink
from tests.contract.stores import live
from tests.contract.topics import Shapes, Topic, at, batch, column, shape
from tests.integration.sinks.test_search import Server
from tests.single_rows import canonical_row, plain_row

SHOPS = shape(
    column("id", "int8", key=1),
    column("lat", "numeric"),
    column("lon", "float8"),
    column("p", "point"),
    column("note", "text"),
    column("lines", "jsonb"),
    column("v", "vector"),
    table="shops",
)
SHAPES = Shapes(SHOPS)
ROW: dict[str, Any] = {
    "id": 1,
    "lat": "52.52",
    "lon": 13.4,
    "p": {"x": 2.35, "y": 48.85, "wkb": "", "srid": None},
    "note": "Die Häuser",
    "lines": '[{"sku": "a", "n": 1}, {"sku": "b", "n": 2}]',
    "v": [1.0, 2.0, 3.0],
}
MAPPING: dict[str, Any] = {
    "properties": {
        "place": {"type": "geo_point", "columns": ["lat", "lon"]},
        "spot": {"type": "geo_point", "columns": ["p"]},
        "note": {"analyzer": "plain"},
        "lines": {"type": "nested", "properties": {"sku": {"type": "keyword"}, "n": {"type": "long"}}},
    },
    "settings": {
        "number_of_shards": 2,
        "analysis": {"analyzer": {"plain": {"type": "standard", "stopwords": ["die"]}}},
    },
}


@pytest.fixture
def server(opensearch: str, index_prefix: str) -> Server:
    return Server(opensearch, index_prefix)


def options(server: Server, mapping: dict[str, Any], table: str = "public.shops", **more: Any) -> dict[str, Any]:
    """A sink's options as its section of a settings file makes them."""
    section = {"kind": "opensearch", "url": server.url, "mappings": {table: mapping}, **more}
    settings = parse_settings(
        {
            "name": "shop",
            "source": {"dsn": "host=x", "tables": ["public.*"]},
            "log": {"bootstrap_servers": "h:1"},
            "sinks": {"search": section},
        }
    )
    return settings.sinks["search"].options()


def opened(server: Server, mapping: dict[str, Any], **more: Any) -> OpenSink:
    return server.sink(**{k: v for k, v in options(server, mapping, **more).items() if k != "url"})


def distance(field: str, lat: float, lon: float) -> dict[str, Any]:
    return {"geo_distance": {"distance": "1km", field: {"lat": lat, "lon": lon}}}


def test_a_mapping_of_the_users_is_laid_over_ours(server: Server) -> None:
    sink, topic = opened(server, MAPPING), Topic(SHOPS)
    lost = {**ROW, "id": 2, "lat": "NaN", "lon": None, "p": {**ROW["p"], "x": "Infinity"}}
    done = sink.sink.apply(batch(topic.upsert(ROW, at(1)), topic.upsert(lost, at(2))), SHAPES)
    assert (done.applied, done.refused) == (2, ())
    sink.sink.show()
    assert server.search(distance("place", 52.521, 13.401), "public.shops") == ["1"]
    assert server.search(distance("spot", 48.851, 2.351), "public.shops") == ["1"]
    assert server.search({"match": {"note": "häuser"}}, "public.shops") == ["1", "2"]
    assert server.search({"match": {"note": "die"}}, "public.shops") == []
    assert server.search({"term": {"note.keyword": "Die Häuser"}}, "public.shops") == ["1", "2"]
    both = [{"term": {"lines.sku": "a"}}, {"term": {"lines.n": 2}}]
    assert server.search({"nested": {"path": "lines", "query": {"bool": {"must": both}}}}, "public.shops") == []
    settings = server.get(f"{server.prefix}-public.shops-1/_settings")[f"{server.prefix}-public.shops-1"]["settings"]
    assert settings["index"]["number_of_shards"] == "2"
    for key, row in (("1", ROW), ("2", lost)):
        assert live(sink, SHOPS)[key] == canonical_row(orjson.dumps(plain_row(row, SHOPS)), SHOPS)
    again = opened(server, MAPPING)
    wider = shape(*SHOPS.columns, column("more", "int4"), table="shops", version=2)
    newer = Topic(wider).upsert({**ROW, "id": 3, "more": 7}, at(3))
    assert again.sink.apply(batch(newer), Shapes(SHOPS, wider)).applied == 1
    assert opened(server, MAPPING).sink.apply(batch(newer), Shapes(SHOPS, wider)).refused == ()


def test_a_mapping_that_changed_asks_for_a_rebuild(server: Server) -> None:
    row = Topic(SHOPS).upsert(ROW, at(1))
    server.sink().sink.apply(batch(row), SHAPES)
    with pytest.raises(CannotCarry, match=r"public\.shops: the mapping that the settings give it") as held:
        opened(server, MAPPING).sink.apply(batch(row), SHAPES)
    assert "cdc rebuild" in held.value.hint
    spec = spec_for("opensearch", prefix=server.prefix, options=options(server, MAPPING))
    second = open_sink(beside(spec, 2))
    second.sink.apply(batch(row), SHAPES)
    second.commit(Watermark(epoch=1, lsn=1, offsets={}))
    open_generations(spec).switch(2, [SHOPS])
    assert open_sink(spec).sink.apply(batch(Topic(SHOPS).upsert(ROW, at(2))), SHAPES).applied == 1
    with pytest.raises(CannotCarry, match="is not the one"):
        server.sink().sink.apply(batch(row), SHAPES)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"nothing": {"type": "keyword"}}, "nothing is no column of it"),
        ({"place": {"type": "geo_point", "columns": ["lat", "lng"]}}, "place is made of lng, which is no column"),
        ({"place": {"type": "geo_point", "columns": ["lat"]}}, "place is made of lat alone, which is of type numeric"),
        ({"p": {"type": "geo_point", "columns": ["p"]}}, "p is a column, and cannot be made of others"),
        ({"note": {"type": "keyvord"}}, r"No handler for type \[keyvord\]"),
        ({"note": {"type": "text", "analyzer": "mine"}}, r"analyzer \[mine\]"),
        ({"v": {"type": "knn_vector", "dimension": 3}}, r"knn_vector|unknown setting \[index.knn\]"),
    ],
)
def test_a_mapping_that_fits_no_index_is_one_sentence(server: Server, properties: dict[str, Any], said: str) -> None:
    sink = opened(server, {"properties": properties})
    with pytest.raises(CannotCarry, match=said) as held:
        sink.sink.apply(batch(Topic(SHOPS).upsert(ROW, at(1))), SHAPES)
    assert (held.value.exit, held.value.table) == (Exit.CONFIG, SHOPS.table)
    assert held.value.hint
    assert "knn" not in said or "k-NN plugin" in held.value.hint
    assert "\n" not in str(held.value)
    assert server.get(f"{server.prefix}-public.shops-1").get("status") == 404
    mended = opened(server, {"properties": {"note": {"type": "keyword"}}})
    assert mended.sink.apply(batch(Topic(SHOPS).upsert(ROW, at(1))), SHAPES).applied == 1


def test_the_watermarks_index_has_the_replicas_set(server: Server) -> None:
    index = f"{server.prefix}-_watermark"

    def replicas() -> str:
        return str(server.get(f"{index}/_settings")[index]["settings"]["index"]["number_of_replicas"])

    server.sink().commit(Watermark(epoch=1, lsn=1, offsets={}))
    assert replicas() == "0"
    server.sink(replicas=1).commit(Watermark(epoch=1, lsn=2, offsets={}))
    assert replicas() == "1"
    server.sink(replicas=2).commit(Watermark(epoch=1, lsn=3, offsets={}))
    assert replicas() == "1", "a number that somebody chose stays"


BAD: list[tuple[dict[str, Any], str]] = [
    ({"mappings": {"shops": {}}}, "shops is no table"),
    ({"mappings": {"public.shops": {"property": {}}}}, "property"),
    ({"mappings": {"public.shops": {"properties": {"note": {}}}}}, "note says nothing"),
    ({"mappings": {"public.shops": {"properties": {"note": "text"}}}}, "note says nothing"),
    ({"mappings": {"public.shops": {"properties": {"note": {"type": 7}}}}}, "note.type is no text"),
    ({"mappings": {"public.shops": {"properties": {"p": {"type": "geo_point"}}}}}, "geo_point without columns"),
    ({"mappings": {"public.shops": {"properties": {"x": {"type": "text", "columns": ["p"]}}}}}, "only a geo_point is"),
    ({"mappings": {"public.shops": {"properties": {"x": {"type": "geo_point", "columns": []}}}}}, "no list of one"),
    ({"mappings": {"public.shops": {"properties": {"_x": {"type": "geo_point", "columns": ["p"]}}}}}, "begins with _"),
    ({"mappings": {"public.shops": {"properties": {"v": {"type": "knn_vector"}}}}}, "without a dimension"),
    ({"mappings": {"public.shops": {"settings": {"refresh_interval": "1s"}}}}, "refresh_interval is the sink's own"),
    ({"mappings": {"public.shops": {"settings": {"index.blocks.write": True}}}}, "blocks.write is the sink's own"),
    (
        {"json_mapping": "text", "mappings": {"public.shops": {"properties": {"j": {"type": "nested"}}}}},
        'json_mapping = "text" makes text',
    ),
]


@pytest.mark.parametrize(("section", "said"), BAD)
def test_a_bad_mapping_in_the_settings_is_one_sentence(section: dict[str, Any], said: str) -> None:
    whole = {"kind": "opensearch", "url": "http://127.0.0.1:9200", **section}
    with pytest.raises(ConfigError, match=r"sinks\.search") as refused:
        parse_settings(
            {
                "name": "shop",
                "source": {"dsn": "host=x", "tables": ["public.*"]},
                "log": {"bootstrap_servers": "h:1"},
                "sinks": {"search": whole},
            }
        )
    assert said in f"{refused.value} {refused.value.hint}"
    assert refused.value.exit is Exit.CONFIG
