"""Members of JSON are what Postgres cuts out of it, and what it does not read is parked."""

from __future__ import annotations

import pytest

from cdc.views.json_values import equal_form, jsonb_text, member_json, member_text, path_json, path_text
from cdc.views.syntax import NotComputable
from tests.hostile_documents import BINARY, DEEP

WRITTEN = '{"a": {"k": 1,  "k":[2 , "\\u00e4\\/"]}, "b" : [1 ,{ }, "x\\"]"] }'


def test_h451_a_member_of_json_stays_as_it_was_written() -> None:
    """Its blanks, its escapes and members that come twice: ``->>`` of an object is their text."""
    cut = '{"k": 1,  "k":[2 , "\\u00e4\\/"]}'
    assert [found(WRITTEN, "a", False) for found in (member_json, member_text)] == [cut, cut]
    assert [found(WRITTEN, ["b"], False) for found in (path_json, path_text)] == ['[1 ,{ }, "x\\"]"]'] * 2
    assert member_json(cut, "k", False) == '[2 , "\\u00e4\\/"]'
    assert path_text(WRITTEN, ["a", "k", "-1"], False) == "ä/"
    assert member_text('{"a": null}', "a", False) is None


@pytest.mark.parametrize("escape", ["\\u0000", "\\ud800", "\\udc00", "\\ud800x", "\\ud83d\\ud83d", "\\ude00\\ud83d"])
def test_h451_what_postgres_does_not_read_is_parked(escape: str) -> None:
    """``json`` keeps such a text. As text of a document it has no bytes, and ended the runner of all views."""
    text = f'{{"a": 1, "b": ["{escape}"]}}'
    for read in (member_json, member_text):
        with pytest.raises(NotComputable):
            read(text, "a", False)
    with pytest.raises(NotComputable):
        path_text(text, ["b", "0"], False)
    with pytest.raises(NotComputable):
        jsonb_text(text)
    assert member_text('{"a": "\\\\ud800 \\ud83d\\ude00"}', "a", False) == "\\ud800 😀"


@pytest.mark.parametrize("name", BINARY)
def test_y3_a_document_of_any_depth_is_a_value(name: str) -> None:
    once = jsonb_text(BINARY[name])
    assert jsonb_text(once) == once
    assert equal_form(once) == equal_form(BINARY[name])
    around = f'{{"a": [{BINARY[name]}, 1]}}'
    assert path_json(around, ["a", "0"], False) == BINARY[name].strip()
    assert path_text(around, ["a", "1"], False) == "1"


def test_y3_deep_documents_that_differ_at_the_bottom_differ() -> None:
    one = DEEP["arrays 300 deep"]
    assert equal_form(one) == equal_form(one.replace("1.10", "1.1"))
    assert equal_form(one) != equal_form(one.replace("1.10", '"1.10"'))
    assert equal_form("[-0, 1e2]") == equal_form("[0, 100]")
