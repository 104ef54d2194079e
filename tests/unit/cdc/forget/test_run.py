"""``cdc forget`` on doubles of its ports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.dead import CAPTURE, Why
from cdc.errors import DifferenceFound, SinkError, SourceError, TopicError, UsageError
from cdc.forget.holding import ForgetReport, Kept, Trace
from cdc.forget.key_history import SeenRecord
from cdc.forget.letter_history import SeenLetter
from cdc.forget.rules import TopicOptions, conclude
from cdc.state import RequestState
from tests.killing import Killed, Steps, every_kill
from tests.unit.cdc.forget.world import (
    AWAY,
    OPTIONS,
    SHAPE,
    SILENT,
    VIEW,
    MemoryView,
    World,
    delete,
    document,
    in_view,
    letter,
    record,
    row,
    states,
    tombstone,
)
from tests.unit.connectors.postgres import written as w

TOPIC = SHAPE.topic


def in_log(world: World, **changes: object) -> list[Trace]:
    looked = world.forget(**changes).look().places["log"]  # type: ignore[arg-type]
    assert isinstance(looked, list)
    return looked


def test_a_row_that_the_source_has_is_refused() -> None:
    world = World(rows={"42"}, stores={"cache": []})
    with pytest.raises(UsageError, match="still has that row"):
        world.forget().run()
    assert world.cleaned == []


def test_h109_a_silent_source_is_no_absence() -> None:
    world = World(source=SourceError("nobody answers"))
    with pytest.raises(SourceError):
        world.forget().run()


def test_a_row_that_comes_again_while_waited_for_is_refused() -> None:
    world = World(topics={TOPIC: [row(), delete(), tombstone()]})
    with pytest.raises(UsageError):
        world.forget(timeout_s=600).run(lambda _: world.rows.add("42"))


@pytest.mark.parametrize(
    ("records", "kept", "until"),
    [
        ([row()], Kept.ROW, "cdc run has read the delete"),
        ([row(), delete()], Kept.ROW, "the tombstone"),
        ([row(), delete(), tombstone()], Kept.ROW, "compaction, from 1970-01-01 00:01:16Z on"),
        ([delete(), tombstone()], Kept.ROW, "compaction"),
        ([tombstone()], Kept.KEY, "delete.retention.ms"),
        ([row(), delete(), tombstone(), row(lsn=24)], Kept.ROW, "cdc run has read the delete"),
    ],
)
def test_the_topic_says_until_when(records: list[object], kept: Kept, until: str) -> None:
    (found,) = in_log(World(topics={TOPIC: [row(7), *records, row(8)]}))  # type: ignore[list-item]
    assert found.kept is kept
    assert until in found.until


def test_a_topic_without_a_record_of_the_key_holds_nothing() -> None:
    report = World(topics={TOPIC: [row(7), row(8)]}).forget().run()
    assert report.gone
    assert not report.seen
    conclude(report)


def test_a_truncated_row_has_no_tombstone_to_come() -> None:
    """Compaction keeps the newest record of a key, and TRUNCATE writes none: waiting would be for ever."""
    truncate = record('{"__truncate":"public.t"}', b"{}", 16, op="t")
    world = World(topics={TOPIC: [row(), truncate]})
    (found,) = in_log(world)
    assert "TRUNCATE" in found.what
    assert "insert a row with this key" in found.until
    assert not found.passing


def test_records_of_no_known_row_may_be_of_it() -> None:
    foreign = row()._replace(headers={})
    strange = record('"x"', b"{}")
    old = w.table(w.column("id", "int4"), w.column("name", "text", 0), name="t")
    newest = replace(SHAPE, version=2)
    former = record('{"name":"jane"}', b"{}")
    world = World(topics={TOPIC: [foreign, strange, former]})
    found = in_log(world, shapes=[replace(old, version=1), newest])
    assert [(one.kept, one.passing) for one in found] == [(Kept.MAYBE, False), (Kept.MAYBE, False)]
    assert "1 records from before the key" in found[0].what
    assert "2 records that cannot be read" in found[1].what


def test_a_key_that_changed_is_named() -> None:
    was = record('{"id":42}', b"{}", 16, op="d")
    was = was._replace(headers={**was.headers, "__debezium.newkey": b'{"id":43}'})
    forget = World(topics={TOPIC: [row(), was, tombstone()]}).forget()
    forget.look()
    assert forget.others == {"43"}


def test_other_spellings_of_the_key_are_asked_for() -> None:
    shape = w.table(w.column("price", "numeric", 0), name="t")
    spelled = record('{"price":"1.10"}', None, op="d")
    world = World(topics={shape.topic: [spelled]}, stores={"cache": []})
    world.forget("1.1", shapes=[shape]).look()
    assert world.asked_keys == [["1.1", "1.10"]]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"cleanup.policy": "compact", "max.compaction.lag.ms": "1000"}, "max.compaction.lag.ms"),
        ({"cleanup.policy": "delete", "retention.ms": "-1"}, "for ever"),
        ({"cleanup.policy": "delete", "retention.ms": "5000"}, "1970-01-01 00:00:21Z (retention.ms)"),
    ],
)
def test_the_topics_own_settings_decide(config: dict[str, str], words: str) -> None:
    world = World(topics={TOPIC: [row(), delete(), tombstone()]}, options_of=TopicOptions.of(config))
    (found,) = in_log(world)
    assert words in found.until


def test_h109_a_place_that_is_away_hides_no_other() -> None:
    there = Trace(what="the row", kept=Kept.ROW, until="a day", passing=False)
    world = World(topics={TOPIC: SILENT}, stores={"cache": AWAY, "search": [there], "reports": []})
    report = world.forget().run()
    assert states(report) == {
        "log": "unknown", "dead letters": "gone", "requests": "gone", "cache": "unknown", "search": "holds",
        "reports": "gone",
    }  # fmt: skip
    with pytest.raises(DifferenceFound, match="search"):
        conclude(report)
    world.stores["search"] = []
    with pytest.raises(type(SILENT), match="no broker"):
        conclude(world.forget().run())


def test_it_waits_for_what_goes_by_itself_and_no_longer() -> None:
    passing = Trace(what="the row", kept=Kept.ROW, until="later", passing=True)
    world = World(stores={"cache": [passing]})
    looks: list[ForgetReport] = []

    def tell(report: ForgetReport) -> None:
        looks.append(report)
        if len(looks) == 3:
            world.stores["cache"] = []

    assert world.forget(timeout_s=60).run(tell).gone
    assert len(looks) == 4
    world.stores["cache"], begun = [passing], world.clock.now_ns()
    assert not world.forget(timeout_s=60).run().gone
    assert (world.clock.now_ns() - begun) / 1e9 == 60


def test_it_does_not_wait_for_what_comes_after_its_time() -> None:
    now_ms = World().clock.now_ns() // 1_000_000
    late = Trace(what="the row", kept=Kept.ROW, until="later", until_ms=now_ms + 61_000, passing=True)
    person = Trace(what="the row", kept=Kept.ROW, until="a person")
    world = World(stores={"cache": [late], "reports": [person]})
    looks: list[ForgetReport] = []
    world.forget(timeout_s=60).run(looks.append)
    assert len(looks) == 1


def test_the_key_alone_is_no_row() -> None:
    memory = Trace(what="the memory of the delete", kept=Kept.KEY, until="a week", passing=True)
    report = World(topics={TOPIC: [tombstone()]}, stores={"cache": [memory]}).forget(timeout_s=60).run()
    assert states(report) == {"log": "key", "dead letters": "gone", "requests": "gone", "cache": "key"}
    assert report.seen
    conclude(report)


# dead letters


def test_h281_a_waiting_letter_is_tried_again_and_never_dropped() -> None:
    """The delete waits behind it. Dropped, the store would show the row for ever."""
    world = World(dead=[letter(0, Why.REFUSED), letter(1, Why.BEHIND, place=6)], stores={"cache": []})
    (found,) = world.forget().look().places["dead letters"]  # type: ignore[misc]
    assert [(one.offset, why) for one, why in world.orders] == [(6, Why.RETRY)]
    assert (found.kept, found.passing) == (Kept.ROW, True)


def test_what_capture_put_aside_is_released() -> None:
    world = World(dead=[letter(0, Why.OVERSIZED, sink=CAPTURE)])
    world.forget().look()
    assert [why for _, why in world.orders] == [Why.DROP]


def test_an_order_that_stands_is_not_given_again() -> None:
    world = World(dead=[letter(0, Why.REFUSED), letter(1, Why.RETRY, order="a")], stores={"cache": []})
    world.forget().look()
    assert world.orders == []


def test_killed_anywhere_it_is_run_again() -> None:
    def made() -> World:
        dead = [letter(0, Why.REFUSED), letter(1, Why.BEHIND, place=6)]
        return World(topics={TOPIC: [tombstone()]}, dead=dead, stores={"cache": []}, answering=True)

    def run(steps: Steps) -> object:
        return made().forget(trim=True, steps=steps).run()

    count = 0
    for steps in every_kill(run):
        world = made()
        with pytest.raises(Killed):
            world.forget(trim=True, steps=steps).run()
        assert world.forget(trim=True).run().gone
        assert world.dead == []
        count += 1
    assert count >= 8


def test_orders_are_given_once_a_run() -> None:
    world = World(dead=[letter(0, Why.REFUSED)], stores={"cache": []})
    world.forget(timeout_s=5).run()
    assert len(world.orders) == 1


def test_a_letter_of_a_generation_that_nobody_feeds_waits() -> None:
    world = World(dead=[letter(0, Why.REFUSED, sink="cache@2")], stores={"cache": []})
    (found,) = world.forget().look().places["dead letters"]  # type: ignore[misc]
    assert world.orders == []
    assert "cdc rebuild" in found.until
    assert not found.passing


def test_letters_that_are_dealt_with_are_trimmed_where_asked() -> None:
    dead = [letter(0, Why.REFUSED), letter(1, Why.RETRY, order="a"), letter(2, Why.RELEASED, order="a")]
    world = World(dead=list(dead))
    (found,) = world.forget().look().places["dead letters"]  # type: ignore[misc]
    assert "--trim-letters" in found.cure
    assert world.dead == dead
    assert states(world.forget(trim=True).look())["dead letters"] == "gone"
    assert world.dead == []


@pytest.mark.parametrize(
    "other",
    [
        letter(0, Why.REFUSED, key='{"id":7}'),
        letter(0, Why.RETRY, key='{"id":7}', order="b"),
        letter(0, Why.OVERSIZED, key='{"id":7}', sink=CAPTURE),
        SeenLetter(0, 1000, None),
    ],
)
def test_nothing_that_is_needed_is_trimmed(other: SeenLetter) -> None:
    world = World(dead=[other, letter(1, Why.REFUSED), letter(2, Why.RELEASED)])
    before = list(world.dead)
    (found,) = world.forget(trim=True).look().places["dead letters"]  # type: ignore[misc]
    assert world.dead == before
    assert "letters of other keys" in found.until


def test_letters_of_other_tables_are_none_of_it() -> None:
    world = World(dead=[letter(0, Why.REFUSED, key='{"id":7}'), letter(1, Why.REFUSED, topic="u")])
    assert states(world.forget().look())["dead letters"] == "gone"


def test_requests_to_read_rows_again_name_them() -> None:
    asked = RequestState(id="a", table="public.t", after_lsn=0, reason="asked", keys=[["42"], ["7"]])
    other = replace(asked, id="b", keys=[["7"]])
    condition = replace(asked, id="c", keys=None, where="name = 'jane'")
    stranger = replace(condition, id="d", table="public.u")
    world = World(state=[state_record(one) for one in (asked, other, condition, stranger)])
    world.state += [record('{"what":"slot"}', b"{}"), record("no", b"{}"), record('{"what":"request"}', b"{}")]
    found = world.forget().look().places["requests"]
    assert isinstance(found, list)
    assert [(one.what, one.kept) for one in found] == [
        ("1 requests that name the key", Kept.KEY),
        ("1 requests with a condition on the table", Kept.MAYBE),
    ]


def state_record(one: RequestState) -> SeenRecord:
    return record(one.key().decode(), one.to_json())


def test_a_topic_that_the_table_had_before_is_read() -> None:
    former = replace(SHAPE, topic="shop.former")
    newest = replace(SHAPE, version=2)
    world = World(topics={TOPIC: [], "shop.former": [row()]})
    assert states(world.forget(shapes=[former, newest]).look())["log, shop.former"] == "holds"
    world.topics["shop.former"] = TopicError("the topic does not exist")
    assert states(world.forget(shapes=[former, newest]).look())["log, shop.former"] == "gone"
    world.topics["shop.former"] = SILENT
    assert states(world.forget(shapes=[former, newest]).look())["log, shop.former"] == "unknown"


# views


def test_a_view_that_has_not_passed_the_delete_may_hold_it() -> None:
    world = World(topics={TOPIC: [tombstone()], VIEW.topic: []}, views=[MemoryView(fence=(1, 16))])
    (found,) = in_view(world)
    assert "has not passed" in found.what
    assert found.cure == "cdc view run orders"


def test_older_documents_from_before_the_delete_may_nest_it() -> None:
    documents = [document(1, 8), document(2, 8), document(3, 24), document(1, 24), document(3, 32)]
    world = World(topics={TOPIC: [tombstone()], VIEW.topic: documents}, views=[MemoryView(fence=(1, 40))])
    (found,) = in_view(world)
    assert found.kept is Kept.MAYBE
    assert found.what.startswith("1 older version of")
    world.topics[VIEW.topic] = documents[1:]
    assert in_view(world) == []


def test_stores_are_held_to_the_ends_of_the_first_look() -> None:
    world = World(topics={TOPIC: [tombstone()], VIEW.topic: [document(1, 24)]}, views=[MemoryView(fence=(1, 16))])
    world.stores["warehouse"] = []
    (found,) = in_view(world, "warehouse")
    assert "not known yet" in found.what
    world.views = [MemoryView()]
    forget = world.forget()
    forget.look()
    world.topics[VIEW.topic].append(document(1, 32))  # type: ignore[union-attr]
    forget.look()
    assert world.ends == [{0: 25}, {0: 25}]


def test_without_the_delete_every_older_document_counts() -> None:
    documents = [document(3, 24), document(3, 32)]
    world = World(topics={TOPIC: [], VIEW.topic: documents}, views=[MemoryView()])
    (found,) = in_view(world)
    assert "no delete any more" in found.what


def test_late_rows_of_a_closed_window_are_found() -> None:
    late = record('{"window":{"day":1},"row":{"id":42}}', b"{}")
    other = record('{"window":{"day":1},"row":{"id":7}}', b"{}")
    strange = record('{"row":1}', b"{}")
    world = World(topics={TOPIC: [], VIEW.topic: [], "late": [late, other, strange]}, views=[MemoryView(late="late")])
    (found,) = in_view(world, "late rows")
    assert found.what.startswith("1 records")
    assert "drop" in found.cure


def test_each_store_is_cleaned_of_table_and_view() -> None:
    world = World(topics={TOPIC: [], VIEW.topic: []}, stores={"warehouse": []}, views=[MemoryView()])
    report = world.forget().look()
    assert world.cleaned == [f"warehouse {SHAPE.table}", f"warehouse {VIEW.table}"]
    assert "view orders, warehouse" in report.places


def test_the_report_names_what_it_did_not_look_at() -> None:
    document = World(stores={"cache": SinkError("away")}).forget().look().document()
    assert document["not_looked_at"]
    assert document["places"][-1] == {"place": "cache", "state": "unknown", "because": "away"}
    assert OPTIONS.dirty_ratio == 0.5
