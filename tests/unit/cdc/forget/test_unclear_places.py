"""Places of a row that say nothing of its key: letters, documents of groups and of closed windows, and other keys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.dead import Why
from cdc.forget.document_history import DocumentForm
from cdc.forget.key_history import SeenRecord
from cdc.forget.letter_history import SeenLetter
from cdc.position import Position
from cdc.topic import TableName
from tests.unit.cdc.forget.world import (
    AWAY,
    SHAPE,
    VIEW,
    MemoryView,
    World,
    delete,
    document,
    in_view,
    letter,
    row,
    states,
    tombstone,
)
from tests.unit.connectors.postgres import written as w

TOPIC = SHAPE.topic


@pytest.mark.parametrize(
    ("one", "gone"),
    [
        (letter(0, Why.UNREADABLE, key='{"other":42}'), False),
        (letter(0, Why.UNREADABLE, key='{"__truncate":"public.t"}'), True),
        (letter(0, Why.REFUSED, key='{"root":7}', topic=VIEW.topic), False),
        (letter(0, Why.REFUSED, key='{"root":7}', topic=VIEW.topic, lsn=12), False),
        (letter(0, Why.REFUSED, key='{"root":7}', topic=VIEW.topic, lsn=24), True),
    ],
)
def test_h301_letters_that_may_hold_it_are_told_of(one: SeenLetter, gone: bool) -> None:
    """A key that nobody can read, and a document of a view, unless it was made behind the delete."""
    world = World(topics={TOPIC: [tombstone()], VIEW.topic: []}, dead=[one])
    assert (states(world.forget().look())["dead letters"] == "gone") is gone
    if not gone:
        released = letter(1, Why.RELEASED, key="{}")
        assert one.letter is not None
        assert released.letter is not None
        answered = replace(released.letter, topic=one.letter.topic, key=one.letter.key)
        world.dead.append(released._replace(letter=answered))
        assert states(world.forget(trim=True).look())["dead letters"] == "gone"
        assert world.dead == []


def moved(old: int, new: int, lsn: int) -> list[SeenRecord]:
    """A change of key: a delete of the old one, which names the new one, and a row of that."""
    gone, there = delete(old, lsn), row(new, lsn + 1)
    gone = gone._replace(headers={**gone.headers, "__debezium.newkey": b'{"id":%d}' % new})
    there = there._replace(headers={**there.headers, "__debezium.oldkey": b'{"id":%d}' % old})
    return [gone, tombstone(old, lsn), there]


def test_h304_a_row_is_looked_for_under_each_key_that_it_had() -> None:
    history = [row(40), *moved(40, 41, 16), *moved(41, 42, 20), delete(lsn=24), tombstone(lsn=24)]
    world = World(topics={TOPIC: list(history)})
    world.stores = {"cache": [], "search": AWAY}
    report = world.forget().look()
    assert {place: word for place, word in states(report).items() if "," in place} == {
        "log, key 41": "holds",
        "log, key 40": "holds",
    }
    assert [keys[0] for keys in world.asked_keys] == ["42", "41", "40"]


def test_h304_a_key_that_another_row_has_now_may_hold_it() -> None:
    """Its stores show that other row: the topic alone is said to hold older records."""
    world = World(
        topics={TOPIC: [row(41), *moved(41, 42, 16), delete(lsn=24), tombstone(lsn=24), row(41, 32)]}, rows={"41"}
    )
    assert states(world.forget().look())["log, key 41"] == "may hold"
    world.topics[TOPIC] = [*moved(41, 42, 16)[1:], tombstone(lsn=24), row(41, 32)]
    assert "log, key 41" not in states(world.forget().look())


def test_h307_a_table_is_looked_for_under_the_name_that_it_had() -> None:
    """Renamed, it has another topic, and other tables in the stores: the former ones are nobody's, and stay."""
    former = replace(SHAPE, table=TableName("public", "former"), topic="shop.former")
    world = World(topics={TOPIC: [], "shop.former": [row(), delete(), tombstone()]}, stores={"cache": []})
    report = world.forget(renamed=[[former]]).look()
    assert {place: word for place, word in states(report).items() if "," in place} == {
        "log, public.former": "holds",
        "dead letters, public.former": "gone",
        "requests, public.former": "gone",
        "cache, public.former": "gone",
    }
    assert not report.gone


def test_h305_a_store_is_asked_how_it_spells_a_key() -> None:
    """The log has nothing of it any more, and 1.1 and 1.10 are one key."""
    shape = w.table(w.column("price", "numeric", 0), name="t")
    world = World(topics={shape.topic: []}, stores={"cache": []}, kept_keys=["1.10", "1.2"])
    world.forget("1.1", shapes=[shape]).look()
    assert world.asked_keys == [["1.1", "1.10"]]


def test_h303_the_state_of_a_view_remembers_the_delete() -> None:
    """A busy view has always some older document: of those behind the delete none counts."""
    documents = [document(3, 24), document(3, 32)]
    view = MemoryView(remembered=Position(1, 16, 1))
    world = World(topics={TOPIC: [], VIEW.topic: documents}, views=[view])
    assert in_view(world) == []
    view.remembered = Position(1, 28, 1)
    assert len(in_view(world)) == 1


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (DocumentForm(), []),
        (DocumentForm(in_keys=True), ["1 tombstones, whose keys are values of rows"]),
        (DocumentForm(final=True), ["1 documents of windows from before the delete: a closed one stays as it is"]),
    ],
)
def test_h302_documents_that_nothing_computes_anew_may_hold_it(form: DocumentForm, words: list[str]) -> None:
    documents = [document(1, 8), document(2, 24, None)]
    view = MemoryView(form=form)
    world = World(topics={TOPIC: [tombstone()], VIEW.topic: documents}, views=[view])
    assert [one.what for one in in_view(world)] == words
