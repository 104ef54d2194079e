"""The conditions of each step of a handover, and its notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cdc.operate.handover_rules import (
    adopted,
    key_problems,
    key_questions,
    require_same_keys,
    shaping_options,
    usable,
)
from cdc.process.errors import ConfigError, SlotError
from cdc.record.progress import EpochsState
from cdc.record.schema import Identity
from cdc.record.state import Document, SlotState, SnapshotState, TopicsState
from tests.unit.cdc.operate.handover_world import PLAN, SERVER, SLOT, TOPIC
from tests.unit.cdc.operate.test_handover_keys import table

TOPICS = TopicsState(cluster_id="c", topics={}, tables={"public.t": TOPIC, "public.a": "shop.public.a"})
COMPLETE = SnapshotState(epoch=1, state="complete", consistent_point=5, last_cut_lsn=6, rows=7)
NOTED = SlotState(
    epoch=1, system_identifier="7", timeline=1, database="shop", database_oid=5, slot="cdc_shop",
    publication="cdc_shop", consistent_point=3,
)  # fmt: skip


def noted(*documents: Document) -> Mapping[bytes, bytes]:
    return {one.key(): one.to_json() for one in documents}


@pytest.mark.parametrize(
    ("problems", "words"), [(["one"], "one"), (["one", "two"], "one (and 1 more)"), (list("abc"), "a (and 2 more)")]
)
def test_the_first_of_the_keys_that_differ_is_named(problems: list[str], words: str) -> None:
    require_same_keys([])
    with pytest.raises(ConfigError) as refused:
        require_same_keys(problems)
    assert refused.value.message == f"the two would write other keys: {words}"


@pytest.mark.parametrize("slot", [None, replace(SLOT, confirmed_flush_lsn=None), replace(SLOT, wal_status="lost")])
def test_a_slot_that_was_given_up_is_of_no_use(slot: object) -> None:
    assert usable(SLOT, "cdc_shop") is SLOT
    with pytest.raises(SlotError, match="the slot cdc_shop is not there, or was given up by the server"):
        usable(slot, "cdc_shop")  # type: ignore[arg-type]


def test_a_native_pipeline_goes_on_as_if_it_had_begun_itself() -> None:
    """In the newest epoch, from the slot on, with a snapshot that Debezium has taken."""
    epochs = EpochsState().begin({}).begin({})
    slot, snapshot = adopted(PLAN, noted(TOPICS, epochs), SERVER, replace(SLOT, confirmed_flush_lsn=9))
    assert slot == replace(NOTED, epoch=3, consistent_point=9)
    assert snapshot == SnapshotState(
        epoch=3, state="complete", consistent_point=9, last_cut_lsn=9, tables=["public.a", "public.t"]
    )
    again, _ = adopted(PLAN, noted(TOPICS, NOTED), SERVER, replace(SLOT, confirmed_flush_lsn=9))
    assert again == NOTED, "it keeps the point at which it began"


@pytest.mark.parametrize(
    ("former", "kept"),
    [(COMPLETE, True), (replace(COMPLETE, state="running"), False), (replace(COMPLETE, epoch=2), False)],
)
def test_a_complete_snapshot_of_the_same_epoch_stays(former: SnapshotState, kept: bool) -> None:
    _, snapshot = adopted(PLAN, noted(TOPICS, former), SERVER, replace(SLOT, confirmed_flush_lsn=9))
    assert (snapshot == former) is kept
    assert (snapshot.state, snapshot.epoch, snapshot.last_cut_lsn) == ("complete", 1, 6 if kept else 9)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("numeric", "D4"), ("date", "D6"), ("timestamp", "D6"), ("timestamptz", "D6"), ("time", "D19"),
        ("timetz", "D19"),
    ],
)  # fmt: skip
def test_the_rows_decide_for_kinds_with_odd_values(kind: str, rule: str) -> None:
    shape = table(kind)
    assert key_problems([shape], {"public.t": ["k"]}) == []
    (question,) = key_questions([shape])
    assert question.sentence == f"public.t: the key k holds a value that is written otherwise ({rule})"
    array = replace(shape, columns=(replace(shape.columns[0], array=True),))
    assert key_questions([array]) == []


@pytest.mark.parametrize(("kind", "rule"), [("hstore", "D22"), ("point", "D2"), ("a kind of tomorrow", "D2")])
def test_a_kind_without_a_rule_counts_as_unknown(kind: str, rule: str) -> None:
    assert key_problems([table(kind)], {}) == [f"public.t: the key column k ({kind}) is written otherwise ({rule})"]


@pytest.mark.parametrize(("scale", "problems"), [(2, 0), (0, 0), (-1, 1)])
def test_only_a_negative_scale_is_written_otherwise(scale: int, problems: int) -> None:
    shape = table("numeric")
    column = replace(shape.columns[0], typmod=(4 << 16 | (scale & 0x7FF)) + 4)
    assert len(key_problems([replace(shape, columns=(column,))], {})) == problems


def test_a_table_of_another_key_is_one_problem() -> None:
    """Its columns are not asked: the key is another one anyway. Without an index nobody looks at the primary key."""
    (problem,) = key_problems([table("float8", identity=Identity.INDEX)], {"public.t": ["id"]})
    assert problem == "public.t: its key is the identity index's here and the primary key's there (D9)"
    assert key_problems([table("int4", identity=Identity.FULL)], {"public.t": ["id"]}) == []


@pytest.mark.parametrize(
    "option",
    [
        "transforms", "transforms.unwrap.type", "predicates", "key.converter", "key.converter.schemas.enable",
        "message.key.columns", "producer.override.partitioner.class", "topic.prefix", "slot.name",
        "publication.name", "plugin.name", "field.name.adjustment.mode", "schema.name.adjustment.mode",
        "decimal.handling.mode", "time.precision.mode", "interval.handling.mode", "binary.handling.mode",
        "money.fraction.digits", "column.exclude.list", "column.mask.hash.SHA-256.with.salt.x",
        "datatype.mask.hash",
    ],
)  # fmt: skip
def test_an_option_that_shapes_keys_topics_or_the_slot_is_found(option: str) -> None:
    """Options of Debezium's manual, and of Kafka Connect's."""
    assert shaping_options([option]) == [option]


@pytest.mark.parametrize(
    "option",
    [
        "topic.creation.default.partitions", "column.propagate.source.type", "datatype.propagate.source.type",
        "poll.interval.ms", "snapshot.mode", "value.converter", "heartbeat.interval.ms", "max.batch.size",
    ],
)  # fmt: skip
def test_an_option_that_shapes_nothing_is_the_users_own(option: str) -> None:
    assert shaping_options([option]) == []
