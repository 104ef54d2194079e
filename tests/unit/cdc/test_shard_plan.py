"""Which table belongs to which shard, and what a shard has for itself."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import ConfigError, UsageError
from cdc.settings import Settings, parse
from cdc.shard_plan import (
    each_shard,
    of_shard,
    progress_topic_of,
    require_one_shard,
    require_without_shards,
    shard_meant,
    shards_of,
    state_topic_of,
    writer_of,
)
from cdc.topic import TableName
from connectors.postgres.problems import of_another_shard
from connectors.postgres.selection import takes

SHARDS = {"sales": ["public.orders", "shop.*"], "rest": ["public.*"]}


def settings(shards: dict[str, list[str]], tables: list[str] | None = None, **more: Any) -> Settings:
    entries = [entry for one in shards.values() for entry in one] if tables is None else tables
    source = {"dsn": "host=db", "tables": entries or ["public.*"], **more.pop("source", {})}
    capture = {"shards": shards} if shards else {}
    log = {"bootstrap_servers": "k:9092"}
    document = {
        "name": "shop",
        "source": source,
        "log": log,
        "capture": capture,
        "tables": more.pop("masks", {}),
        **more,
    }
    return parse(document)


def test_a_shard_has_its_own_slot_publication_topics_and_lock() -> None:
    one = of_shard(settings(SHARDS), "sales")
    assert (one.slot, one.publication) == ("cdc_shop__sales", "cdc_shop__sales")
    assert (state_topic_of(one), progress_topic_of(one)) == ("shop.state-sales", "shop.progress-sales")
    assert (writer_of(one), one.name) == ("shop/sales", "shop")
    named = settings(SHARDS, source={"slot": "mine", "publication": "Ours"})
    assert (of_shard(named, "rest").slot, of_shard(named, "rest").publication) == ("mine__rest", "Ours__rest")


def test_a_pipeline_without_shards_has_the_names_it_had() -> None:
    whole = settings({})
    assert (state_topic_of(whole), progress_topic_of(whole), writer_of(whole)) == (
        "shop.state",
        "shop.progress",
        "shop",
    )
    assert (whole.shard, shards_of(whole), each_shard(whole)) == ("", (), (whole,))
    require_one_shard(whole, "cdc run")
    require_without_shards(whole, "cdc up")


def test_each_shard_has_a_port_of_its_own_for_its_figures() -> None:
    ports = [one.capture.http_address for one in each_shard(settings(SHARDS))]
    assert ports == ["127.0.0.1:9464", "127.0.0.1:9466"], "the sinks have 9465 by default"


def test_a_shard_survives_the_way_to_a_worker_process() -> None:
    one = of_shard(settings(SHARDS), "sales")
    assert pickle.loads(pickle.dumps(one)).shard == "sales"


def test_h401_a_partition_of_another_shards_tree_is_refused() -> None:
    tree, part = TableName("public", "orders"), TableName("public", "orders_2026")
    sales, rest = each_shard(settings(SHARDS))
    (problem,) = of_another_shard(rest, part, [tree])
    assert "which the shard sales takes" in problem.message
    assert problem.hint == 'add "public.orders_2026" to [source] exclude'
    assert of_another_shard(sales, part, [tree]) == of_another_shard(rest, part, []) == []
    assert of_another_shard(settings({}), part, [tree]) == []


def test_h343_masks_are_refused_beside_shards() -> None:
    with pytest.raises(ConfigError, match="cannot be masked over"):
        settings(SHARDS, masks={"public.orders": {"columns": {"c": "drop"}}})


def test_h401_a_table_belongs_to_the_first_shard_that_takes_it() -> None:
    whole = settings(SHARDS, source={"exclude": ["public.audit"]})
    found = {table: shard_meant(whole, table) for table in ("public.orders", "public.x", "shop.x", "other.x")}
    assert found == {"public.orders": "sales", "public.x": "rest", "shop.x": "sales", "other.x": None}
    assert {shard_meant(one, "public.orders") for one in each_shard(whole)} == {"sales"}
    assert shard_meant(whole, "public.audit") == "rest", "one that is left out has the shard that it had"
    quoted = settings({"a": ['"my.schema"."t""x"'], "b": ["my*.*"]})
    assert shard_meant(quoted, 'my.schema.t"x') == "a"


_NAMES = st.sampled_from(["public.a", "public.b", "public.ab", "other.a", "other.b"])
_ENTRIES = st.one_of(_NAMES, st.sampled_from(["public.*", "*.a", "other.*", "p*.b"]))


@given(st.lists(st.lists(_ENTRIES, min_size=1, max_size=3), min_size=1, max_size=4), st.lists(_ENTRIES, max_size=1))
def test_h401_the_shards_together_take_each_table_once(groups: list[list[str]], exclude: list[str]) -> None:
    """As Postgres' side selects them, by each shard's own settings."""
    seen: set[str] = set()
    shards: dict[str, list[str]] = {}
    for number, entries in enumerate(groups):
        new = [entry for entry in dict.fromkeys(entries) if entry not in seen]
        seen.update(new)
        if new:
            shards[f"s{number}"] = new
    try:
        whole = settings(shards, source={"exclude": exclude})
    except ConfigError as refused:
        assert "is taken by" in refused.message
        return
    for table in ("public.a", "public.b", "public.ab", "other.a", "other.b", "third.c"):
        own = [one.shard for one in each_shard(whole) if takes(table, one.source.tables, one.source.exclude)]
        meant = takes(table, whole.source.tables, whole.source.exclude)
        assert len(own) == meant
        assert not own or shard_meant(whole, table) == own[0]


@pytest.mark.parametrize(
    ("shards", "tables", "words"),
    [
        ({"a": ["public.t"]}, ["public.t", "public.u"], '"public.u" is in no shard'),
        ({"a": ["public.t"], "b": ["public.t"]}, ["public.t"], '"public.t" stands in a and b'),
        ({"a": ["public.t", "public.t"]}, ["public.t"], '"public.t" stands in a twice'),
        ({"a": ["public.x"]}, ["public.t"], 'a: "public.x" is no entry of [source] tables'),
        ({"a": []}, ["public.t"], "a has no tables"),
        ({"A-1": ["public.t"]}, ["public.t"], "a shard's name begins with a lower-case letter"),
        ({"a": ["public.*"], "b": ["public.t"]}, ["public.*", "public.t"], '"public.t" is taken by "public.*"'),
    ],
)
def test_h401_shards_that_are_not_clear_are_refused(
    shards: dict[str, list[str]], tables: list[str], words: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(shards, tables)
    assert words in refused.value.message
    assert refused.value.exit == 78
    assert refused.value.hint


def test_combinations_that_cannot_be_had_are_refused() -> None:
    sections: list[tuple[dict[str, Any], str]] = [
        ({"source": {"kind": "debezium"}}, "Debezium captures here"),
        ({"views": {"v": {"sql": "v.sql"}}}, "a view cannot be had over [capture.shards] yet"),
        ({"source": {"slot": "s" * 60}}, "has more than 63 bytes"),
        ({"source": {"topics": {"public.orders": "shop.state-sales"}}}, "which is a shard's own"),
    ]
    for more, words in sections:
        with pytest.raises(ConfigError) as refused:
            settings(SHARDS, **more)
        assert words in refused.value.message


def test_commands_of_one_capture_ask_for_a_shard() -> None:
    whole = settings(SHARDS)
    with pytest.raises(ConfigError, match="has several: sales, rest"):
        require_one_shard(whole, "cdc run")
    require_one_shard(of_shard(whole, "rest"), "cdc run")
    with pytest.raises(ConfigError, match="cdc up does not work for a pipeline with"):
        require_without_shards(whole, "cdc up")
    with pytest.raises(UsageError, match="has no shard other"):
        of_shard(whole, "other")
    with pytest.raises(UsageError) as none:
        of_shard(settings({}), "sales")
    assert none.value.hint == "[capture.shards] names none"
