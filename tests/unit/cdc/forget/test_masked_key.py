"""Masked keys of ``cdc forget``: the value is looked for under its HMAC, and is shown nowhere."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from cdc.errors import CdcError, ConfigError, UsageError
from cdc.forget.key_history import SeenRecord
from cdc.forget.masked_key import AskedKey, asked_key
from cdc.forget.typed_key import TypedKey
from cdc.mask_rules import NO_MASKS, MaskKey, MaskRule, Masks
from cdc.schema import Mask, TableSchema
from tests.unit.cdc.forget.world import World, record, states
from tests.unit.connectors.postgres import written as w

KEY = MaskKey("a key of masks that is long enough for the tests")
MASKS = Masks({"public.t": {"k": MaskRule("hmac")}}, KEY)
RULE = f"hmac:{KEY.fingerprint}"
WORD = "plainvalue"


def mac(text: str) -> str:
    return KEY.masked(text.encode()).decode()


def shape(kind: str = "text", *, rule: str = RULE, version: int = 1) -> TableSchema:
    plain = w.table(w.column("k", kind, 0), w.column("n", "int4"), name="t")
    if not rule:
        return replace(plain, version=version)
    key, *rest = plain.columns
    mask = Mask(rule=rule, type=kind, type_oid=key.type_oid, kind=kind)
    masked = replace(key, mask=mask, type="text", type_oid=25, kind="text", typmod=-1)
    return replace(plain, columns=(masked, *rest), version=version)


@pytest.mark.parametrize(
    ("kind", "typed", "printed"),
    [
        ("text", WORD, WORD),
        ("text", "50%25", "50%"),
        ("varchar", "a:b", "a:b"),
        ("int8", "007", "7"),
        ("int8", '{"k": 42}', "42"),
        ("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("bool", "true", "t"),
        ("date", "2016-11-04", "2016-11-04"),
        ("date", "2016-11-04Z", "2016-11-04"),
    ],
)
def test_h335_a_value_is_looked_for_by_its_hmac(kind: str, typed: str, printed: str) -> None:
    asked = asked_key(typed, shape(kind), MASKS)
    assert asked.key.text == asked.key.typed == mac(printed)
    assert asked.key.masks == (RULE,)
    assert [form.masks for form in asked.also] == [()], "its plain form, from before the mask"
    assert mac(printed) in asked.note
    assert [form.typed for form in asked.also] == [""]


def test_h335_a_key_as_the_stores_have_it_is_taken() -> None:
    """It may be a value of 64 hex digits, too."""
    asked = asked_key(mac(WORD), shape(), MASKS)
    assert [asked.key.text, *(form.text for form in asked.also)] == [mac(WORD), mac(mac(WORD))]
    assert asked_key(mac(WORD), shape("uuid"), MASKS) == AskedKey(asked.key)
    assert asked_key(mac(WORD), shape(), NO_MASKS) == AskedKey(asked.key), "without the key of masks"
    assert asked_key("a", shape(rule=""), MASKS).key.text == "a"


@pytest.mark.parametrize("kind", ["numeric", "citext", "bpchar", "timestamptz", "bytea"])
def test_h335_a_value_of_several_texts_is_refused(kind: str) -> None:
    with pytest.raises(UsageError, match="is not known how Postgres prints a value"):
        asked_key({"timestamptz": "2016-11-04T00:00:00Z", "bytea": "YQ=="}.get(kind, "1"), shape(kind), MASKS)
    assert asked_key(mac("1"), shape(kind), MASKS).key.text == mac("1")


def test_h335_without_the_key_of_masks_a_value_is_refused() -> None:
    other = replace(MASKS, key=MaskKey("another key of masks, long enough for the tests"))
    for masks in (NO_MASKS, other):
        with pytest.raises(ConfigError, match="have not the key of masks") as refused:
            asked_key(WORD, shape(), masks)
        assert WORD not in str(refused.value)


def test_h335_a_row_under_its_hmac_is_found_by_its_value(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    masked = shape()
    stands = record(orjson.dumps({"k": mac(WORD)}).decode(), b'{"before":null,"after":{}}')
    world = World(topics={masked.topic: [stands]}, stores={"cache": []})
    report = world.forget(WORD, shapes=[masked], masks=MASKS).look()
    assert states(report)["log"] == "holds" and report.seen
    assert world.asked_keys[:1] == [[mac(WORD)]]
    assert [WORD] in world.asked_keys, "from before the mask"
    (logged,) = [one.__dict__ for one in caplog.records if one.getMessage() == "forget_looked"]
    assert logged["key_digest"] == TypedKey.read(mac(WORD), masked).digest("public.t"), "who guesses it cannot tell"
    assert WORD not in str(logged)
    assert WORD not in orjson.dumps(report.document()).decode()


def test_h335_the_source_is_asked_for_each_form() -> None:
    masked = shape()
    for there, typed in ((mac(WORD), WORD), (mac(mac(WORD)), mac(WORD))):
        world = World(topics={masked.topic: []}, rows={there})
        with pytest.raises(UsageError, match="still has that row"):
            world.forget(typed, shapes=[masked], masks=MASKS).look()


def test_h335_a_plain_key_in_a_store_is_found_and_not_named() -> None:
    masked = shape()
    world = World(topics={masked.topic: []}, stores={"cache": []}, held={WORD})
    report = world.forget(WORD, shapes=[masked], masks=MASKS).look()
    assert states(report)["cache, the plain key"] == "holds"
    assert WORD not in orjson.dumps(report.document()).decode()


@pytest.mark.parametrize("typed", [WORD, mac(WORD)])
def test_h335_former_names_from_before_the_mask_are_no_absence(typed: str) -> None:
    """By its value a row is found there. By its HMAC it is not known which one it was."""
    masked, was = shape(), replace(shape(rule=""), table=w.table(name="was").table, topic="shop.was")
    stands = record(orjson.dumps({"k": WORD}).decode(), b'{"before":null,"after":{}}')
    other = record('{"k":"another"}', b'{"before":null,"after":{}}')
    topics: dict[str, list[SeenRecord] | CdcError] = {masked.topic: [], was.topic: [stands, other]}
    world = World(topics=topics, stores={"cache": []})
    found = states(world.forget(typed, shapes=[masked], renamed=[[was]], masks=MASKS).look())
    name = f"{was.table}"
    if typed == WORD:
        assert found[f"log, {name}, the plain key"] == "holds"
        assert found[f"log, {name}"] == found[f"cache, {name}"] == "gone", "the other form is no trace of it"
    else:
        assert found[f"log, {name}"] == found[f"cache, {name}"] == "may hold"
