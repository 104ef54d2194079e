"""The looks of ``cdc forget``, over its ports. It writes nothing to a table's topic and keeps no note of its own, so it
may be killed anywhere and run again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from cdc.clock import Clock
from cdc.dead import DeadLetter
from cdc.errors import TopicError
from cdc.forget.document_history import DocumentForm, DocumentHistory, late_rows
from cdc.forget.holding import ForgetReport, Kept, Looked, Trace
from cdc.forget.key_history import KeyRecords
from cdc.forget.letter_history import LetterHistory, letter_history
from cdc.forget.ports import ForgetPorts, ForgetView
from cdc.forget.request_history import request_history
from cdc.forget.rules import (
    in_another_form,
    in_documents,
    in_letters,
    in_requests,
    in_topic,
    require_deleted,
    under_another_row,
    worth_waiting,
)
from cdc.forget.typed_key import TypedKey
from cdc.found import Unknown, look
from cdc.position import Position
from cdc.schema import TableSchema
from cdc.wire.format import POS

log = logging.getLogger(__name__)
_LOOK_S = 1.0
_ORDER_S = 30.0
LOG, LETTERS, REQUESTS = "log", "dead letters", "requests"

Tell = Callable[[ForgetReport], None]
"""Is called with each look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetWish:
    """A call of the command. ``table``, ``key``: as they were typed. The others as in :class:`ForgetPlan`."""

    table: str
    key: str
    trim_letters: bool = False
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetPlan:
    """``shapes``: every version of the table's shape, the newest last. ``renamed``: the same of each name that it had
    before. ``trim_letters``: delete letters that are dealt with. ``timeout_s``: how long to wait for what goes by
    itself. ``also``: other forms of a masked key, each looked for as well. ``forms``: the masks of all forms.
    ``note``: a sentence about the key's forms, empty without any."""

    key: TypedKey
    shapes: Sequence[TableSchema]
    renamed: Sequence[Sequence[TableSchema]] = ()
    also: Sequence[TypedKey] = ()
    forms: frozenset[tuple[str, ...]] = frozenset()
    note: str = ""
    trim_letters: bool = False
    timeout_s: float = 30.0

    @property
    def former_topics(self) -> list[str]:
        """Topics that the table had before."""
        return sorted({shape.topic for shape in self.shapes} - {self.shape.topic})

    @property
    def shape(self) -> TableSchema:
        """The newest."""
        return self.shapes[-1]


class Forget:
    """Finds what is left of one deleted row, lets go what may go, and waits for the rest."""

    def __init__(self, plan: ForgetPlan, ports: ForgetPorts, clock: Clock, under: frozenset[str] = frozenset()) -> None:
        """``under``: keys of the row that are looked for already."""
        forms = plan.forms | {plan.key.masks, *(form.masks for form in plan.also)}
        self._plan = plan = replace(plan, forms=forms)
        self._ports = ports
        self._clock = clock
        self._history = self._records(plan.key)
        self._deleted: Position | None = None
        self._ordered = False
        self._ends: dict[str, dict[int, int]] = {}
        self._under = under | {plan.key.text}
        self._further: dict[str, Forget] = {}
        # A view reads the table under its name of now, and its letters are told of there.
        bare = replace(ports, views=(), may_nest=lambda _topic: False)
        single = replace(plan, also=())
        self._renamed = [Forget(replace(single, shapes=was, renamed=()), bare, clock, under) for was in plan.renamed]
        # No delete is known under them, without which a view's documents would all count: the key's own look has them.
        self._also = [Forget(replace(single, key=form), bare, clock, self._under) for form in plan.also]
        self.others: frozenset[str] = frozenset()
        """Keys that the row had before, or got later: their history stands under them."""

    @property
    def note(self) -> str:
        """A sentence about the forms of the key that are looked for. Empty where it has one."""
        return self._plan.note

    def run(self, tell: Tell = lambda _report: None) -> ForgetReport:
        """Look until each place is seen to hold nothing, nothing is left that goes by itself, or the time is over.

        UsageError while the source has the row, and SourceError where it does not answer: nothing was done then.
        """
        deadline_ms = self._now_ms() + int(self._plan.timeout_s * 1000)
        while True:
            begun_s = self._clock.monotonic()
            report = self.look()
            tell(report)
            took_s = self._clock.monotonic() - begun_s
            left_s = (deadline_ms - self._now_ms()) / 1000
            if report.gone or left_s <= 0 or not worth_waiting(report, deadline_ms):
                return report
            # A look reads topics whole: it takes a fifth of the time at most.
            self._clock.sleep(min(left_s, max(_LOOK_S, 4 * took_s)))

    def look(self) -> ForgetReport:
        """One look at each place, and what may go at once. Raises as :meth:`run`."""
        table = str(self._plan.shape.table)
        require_deleted(any(map(self._ports.in_source, (self._plan.key, *self._plan.also))), table)
        places = {f"{place}, key {key}" if key else place: found for (place, key), found in self._places("").items()}
        traces = [trace for looked in places.values() if not isinstance(looked, Unknown) for trace in looked]
        report = ForgetReport(
            table=table,
            typed=self._plan.key.typed,
            understood=self._plan.key.text,
            places=places,
            seen=self._history.seen or any(trace.kept is not Kept.MAYBE for trace in traces),
        )
        log.info("forget_looked", extra=self._said(report))
        return report

    def _places(self, key: str) -> dict[tuple[str, str], Looked]:
        """By place and key: empty for the one that was asked for."""
        found = {(place, key): looked for place, looked in self._own_places().items()}
        for other in sorted(self.others - self._under):
            under = look(partial(self._as_other, other))
            further = {(LOG, other): under} if isinstance(under, Unknown) else under
            # A place that does not answer is named once.
            found |= {
                at: looked
                for at, looked in further.items()
                if looked and not (isinstance(looked, Unknown) and isinstance(found.get((at[0], key)), Unknown))
            }
        for former in self._renamed:
            name = former._plan.shape.table
            found |= {(f"{place}, {name}", other): looked for (place, other), looked in former._places(key).items()}
        for form in self._also:
            # A plain key is named nowhere.
            label = "the masked key" if form._plan.key.masks else "the plain key"
            found |= {
                (f"{place}, {label}", other): looked
                for (place, other), looked in form._places(key).items()
                if looked and not (isinstance(looked, Unknown) and isinstance(found.get((place, other)), Unknown))
            }
        return found

    def _own_places(self) -> dict[str, Looked]:
        places: dict[str, Looked] = {LOG: look(self._in_log)}
        for topic in self._plan.former_topics:
            places[f"{LOG}, {topic}"] = look(partial(self._in_former, topic))
        self._deleted = self._where_deleted()
        places |= {LETTERS: look(self._in_letters), REQUESTS: look(self._in_requests)}
        for place in self._ports.stores:
            places[place] = look(partial(self._in_store, place))
        for view in self._ports.views:
            places |= self._in_view(view)
        return places

    def _as_other(self, other: str) -> dict[tuple[str, str], Looked]:
        """The same under another key that the row had (H304). Where that is another row's now, no store tells the two
        apart: the topic alone is looked at, as long as it ties them."""
        key = replace(self._plan.key, typed=other, text=other)
        if self._ports.in_source(key):
            return {(LOG, other): look(partial(self._older_of_another, key))}
        plan, under = replace(self._plan, key=key, also=()), self._under | self.others
        further = self._further.setdefault(other, Forget(plan, self._ports, self._clock, under))
        return further._places(other)

    def _older_of_another(self, key: TypedKey) -> list[Trace]:
        topic, history = self._plan.shape.topic, self._records(key)
        for record in self._ports.log.records(topic):
            history.take(record)
        return under_another_row(history, self._ports.log.options(topic), self._now_ms())

    def _records(self, key: TypedKey) -> KeyRecords:
        return KeyRecords(key, self._plan.shapes, self._plan.forms)

    def _said(self, report: ForgetReport) -> dict[str, object]:
        key = self._plan.key.digest(report.table)
        return {"table": report.table, "key_digest": key, "held": len(report.held), "unknown": len(report.unknown)}

    def _in_log(self) -> list[Trace]:
        topic = self._plan.shape.topic
        options, history = self._ports.log.options(topic), self._records(self._plan.key)
        for record in self._ports.log.records(topic):
            history.take(record)
        self._history = history
        self.others = frozenset(history.others)
        return in_topic(topic, history, options, self._now_ms())

    def _in_former(self, topic: str) -> list[Trace]:
        """A topic that the table had before. One that is not there any more holds nothing."""
        history = self._records(self._plan.key)
        try:
            for record in self._ports.log.records(topic):
                history.take(record)
            return in_topic(topic, history, self._ports.log.options(topic), self._now_ms())
        except TopicError:
            return []

    def _in_requests(self) -> list[Trace]:
        topic, table = self._ports.requests, str(self._plan.shape.table)
        history = request_history(self._ports.log.records(topic), table, self._plan.key)
        return in_requests(history, self._ports.log.options(topic), self._now_ms())

    def _in_letters(self) -> list[Trace]:
        history = self._letters()
        orders = history.orders(self._ports.fed)
        if orders and not self._ordered:
            self._ordered = True
            self._ports.order(orders, min(self._plan.timeout_s, _ORDER_S))
            history = self._letters()
        if self._plan.trim_letters and history.trimmable:
            self._ports.log.trim_letters(history.done_below)
            history = self._letters()
        return in_letters(history, self._ports.fed)

    def _letters(self) -> LetterHistory:
        return letter_history(self._ports.log.letters(), self._plan.key, self._plan.shapes, self._may_nest)

    def _may_nest(self, letter: DeadLetter) -> bool:
        if letter.value is None or not self._ports.may_nest(letter.topic):
            return False
        pos = (dict(letter.headers).get(POS) or b"").decode(errors="replace")
        return self._deleted is None or not pos or pos <= self._deleted.text()

    def _where_deleted(self) -> Position | None:
        """The delete's place in the log. A view's state knows it when the log does not any more: without it each older
        document counts, and a busy view always has some (H303)."""
        found = [look(partial(view.deleted, self._plan.shape, self._plan.key)) for view in self._ports.views]
        known = [one for one in (self._history.deleted, *found) if isinstance(one, Position)]
        return max(known, default=None)

    def _in_store(self, place: str) -> list[Trace]:
        masks = self._plan.shape.key_masks
        with self._ports.stores[place]() as store:
            store.clean(self._plan.shape)
            if masks not in self._plan.forms:
                return [in_another_form(self._plan.shape)]
            if masks != self._plan.key.masks and self._plan.key.masks:
                return []  # the other form's look has them
            spellings = set(self._history.spellings)
            if not self._plan.key.exact and not self._history.seen:
                # The log says no more how the key is spelled.
                spellings |= set(store.spellings(self._plan.shape, self._plan.key.matches))
            return list(store.of_keys(self._plan.shape, sorted(spellings)))

    def _in_view(self, view: ForgetView) -> Iterator[tuple[str, Looked]]:
        label, shape = f"view {view.name}", view.published
        yield f"{label}, state", look(lambda: list(view.in_state(self._plan.shape, self._plan.key)))
        late = view.late
        if late is not None:
            yield f"{label}, late rows", look(lambda: self._in_late(view.name, late))
        if shape is None:
            return
        yield f"{label}, log", look(lambda: self._in_documents(view, shape))
        for place in self._ports.stores:
            yield f"{label}, {place}", look(partial(self._older_documents, place, shape, view.form))

    def _in_documents(self, view: ForgetView, shape: TableSchema) -> list[Trace]:
        deleted, reached = self._deleted, view.reached()
        if deleted is not None and (reached is None or reached <= (deleted.epoch, deleted.commit_lsn)):
            what = "documents that may nest the row: the view has not passed its delete"
            return [
                Trace(
                    what=what, kept=Kept.MAYBE, until="its runner has", passing=True, cure=f"cdc view run {view.name}"
                )
            ]
        history = DocumentHistory(deleted, view.form)
        for record in self._ports.log.records(shape.topic):
            history.take(record)
        # As of the first look: what is published later has nothing to do with the delete.
        self._ends.setdefault(shape.topic, history.ends)
        return in_documents(history, self._ports.log.options(shape.topic), self._now_ms(), known=deleted is not None)

    def _in_late(self, view: str, topic: str) -> list[Trace]:
        count = late_rows(self._ports.log.records(topic), self._plan.key, self._plan.shape)
        what, until = f"{count} records of rows that came too late for a closed window", "the view is dropped"
        return [Trace(what=what, kept=Kept.ROW, until=until, cure=f"cdc view drop {view}")] if count else []

    def _older_documents(self, place: str, shape: TableSchema, form: DocumentForm) -> list[Trace]:
        ends = self._ends.get(shape.topic)
        if ends is None:
            what = "documents that may nest the row: what the view has published is not known yet"
            return [Trace(what=what, kept=Kept.MAYBE, until="the view's log was seen behind the delete", passing=True)]
        with self._ports.stores[place]() as store:
            store.clean(shape)
            deleted = self._deleted
            return [*store.shown(shape, deleted, ends, form), *store.before(shape, deleted)]

    def _now_ms(self) -> int:
        return self._clock.now_ns() // 1_000_000
