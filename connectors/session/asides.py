"""The tables that are set aside, in the state topic and in this session, and the way back.

The capture loop sets a table aside and follows it again. The looks say when its cause is gone, the later snapshots when
it was read again. So everything here may be called by any thread. The brokers may take long to answer: a question never
waits for them, and the loop waits only for what must be durable before it goes on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.record.ports import CompactedTopic
from cdc.record.position import Position
from cdc.record.state import ReadingState, RequestState, find_all
from cdc.record.tables_aside import AsideState, CannotFollow, Cause, TableState, aside_key, asides_of, left_out
from cdc.record.topic_names import TableName

log = logging.getLogger(__name__)

declare("aside_decided", "aside_noted", "aside_resumed", "aside_over")

_LEAST_S, _MOST_S = 3.0, 300.0
"""How long a table stays aside that could not be followed again just now, at least and at most."""
_NOTED_S = 2.0
"""A table that waits for longer is named in the state topic."""


class AnnouncesTables(Protocol):
    """The maker of tables' records."""

    def announce_again(self, table: str, oid: int) -> None:
        """Follow a table again that was set aside. ``oid``: of the relation that has its name now."""

    def waiting(self) -> Mapping[TableName, int]:
        """How many records of each table wait."""

    def oldest_of(self, table: TableName) -> int | None:
        """The commit LSN of the oldest record of a table that waits. None without any."""

    @property
    def oldest_waiting(self) -> int | None:
        """The commit LSN of the oldest record of any table that waits. None without any."""


class SetAside:
    """Implements :class:`connectors.postgres.assembly.ports.AsideRegister`.

    ``documents``: the state topic's records. ``histories``: whether a table is never set aside, because
    each of its changes is kept. ``accept``: called with a
    table and whether another key of it is to be taken.
    """

    def __init__(
        self,
        state: CompactedTopic,
        documents: Mapping[bytes, bytes],
        *,
        epoch: int,
        clock: Clock,
        histories: Callable[[str], bool] = lambda table: False,
        accept: Callable[[str, bool], None] = lambda table, accepted: None,
    ) -> None:
        self._state = state
        self._epoch = epoch
        self._clock = clock
        self._histories = histories
        self._accept = accept
        self._lock = threading.Lock()
        """Guards what is in memory. Never kept while the brokers are waited for."""
        self._writing = threading.Lock()
        """Kept from a decision to its last record: the topic has the documents in the order of the decisions."""
        found = {table: one for table, one in asides_of(documents).items() if one.epoch == epoch and one.due}
        self._documents: Mapping[str, AsideState] = found
        self._unwritten: dict[str, AsideState | None] = dict.fromkeys(
            one.table for one in find_all(documents, AsideState) if one.table not in found
        )
        """Documents that nothing depends on, and that are still to be written: of tables that wait, or wait no more."""
        self._left_out = left_out(documents, epoch)
        self._remedied: dict[str, int] = {}
        self._followed: set[tuple[str, int]] = set()
        self._asked: dict[str, int] = {}
        self._tried: dict[str, int] = {}
        self._attempts: dict[str, tuple[int, float]] = {}
        for table, one in found.items():
            accept(table, one.new_key)

    @property
    def documents(self) -> Mapping[str, AsideState]:
        """Table -> what is noted of it now. The mapping is never changed: ask again for what is noted later."""
        return self._documents

    def of(self, table: str) -> AsideState | None:
        """The note about a table as of this call. None for one that is followed as the others are."""
        return self._documents.get(table)

    def seen(
        self,
        found: Mapping[int, Position],
        after_lsn: int,
        topic: Callable[[str], str | None],
        lanes: Callable[[str], tuple[int, int]],
    ) -> dict[int, Position]:
        """Lane -> the position up to which a start at ``after_lsn`` leaves records out.

        ``found``: what stands in the log. Beyond it goes what was dropped of a table and is read again. ``topic``: a
        table's. ``lanes``: a topic's first lane and how many.
        """
        seen = dict(found)
        for table, until in self._left_out.items():
            name = topic(table)
            if name is not None and until.commit_lsn >= after_lsn:
                first, count = lanes(name)
                seen |= {lane: max(until, seen.get(lane, until)) for lane in range(first, first + count)}
        return seen

    def write_notes(self) -> None:
        """Write which tables wait, and remove what an earlier session noted and is so no more. Not the loop's work.
        Raises LogError: then they are written by the next call."""
        with self._writing:
            with self._lock:
                notes, self._unwritten = self._unwritten, {}
            if not notes:
                return
            try:
                self._state.write([(aside_key(table), one.to_json() if one else None) for table, one in notes.items()])
            except BaseException:
                with self._lock:
                    self._unwritten = notes | self._unwritten
                raise

    def set_aside(self, table: TableName, why: CannotFollow, since_lsn: int, xid: int) -> None:
        """See :class:`connectors.postgres.assembly.ports.AsideRegister`. CannotFollow for a table with a history, and
        LogError: then nothing was dropped."""
        name = str(table)
        with self._writing:
            known = self._documents.get(name)
            if known is not None and known.state is TableState.ASIDE:
                return
            if self._histories(name):
                raise CannotFollow(
                    why.message,
                    hint=f"{why.hint}. Where that does not help, take {name} out of [history] tables and start again: "
                    "then it is set aside alone, and when it is back its history has a gap",
                    tables=why.tables,
                )
            lacking = known is not None and known.due
            crash_point("aside_decided")
            self._note(
                AsideState(
                    table=name,
                    epoch=self._epoch,
                    state=TableState.ASIDE,
                    cause=why.cause,
                    detail=why.advice,
                    since_lsn=min(known.since_lsn, since_lsn) if known is not None and lacking else since_lsn,
                    since_ms=known.since_ms if known is not None else self._now_ms(),
                    xid=xid,
                )
            )
            with self._lock:
                self._remedied.pop(name, None)
            self._accept(name, False)
        crash_point("aside_noted")
        log.warning("table_aside", extra={"table": name, "cause": why.cause.value, "why": why.message})

    def note_waiting(self, table: str, since_lsn: int) -> None:
        """Name a table that has waited for a while. Nothing depends on it: it is written later."""
        with self._lock:
            if table not in self._documents:
                document = AsideState(
                    table=table,
                    epoch=self._epoch,
                    state=TableState.WAITING,
                    cause=Cause.LOCKED,
                    detail="it cannot be read: it is locked, or a standby does not answer",
                    since_lsn=since_lsn,
                    since_ms=self._now_ms(),
                )
                self._documents = {**self._documents, table: document}
                self._unwritten[table] = document

    def waits_no_more(self, table: str) -> None:
        """Remove the note of a table that only waited. One that is set aside keeps its note."""
        with self._lock:
            known = self._documents.get(table)
            if known is not None and not known.due:
                self._documents = {name: one for name, one in self._documents.items() if name != table}
                self._unwritten[table] = None

    def hindrance(self, request: RequestState) -> str:
        """Why the table of a request must not be read now. Empty where it may be. One by hand for a table that is set
        aside takes its key or its name as they are now."""
        known = self._documents.get(request.table)
        if known is None or known.state is TableState.READING:
            return ""
        if known.state is TableState.ASIDE and request.whole and request.by_hand:
            with self._lock:
                if request.serial > self._tried.get(request.table, 0):
                    self._asked[request.table] = request.serial
        return known.sentence()

    def asked(self, table: str) -> bool:
        """Whether an operator asked for the table since it was last tried to be followed."""
        return table in self._asked

    def pending(self) -> list[AsideState]:
        """Those whose cause may be gone by now."""
        now_s = self._clock.monotonic()
        return [
            one
            for table, one in self._documents.items()
            if one.state is TableState.ASIDE
            and table not in self._remedied
            and (table in self._asked or now_s >= self._attempts.get(table, (0, 0.0))[1])
        ]

    def remedy(self, table: str, oid: int) -> None:
        """The cause is gone: the loop follows the table at its next turn. ``oid``: the relation that has its name."""
        with self._lock:
            self._remedied[table] = oid

    def remedied(self) -> list[tuple[str, int]]:
        """Tables that the loop is to follow again, each with its relation."""
        if not self._remedied:
            return []
        with self._lock:
            return sorted(self._remedied.items())

    def followed(self, table: str, oid: int) -> bool:
        """Whether the table was followed again as this relation, under any earlier name."""
        return (table, oid) in self._followed

    def resume(self, table: str, from_lsn: int, oid: int = 0) -> None:
        """The table's changes are to be in the log from ``from_lsn`` on: ask for it to be read again behind that.
        ``oid``: the relation that it is.

        Both documents are with the brokers when this returns. Raises LogError.
        """
        with self._writing:
            with self._lock:
                self._remedied.pop(table, None)
                known = self._documents.get(table)
                if known is None or known.state is not TableState.ASIDE:
                    return
                serial = self._asked.pop(table, 0)
                self._tried[table] = max(serial, self._tried.get(table, 0))
                count = self._attempts.get(table, (0, 0.0))[0]
                again_s = self._clock.monotonic() + min(_LEAST_S * 2**count, _MOST_S)
                self._attempts[table] = count + 1, again_s
            self._accept(table, bool(serial))
            request = RequestState(
                id=f"snapshot:{table}",
                table=table,
                after_lsn=from_lsn,
                reason=f"{table} was set aside",
                serial=self._clock.now_ns(),
            )
            reading = replace(known, state=TableState.READING, from_lsn=from_lsn, new_key=bool(serial))
            self._note(reading, (request.key(), request.to_json()))
            self._followed.add((table, oid))
        crash_point("aside_resumed")
        log.info("table_reading", extra={"table": table, "from_lsn": from_lsn})

    def read(self, state: ReadingState) -> None:
        """A reading is over. Once one brought what the log lacks, the table is followed as the others are."""
        with self._writing:
            known = self._documents.get(state.table)
            if known is None or known.state is not TableState.READING:
                return
            if known.read_again(state):
                self._remove(state.table)
                with self._lock:
                    self._attempts.pop(state.table, None)
                self._accept(state.table, False)
            elif state.state == "failed" and state.id == f"snapshot:{state.table}":
                detail = f"it could not be read again: {state.detail}"
                self._note(replace(known, state=TableState.ASIDE, cause=Cause.NOT_READABLE, detail=detail))
                return
            else:
                return
        crash_point("aside_over")
        log.info("table_follows", extra={"table": state.table})

    def forget(self, table: str) -> None:
        """Remove the note of a table that was never followed and is gone. Raises LogError."""
        with self._writing:
            self._remove(table)

    def _note(self, document: AsideState, *before: tuple[bytes, bytes]) -> None:
        """Write a document, then know it. With the right to write."""
        self._state.write([*before, (document.key(), document.to_json())])
        with self._lock:
            self._documents = {**self._documents, document.table: document}
            self._unwritten.pop(document.table, None)

    def _remove(self, table: str) -> None:
        self._state.write([(aside_key(table), None)])
        with self._lock:
            self._documents = {name: one for name, one in self._documents.items() if name != table}
            self._unwritten.pop(table, None)

    def _now_ms(self) -> int:
        return self._clock.now_ns() // 1_000_000


class SessionAsides:
    """The loop's part, one session's: follows what may be followed again, names what waits. ``topic``: a table's."""

    def __init__(self, asides: SetAside, assembler: AnnouncesTables, topic: Callable[[str], str | None]) -> None:
        self._asides = asides
        self._assembler = assembler
        self._topic = topic
        self._waiting_s: dict[str, float] = {}

    def turn(self, reached: int | None, now_s: float) -> None:
        """Once a turn of the loop. ``reached``: lsn below which everything has been streamed, None inside a
        transaction. Raises LogError."""
        if self._waiting_s or self._assembler.oldest_waiting is not None:
            self._note_waiting(now_s)
        if reached is None:
            return
        for table, oid in self._asides.remedied():
            self._asides.resume(table, reached, oid)
            self._assembler.announce_again(table, oid)

    @property
    def documents(self) -> Mapping[str, AsideState]:
        """Table -> what is noted of it, of those that are not followed as the others are."""
        return self._asides.documents

    @property
    def lacking(self) -> Mapping[str, str]:
        """Topics of tables of which the log lacks changes, each with the sentence about the table."""
        documents = self._asides.documents
        found = ((self._topic(table), one) for table, one in documents.items() if one.due) if documents else ()
        return {topic: one.sentence() for topic, one in found if topic is not None}

    def _note_waiting(self, now_s: float) -> None:
        waiting = {str(table): table for table in self._assembler.waiting()}
        for name in self._waiting_s.keys() - waiting.keys():
            del self._waiting_s[name]
            self._asides.waits_no_more(name)
        for name, table in waiting.items():
            since_s = self._waiting_s.setdefault(name, now_s)
            oldest = self._assembler.oldest_of(table)
            if now_s - since_s > _NOTED_S and oldest is not None:
                self._asides.note_waiting(name, oldest)
