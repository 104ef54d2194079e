"""Orders about dead letters: carried out once, in order, answered with what was released."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from cdc.wire.dead_letter import (
    DeadLetter,
    Orders,
    Parked,
    Queue,
    Refusals,
    Waiting,
    Why,
    carry_out,
    drop_by_hand,
    identity_of,
    order,
    queues,
    waiting,
)


def letter(offset: int, why: Why = Why.REFUSED, *, key: bytes = b"k", op: str = "u") -> DeadLetter:
    return DeadLetter(
        sink="cache",
        why=why,
        topic="t",
        partition=0,
        offset=offset,
        reason="no",
        key=key,
        value=b"v",
        headers=(("pos", b"%032x" % offset), ("op", op.encode()), ("ver", b"1")),
    )


class Taking:
    """A store that refuses the records at some offsets; it takes the newest of each key, as every store does."""

    def __init__(self, refuses: Iterable[int] = ()) -> None:
        self.refuses = set(refuses)
        self.given: list[list[int]] = []

    def __call__(self, letters: Sequence[DeadLetter]) -> Refusals:
        self.given.append([one.offset for one in letters])
        newest = {one.key: one for one in letters}
        return {("t", 0, one.offset): "still no" for one in newest.values() if one.offset in self.refuses}


def asked(topic: Sequence[DeadLetter], why: Why = Why.RETRY, number: int = -1) -> list[Queue]:
    """The queue of an order about one of the letters, the last one unless told otherwise."""
    return queues([order(topic[number], why, "id1")], Waiting(topic))


QUEUE = [letter(3), letter(5, Why.BEHIND), letter(9, Why.BEHIND)]


def test_a_retry_applies_the_whole_queue_and_frees_the_key() -> None:
    store = Taking()
    answers = carry_out(asked(QUEUE), store)
    assert store.given == [[3, 5, 9]]
    assert [(one.why, one.offset, one.reason) for one in answers] == [(Why.RELEASED, 9, "applied: 3 events")]
    assert len(Parked("cache", [*QUEUE, *answers])) == 0
    assert waiting([*QUEUE, *answers]) == []


def test_h67_what_is_refused_still_waits_with_all_behind_it() -> None:
    store = Taking([9])
    answers = carry_out(asked(QUEUE), store)
    assert store.given == [[3, 5, 9], [3, 5]], "the one before the refused one is tried"
    assert [(one.why, one.offset) for one in answers] == [(Why.RELEASED, 5), (Why.HELD, 9)]
    assert answers[1].reason == "still no"
    assert Parked("cache", [*QUEUE, *answers]).firsts() == {"t": {b"k": (0, 9)}}
    assert [one.offset for one in waiting([*QUEUE, *answers])] == [9]


def test_a_queue_of_which_all_is_refused_stays_whole() -> None:
    answers = carry_out(asked(QUEUE), Taking([3, 5, 9]))
    assert [one.why for one in answers] == [Why.HELD]
    assert [one.offset for one in waiting([*QUEUE, *answers])] == [3, 5, 9]


def test_a_drop_applies_nothing_and_frees_the_key() -> None:
    store = Taking()
    answers = carry_out(asked(QUEUE, Why.DROP), store)
    assert store.given == []
    assert [(one.why, one.reason) for one in answers] == [(Why.RELEASED, "dropped: 3 events")]
    assert waiting([*QUEUE, *answers]) == []


def test_an_order_on_a_letter_that_parks_no_key_is_only_about_it() -> None:
    foreign, floor = letter(1, Why.UNREADABLE), letter(2, op="t")
    topic = [foreign, floor, *QUEUE]
    dropped = carry_out(asked(topic, Why.DROP, 0), Taking())
    assert [one.offset for one in waiting([*topic, *dropped])] == [2, 3, 5, 9]
    retried = carry_out(asked(topic, Why.RETRY, 1), Taking())
    assert [one.offset for one in waiting([*topic, *retried])] == [1, 3, 5, 9]


def test_an_order_is_open_until_it_is_answered() -> None:
    given = order(QUEUE[-1], Why.RETRY, "id1")
    orders = Orders("cache", [*QUEUE, given, given])
    assert orders.open() == [given]
    answers = carry_out(queues(orders.open(), Waiting(QUEUE)), Taking())
    orders.add(answers)
    orders.add([given])
    assert orders.open() == []
    assert Orders("cache", [*QUEUE, given, *answers]).open() == []


def test_an_order_about_a_key_that_is_free_already_is_answered() -> None:
    done = carry_out(asked(QUEUE), Taking())
    again = carry_out(asked([*QUEUE, *done]), Taking())
    assert [(one.why, one.reason) for one in again] == [(Why.HELD, "nothing waits under this key any more")]


def test_an_event_that_came_behind_a_drop_is_not_dropped_with_it() -> None:
    answers = carry_out(asked(QUEUE, Why.DROP), Taking())
    late = letter(12, Why.BEHIND)
    assert waiting([*QUEUE, late, *answers]) == [late]
    assert Parked("cache", [*QUEUE, late, *answers]).firsts() == {"t": {b"k": (0, 12)}}


def test_a_released_letter_refused_again_by_a_replay_is_parked() -> None:
    topic = [*QUEUE, *carry_out(asked(QUEUE), Taking())]
    again = letter(3)
    assert Parked("cache", topic).fresh([again]) == [again]
    assert waiting([*topic, again]) == [again]


def test_the_cost_of_orders_grows_with_their_number() -> None:
    """Each order looks at the letters of its own key."""

    def steps(count: int) -> int:
        seen = 0
        topic = [replace(QUEUE[0], key=b"%d" % number, offset=number) for number in range(count)]
        held = Waiting(topic)

        class Looked(Waiting):
            def beside(self, letter: DeadLetter) -> list[DeadLetter]:
                nonlocal seen
                found = held.beside(letter)
                seen += len(found)
                return found

        asked = [order(letter, Why.RETRY, f"id{letter.offset}") for letter in topic]
        answers = carry_out(queues(asked, Looked()), Taking())
        assert {answer.why for answer in answers} == {Why.RELEASED}
        return seen

    assert (steps(10), steps(1000)) == (10, 1000)


def test_h67_an_order_that_changed_nothing_is_answered_once() -> None:
    asks = order(QUEUE[-1], Why.RETRY, "id1")
    topic = [*QUEUE, asks]
    store = Taking([3, 5, 9])
    answers = carry_out(queues(Orders("cache", topic).open(), Waiting(topic)), store)
    assert [one.why for one in answers] == [Why.HELD]
    assert Orders("cache", [*topic, *answers]).open() == []
    heard = Orders("cache", topic)
    heard.add(answers)
    assert heard.open() == []
    gone = [*topic, *carry_out(queues([order(QUEUE[-1], Why.DROP, "id0")], Waiting(QUEUE)), store)]
    answers = carry_out(queues(Orders("cache", gone).open(), Waiting(gone)), store)
    assert [one.why for one in answers] == [Why.HELD], "nothing waits, and that is an answer, too"
    assert Orders("cache", [*gone, *answers]).open() == []


def test_an_order_and_its_answer_name_it_in_one_header() -> None:
    """The topic holds both: the command and the application may be of two versions."""
    given = order(QUEUE[0], Why.RETRY, "id1")
    assert (given.headers, given.value, given.reason) == ((("order", b"id1"),), None, "asked by an operator")
    (answer,) = carry_out(asked(QUEUE), Taking())
    assert answer.headers == (("order", b"id1"),)
    assert (identity_of(given), identity_of(answer), identity_of(QUEUE[0])) == ("id1", "id1", None)


def test_a_letter_that_no_store_has_in_mind_is_dropped_by_hand() -> None:
    dropped = drop_by_hand(QUEUE[0])
    assert (dropped.why, dropped.reason, dropped.headers) == (Why.RELEASED, "dropped: 1 event", ())
    assert waiting([*QUEUE[:1], dropped]) == []


def test_a_retry_applied_in_part_has_two_answers() -> None:
    """The letters before the refused one are free; the order itself is answered once, with the reason."""
    topic = [letter(offset) for offset in (3, 5, 7, 9)]
    applied, held = carry_out(asked(topic), Taking([9]))
    assert (applied.offset, applied.reason, identity_of(applied)) == (7, "applied: 3 events", None)
    assert (held.offset, held.reason, identity_of(held)) == (9, "still no", "id1")
    only, _ = carry_out(asked(topic[2:]), Taking([9]))
    assert (only.offset, only.reason) == (7, "applied: 1 event")


def test_an_order_about_a_key_leaves_letters_that_park_nothing() -> None:
    topic = [letter(1, Why.UNREADABLE), letter(2, op="t"), *QUEUE]
    store = Taking()
    answers = carry_out(asked(topic), store)
    assert store.given == [[3, 5, 9]]
    assert [one.offset for one in waiting([*topic, *answers])] == [1, 2]


def test_h67_the_newest_refusal_is_the_reason_of_an_answer() -> None:
    """A store that refuses each record by itself, not only the newest of a key."""
    tried: list[list[int]] = []

    def apply(letters: Sequence[DeadLetter]) -> Refusals:
        tried.append([one.offset for one in letters])
        return {("t", 0, one.offset): f"no {one.offset}" for one in letters if one.offset in (5, 9)}

    applied, held = carry_out(asked([letter(3), letter(4), letter(5), letter(9)]), apply)
    assert tried == [[3, 4, 5, 9], [3, 4]]
    assert (applied.offset, held.reason) == (4, "no 9")


def test_a_retry_tries_twenty_versions_of_a_key() -> None:
    topic = [letter(offset) for offset in range(30)]
    store = Taking(range(30))
    (answer,) = carry_out(asked(topic), store)
    assert [given[-1] for given in store.given] == list(range(29, 9, -1))
    assert (answer.why, answer.reason) == (Why.HELD, "still no")
    few = Taking([3, 5, 9])
    carry_out(asked(QUEUE), few)
    assert few.given == [[3, 5, 9], [3, 5], [3]], "with no letter left there is nothing to try"
