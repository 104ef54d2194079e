"""When a view's windows close, and what becomes of changes that come for one later (V19, V21).

The time is that of the source: the newest commit time below the fence, or when capture heard that nothing new is below
it. It is never that of one partition, and never beyond the time at which the progress record was written. A window's
last figure is what the view's text gives at the LSN of its closing. All that comes later is counted and kept, and
changes no figure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cdc.views.closed_windows import ClosedUpTo, Final, LateRow
from cdc.views.contributing import Contributed
from cdc.views.fences import Fence
from cdc.views.lookups import Row
from cdc.views.sqlite_rows import SqliteRows
from cdc.views.stored_values import loaded, wire_text
from cdc.views.view_plan import ViewPlan
from cdc.views.view_records import ViewRecord
from cdc.views.view_state import ViewState
from cdc.views.window_keys import WindowKey
from cdc.wire.format import AFTER, OP
from cdc.wire.jsontext import quote

log = logging.getLogger(__name__)
MOST_CLOSED = 2_000
"""Windows that close at one fence, at most."""
_MOST_STEP_US = 60_000_000
"""Where no window is there to close, the time up to which they are closed moves in steps."""


class Closing:
    """The windows of one view. ``topic``: of late changes, of one partition. ``window``: None where none closes."""

    def __init__(self, plan: ViewPlan, state: ViewState, window: WindowKey | None, topic: str) -> None:
        self._plan = plan
        self._state = state
        self._window = window
        self._topic = topic
        self._windows = state.windows(window)
        self._key = _members([output for _, output in plan.key], plan.key_kinds)
        root = plan.relations[plan.root.table]
        self._row = _members(root.columns, root.kinds)
        self._row_key = _members(root.key, [root.kind(column) for column in root.key])
        self._told: ClosedUpTo | None = None

    @property
    def used(self) -> bool:
        """Whether windows close."""
        return self._window is not None

    @property
    def closed(self) -> ClosedUpTo | None:
        """The windows that are closed so far. None before the first."""
        reached = self._state.reached
        return ClosedUpTo(reached.closed_us, reached.closed_at) if self.used and reached.closed_at else None

    def begin(self, told: ClosedUpTo | None, finals: Iterable[tuple[Row, Final]]) -> None:
        """Take over what the topic knows, and the state may not: ``finals``, of what stands there behind the state's
        end. Within a transaction."""
        self._told = told
        if self._windows is None:
            return
        for key, final in finals:
            self._windows.close(key, final, elsewhere=True)
        known = self.closed
        if told is not None and (known is None or known.us < told.us):
            self._state.note(closed_us=told.us, closed_at=told.at)

    def absorb(self, computed: Mapping[Row, Contributed | None], rows: SqliteRows, fence: Fence) -> set[Row]:
        """New contributions of driving rows. Returns the keys of the groups that they change."""
        state = self._state
        if self._windows is None:
            assert state.groups is not None
            return state.groups.absorb(computed)

        def positions(keys: Sequence[Row]) -> Mapping[Row, str]:
            return {key: pos for key, (_, pos) in rows.known(self._plan.root.table, keys).items()}

        # A state that is filled anew, or was copied back, meets rows that windows were closed with.
        behind = not state.reached.built or state.reached.fence < state.reached.published
        changed, late = self._windows.absorb(computed, self.closed, positions, behind=behind)
        if late:
            self._keep(late, rows, fence)
        return changed

    def close(self, time_ms: int, fence: Fence, finish: Callable[[Row, Any], Any]) -> list[Row]:
        """Close the windows that are due at a fence. ``time_ms``: of the source, there. ``finish``: a computed row as
        it is published, NotComputable where there is none. Returns the keys of those that closed.

        Within a transaction, and only where all that lies below the fence is in the state.
        """
        state, windows = self._state, self._windows
        time_ms = max(time_ms, state.reached.time_ms)
        state.note(time_ms=time_ms)
        if windows is None or self._window is None or state.groups is None or not time_ms:
            return []
        us = time_ms * 1000 - self._window.close_us
        before = self.closed
        due = windows.due(us, MOST_CLOSED)
        if len(due) == MOST_CLOSED:
            us = min(us, self._window.time_us(due[-1]) or us)
        at = fence.floor().text()
        done = []
        for key, computed in state.groups.of(due).items():
            row = finish(key, computed)
            if row is None or isinstance(row, str):
                windows.close(key, Final(self._flagged(row), at))
                done.append(key)
        # The topic is told of each step.
        step_us = min(self._window.close_us // 100, _MOST_STEP_US)
        if done or before is None or us > before.us + step_us:
            us = us if before is None else max(us, before.us)
            state.note(closed_us=us, closed_at=at)
        if done:
            log.info("view_windows_closed", extra={"windows": len(done)})
        return done

    def finals(self, keys: Iterable[Row]) -> dict[Row, Final]:
        """Those of these documents that are the last figure of a window."""
        return {} if self._windows is None else self._windows.finals(keys)

    def every(self) -> set[Row]:
        """The keys of all closed windows."""
        return set() if self._windows is None else self._windows.every()

    def drivers(self) -> set[Row]:
        """The keys of all rows that closed windows were made of."""
        return set() if self._windows is None else self._windows.drivers()

    def told_with(self, claim: Fence | None) -> ClosedUpTo | None:
        """The word that goes with a claim, which says that each last figure is there. None where it knows."""
        closed = self.closed
        there = claim is not None and closed is not None and claim.floor().text() >= closed.at
        return closed if there and closed != self._told else None

    def late(self, most: int) -> tuple[list[ViewRecord], list[int], bool]:
        """Records of late changes that are to be written, their numbers for :meth:`written`, and whether they are
        all."""
        if self._windows is None:
            return [], [], True
        found = self._windows.kept(most)
        records = []
        for _, name, document in found:
            records.append(ViewRecord(self._topic, 0, name.encode(), document.encode(), []))
        return records, [number for number, _, _ in found], len(found) < most

    def written(self, numbers: Iterable[int], told: ClosedUpTo | None) -> None:
        """The topic has these late changes, and knows what is closed."""
        if self._windows is not None:
            self._windows.published(numbers)
        self._told = told or self._told

    def _flagged(self, row: str | None) -> str | None:
        """A row whose column ``final`` is true, where the view has one."""
        if row is None or self._window is None or not self._window.flag:
            return row
        name = quote(self._window.flag.encode()).decode()
        # JSON within a row is text, whose quotes are escaped.
        return row.replace(f"{name}:false", f"{name}:true", 1)

    def _keep(self, late: Sequence[LateRow], rows: SqliteRows, fence: Fence) -> None:
        assert self._windows is not None
        known = rows.known(self._plan.root.table, [one.key for one in late])
        records = []
        for one in late:
            row = known.get(one.key, (None, ""))[0]
            key = f'{{"window":{_object(self._key, one.window)},"row":{_object(self._row_key, one.key)}}}'
            after = "null" if row is None else _object(self._row, row)
            said = f'"{OP}":"{one.op}","{AFTER}":{after},"epoch":{fence.epoch},"lsn":{fence.lsn}'
            records.append((key, f"{key[:-1]},{said}}}"))
        self._windows.keep(records)
        left = sum(one.op == "d" for one in late)
        reached = self._state.reached
        self._state.note(late=reached.late + len(late) - left, left=reached.left + left)
        log.warning("view_rows_late", extra={"rows": len(late) - left, "left": left})


Members = list[tuple[str, Callable[[Any], Any] | None, Callable[[Any], Any]]]


def _members(names: Sequence[str], kinds: Sequence[Any]) -> Members:
    return [
        (quote(name.encode()).decode(), loaded(kind), wire_text(kind, name))
        for name, kind in zip(names, kinds, strict=True)
    ]


def _object(members: Members, values: Row) -> str:
    said = (
        f"{name}:{'null' if value is None else write(value if load is None else load(value))}"
        for (name, load, write), value in zip(members, values, strict=True)
    )
    return "{" + ",".join(said) + "}"
