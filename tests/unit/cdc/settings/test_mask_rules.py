"""What each mask does to a value, and what is refused."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.capture.table_masks import MaskState, masks_of, rules_of
from cdc.process.errors import ConfigError
from cdc.record.topic_names import TableName
from cdc.settings.mask_rules import NO_MASKS, MaskKey, MaskRule, Masks, truncated
from cdc.settings.model import parse
from cdc.views.syntax import ViewRefused
from cdc.views.view_plan import planned
from tests.unit.connectors.postgres import written as w

KEY = "0123456789abcdef0123456789abcdef"
MASKS = Masks({"public.orders": {"note": MaskRule.parse("truncate:3"), "ssn": MaskRule.parse("drop")}})
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(st.integers(1, 999_999_999))
def test_a_rule_is_read_back_from_its_text(characters: int) -> None:
    for text in ("hmac", "drop", f"truncate:{characters}"):
        assert str(MaskRule.parse(text)) == text


@pytest.mark.parametrize("text", ["", "HMAC", "hash", "truncate", "truncate:0", "truncate:-1", "truncate:1e3", "drop "])
def test_any_other_text_is_no_mask(text: str) -> None:
    with pytest.raises(ValueError, match="is no mask"):
        MaskRule.parse(text)


@given(TEXT, st.integers(1, 40))
def test_truncate_counts_characters_not_bytes(text: str, characters: int) -> None:
    assert truncated(text.encode(), characters).decode() == text[:characters]


def test_debezium_captures_nothing_under_masks() -> None:
    source = {"dsn": "host=h user=cdc dbname=app", "tables": ["public.a"], "kind": "debezium"}
    document = {"name": "shop", "source": source, "log": {"bootstrap_servers": "127.0.0.1:9092"}, "debezium": {}}
    with pytest.raises(ConfigError, match="which the native capture alone does"):
        parse({**document, "tables": {"public.a": {"columns": {"v": "drop"}}}})
    parse({**document, "tables": {"public.a": {}}})


def test_h294_a_shape_has_the_masks_of_the_settings_noted() -> None:
    columns = (("id", 0), ("note", None), ("ssn", None))
    shape = w.table(*(w.column(name, "varchar", key) for name, key in columns), name="orders")
    found = MASKS.marked(shape)
    assert found.noted_masks == {"note": "truncate:3", "ssn": "drop"}
    assert [(one.name, one.kind) for one in found.columns] == [("id", "varchar"), ("note", "varchar")]
    assert NO_MASKS.marked(shape) == shape
    with pytest.raises(ViewRefused, match="note is masked"):
        planned("select id, length(note) as n from orders", [found], collation="C")
    planned("select id, note from orders", [found], collation="C")


@given(TEXT)
def test_hmac_is_hmac_sha256_of_the_text(text: str) -> None:
    expected = hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()
    assert MaskKey(KEY).masked(text.encode()).decode() == expected


def test_another_key_gives_other_values_and_fingerprint() -> None:
    one, other = MaskKey(KEY), MaskKey(KEY[::-1])
    assert one.masked(b"a") != other.masked(b"a")
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == MaskKey(KEY).fingerprint


def test_a_key_is_never_shown() -> None:
    masks = Masks({"a.b": {"c": MaskRule.parse("hmac")}}, MaskKey(KEY))
    for shown in (repr(masks), str(masks), str(MaskKey(KEY)), masks.noted_of("a.b")["c"]):
        assert KEY not in shown


@pytest.mark.parametrize("key", ["", "short", "ł" * 15])
def test_a_short_key_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="less than 32 bytes") as refused:
        MaskKey(key)
    assert key not in refused.value.message or not key


def test_a_mask_of_another_key_is_not_applied() -> None:
    noted = Masks(key=MaskKey(KEY)).noted(MaskRule.parse("hmac"))
    with pytest.raises(ConfigError, match="another"):
        Masks(key=MaskKey(KEY[::-1])).function(noted)
    with pytest.raises(ConfigError, match="need a key"):
        NO_MASKS.function(noted)


def test_a_dropped_column_has_no_value() -> None:
    with pytest.raises(ConfigError, match="leaves no value"):
        MASKS.function("drop")


def test_a_shape_without_the_masks_of_now_is_refused() -> None:
    shape = w.table(w.column("id", "int4", 0), w.column("note", "text"))
    NO_MASKS.require(shape)
    MASKS.require(replace(shape, table=name_of("others")))
    with pytest.raises(ConfigError, match="noted: note"):
        MASKS.require(shape)


def name_of(name: str) -> TableName:
    return w.table(name=name).table


def document(**changes: object) -> dict[str, object]:
    found: dict[str, object] = {
        "name": "shop",
        "source": {"dsn": "postgresql://cdc@db/shop", "tables": ["public.*"], "mask_key": "env:CDC_TEST_MASK_KEY"},
        "log": {"bootstrap_servers": "127.0.0.1:9092"},
        "tables": {"public.customers": {"columns": {"email": "hmac", "ssn": "drop", "note": "truncate:20"}}},
    }
    return found | changes


def test_the_settings_masks_and_their_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_TEST_MASK_KEY", KEY)
    masks = masks_of(parse(document()))
    fingerprint = MaskKey(KEY).fingerprint
    assert masks.noted_of("public.customers") == {
        "email": f"hmac:{fingerprint}",
        "note": "truncate:20",
        "ssn": "drop",
    }
    assert not masks.of("public.other")


def test_a_mask_without_hmac_needs_no_key() -> None:
    source = {"dsn": "postgresql://cdc@db/shop", "tables": ["public.*"]}
    masks = masks_of(parse(document(source=source, tables={"public.a": {"columns": {"b": "drop"}}})))
    assert masks.key is None


def test_h338_a_quoted_name_has_its_masks() -> None:
    source = {"dsn": "postgresql://cdc@db/shop", "tables": ['"my.schema"."a""b"', '"public"."*"']}
    tables = {name: {"columns": {"b": "drop"}} for name in source["tables"]}
    rules = rules_of(parse(document(source=source, tables=tables)))
    for table in (TableName("my.schema", 'a"b'), TableName("public", "*")):
        assert rules.of(table) == {"b": MaskRule("drop")}, table


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"tables": {name: {"columns": {"b": "drop"}} for name in ("public.a", '"public"."a"')}},
            "public.a has two sections",
        ),
        ({"tables": {"public.a": {"columns": {"b": "scramble"}}}}, "is no mask"),
        ({"tables": {"a": {"columns": {"b": "drop"}}}}, "lacks its schema"),
        ({"tables": {"public.*": {"columns": {"b": "drop"}}}}, "is a pattern"),
        ({"tables": {"public.a": {"column": {"b": "drop"}}}}, "unknown setting"),
        ({"source": {"dsn": "postgresql://cdc@db/shop", "tables": ["public.*"]}}, "needs a key"),
        (
            {"source": {"dsn": "postgresql://cdc@db/shop", "tables": ["public.*"], "mask_key": KEY}},
            'written as "env:NAME"',
        ),
    ],
)
def test_settings_of_masks_that_are_refused(changes: dict[str, object], match: str) -> None:
    with pytest.raises(ConfigError, match=match) as refused:
        parse(document(**changes))
    assert KEY not in str(refused.value) + refused.value.message


def test_the_note_of_masks_is_read_back() -> None:
    noted = MaskState(tables={"public.a": {"b": "drop"}})
    assert MaskState.from_json(noted.to_json()) == noted


def test_the_key_is_read_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading beside the stream would mask by another key than the stream does."""
    source = {"dsn": "postgresql://cdc@db/shop", "tables": ["public.*"], "mask_key": "env:CDC_TEST_ROTATED_KEY"}
    monkeypatch.setenv("CDC_TEST_ROTATED_KEY", KEY)
    before = masks_of(parse(document(source=source))).noted_of("public.customers")
    monkeypatch.setenv("CDC_TEST_ROTATED_KEY", KEY[::-1])
    assert masks_of(parse(document(source=source))).noted_of("public.customers") == before
