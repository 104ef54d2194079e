"""A function of the user's on finished documents: ``[views.NAME] post``. Pure, but for the function itself.

It is given a document as values of Python, and returns one. JSON columns are parsed. A number with a fraction is a
:class:`decimal.Decimal`, so no digit is lost. All other columns have the form that they have on the wire.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from types import FrameType
from typing import Any, TypeVar

import orjson

from cdc.process.clock import Clock
from cdc.process.errors import CdcError, ConfigError
from cdc.views.json_values import jsonb_text
from cdc.views.sql_types import Group, SqlType
from cdc.views.syntax import NotComputable
from cdc.views.view_plan import ViewPlan
from cdc.wire.jsontree import quote

Document = dict[str, Any]
PostFunction = Callable[[Document], Any]
_JSON = (Group.JSON, Group.JSONB)
_TYPES: Mapping[Group, tuple[type, ...]] = {
    Group.BOOLEAN: (bool,),
    Group.INTEGER: (int,),
    Group.FLOAT: (int, float, Decimal),
}
_KINDS: Mapping[str, tuple[type, ...]] = {"float4": (int, float, Decimal), "oid": (int,)}
"""What a column's value may be, beside None. Columns of all other types are texts, arrays are lists."""
_MOST_IN_A_ROW, _MOST_IN_ALL = 3, 20
"""Documents of one run on which a function may take too long."""


class Post:
    """``function`` on the documents of a view. ``name``: as the settings spell it. ``digest``: of its source.

    The digest is part of the view's identity: a changed function is another view, as a changed text is.
    ``limit``: of the time that it takes for a document, none without one.
    """

    def __init__(
        self, name: str, function: PostFunction, digest: str, plan: ViewPlan, limit: TimeLimit | None = None
    ) -> None:
        self.digest = digest
        self._name = name
        self._function = function
        self._limit = limit
        self._too_long = 0
        """Calls one behind the other that took too long."""
        self._all_too_long = 0
        self._types = dict(plan.outputs)
        self._key = [output for _, output in plan.key]

    def __call__(self, row: str) -> str:
        """The row of a document as the function leaves it, as JSON text.

        NotComputable where the function raises, takes too long, changes the key, or returns what the view's columns
        cannot hold. Its message has no value of a row. ConfigError where it takes too long again and again.
        """
        given = read_document(row, self._types)
        key = [given[name] for name in self._key]
        former = orjson.loads(row)
        try:
            made = self._called(given)
        except TookTooLong:
            raise self._left() from None
        except Exception as failure:
            raise NotComputable(f"{self._name} raised {type(failure).__name__}") from None
        if not isinstance(made, dict) or made.keys() != self._types.keys():
            raise NotComputable(f"{self._name} returned other columns than the view has: {_named(made, self._types)}")
        if [made[name] for name in self._key] != key:
            raise NotComputable(f"{self._name} changed the document's key")
        members = (f"{quote(n.encode()).decode()}:{self._member(n, made[n], former[n])}" for n in self._types)
        return "{" + ",".join(members) + "}"

    def _called(self, given: Document) -> Any:
        if self._limit is None:
            return self._function(given)
        made = self._limit.call(lambda: self._function(given))
        self._too_long = 0
        return made

    def _left(self) -> CdcError | NotComputable:
        """A document is parked for it. A view that would only wait for its function cannot go on."""
        self._too_long += 1
        self._all_too_long += 1
        if self._too_long < _MOST_IN_A_ROW and self._all_too_long < _MOST_IN_ALL:
            return NotComputable(f"{self._name} took longer than its limit")
        said = f"{self._name} took longer than its limit on {self._all_too_long} documents"
        return ConfigError(
            said, hint="see why it waits or loops; [views.NAME] post_limit is the limit for one document"
        )

    def _member(self, name: str, value: Any, former: Any) -> str:
        kind = self._types[name]
        if value is None:
            return "null"
        if kind.group in _JSON:
            return quote(self._json(name, kind, value, former).encode()).decode()
        wanted = (list,) if kind.array else _KINDS.get(kind.kind) or _TYPES.get(kind.group, (str,))
        word = float in wanted and value in ("NaN", "Infinity", "-Infinity")
        if not (word or isinstance(value, wanted)) or (isinstance(value, bool) and bool not in wanted):
            raise NotComputable(f"{self._name} returned {type(value).__name__} for the column {name} of type {kind}")
        return self._text(name, value)

    def _json(self, name: str, kind: SqlType, value: Any, former: Any) -> str:
        text = self._text(name, value)
        if former is not None and text == self._text(name, _parsed(former)):
            return str(former)
        return jsonb_text(text) if kind.group is Group.JSONB else text

    def _text(self, name: str, value: Any) -> str:
        try:
            text = json_text(value)
            text.encode()
            return text
        except (TypeError, ValueError, RecursionError):
            raise NotComputable(
                f"{self._name} returned a value that JSON has no form for in the column {name}"
            ) from None


def finished(post: Post | None, row: str | NotComputable | None) -> str | NotComputable | None:
    """A document as ``post`` leaves it, or the reason why there is none. Anything but a row stays as it is."""
    if post is None or not isinstance(row, str):
        return row
    try:
        return post(row)
    except NotComputable as failure:
        return failure


def read_document(row: str | bytes, types: Mapping[str, SqlType]) -> Document:
    """A row as :class:`Post` gives it to its function. ``types``: of the view's columns."""
    found: Document = json.loads(row, parse_float=Decimal)
    for name, kind in types.items():
        if kind.group in _JSON and not kind.array and isinstance(found.get(name), str):
            found[name] = _parsed(found[name])
    return found


def json_text(value: Any) -> str:
    """A value as JSON text, decimals with all their digits. TypeError or ValueError where JSON has no form for it.

    >>> json_text({"price": Decimal("1.50"), "tags": ["a", None, True]})
    '{"price": 1.50, "tags": ["a", null, true]}'
    """
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError("JSON has no such number")
        return str(value)
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise TypeError("a member's name is a text")
        return "{" + ", ".join(f"{json_text(name)}: {json_text(member)}" for name, member in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _parsed(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


def _named(made: object, types: Mapping[str, SqlType]) -> str:
    if not isinstance(made, dict):
        return f"a {type(made).__name__}"
    lacking = [name for name in types if name not in made]
    more = [str(name) for name in made if name not in types]
    return "; ".join(f"{word} {', '.join(names)}" for word, names in (("without", lacking), ("with", more)) if names)


# A time limit around a call of a function that is not ours: one that goes on for longer is left.
#
# A timer of the process interrupts the call, wherever it runs Python. A wait outside of Python, in a library, cannot
# be interrupted. A thread beside it sees that and ends the process, which nothing else would do.

_T = TypeVar("_T")
_AGAIN_S = 0.2
"""A call that catches everything is interrupted again."""
_GRACE = 4
"""Times the limit, until a call that nothing interrupts is overdue."""


class TookTooLong(Exception):
    """A call was left because it took longer than its limit."""


class _Interrupted(BaseException):
    """Raised within the call. An ``except Exception`` lets it through."""


class TimeLimit:
    """``limit_s``: seconds that a call may take. ``overdue``: called in a thread, once, when a call goes on for four
    times as long.

    Only calls of the main thread are interrupted: in a program of the user's other threads have no limit.
    """

    def __init__(self, limit_s: float, overdue: Callable[[], None], clock: Clock) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._overdue = overdue
        self._since_s: float | None = None
        self._watching = False

    def call(self, function: Callable[[], _T]) -> _T:
        """The result of ``function``. TookTooLong where it took longer."""
        if threading.current_thread() is not threading.main_thread():
            return function()
        self._watch()
        self._since_s = self._clock.monotonic()
        try:
            with _interrupting(self._limit_s, self._clock):
                return function()
        except _Interrupted:
            raise TookTooLong from None
        finally:
            self._since_s = None

    def _watch(self) -> None:
        if not self._watching:
            self._watching = True
            threading.Thread(target=self._wait, name="time-limit", daemon=True).start()

    def _wait(self) -> None:
        never = threading.Event()
        while not never.wait(self._limit_s):
            since_s = self._since_s
            if since_s is not None and self._clock.monotonic() - since_s > self._limit_s * _GRACE:
                self._overdue()
                return


@contextmanager
def _interrupting(limit_s: float, clock: Clock) -> Iterator[None]:
    """Within, _Interrupted is raised when the time is over. Another timer of the process goes on behind it."""
    within = True

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        if within:
            raise _Interrupted

    begun_s = clock.monotonic()
    handler = signal.signal(signal.SIGALRM, interrupt)
    left_s, every_s = signal.setitimer(signal.ITIMER_REAL, limit_s, _AGAIN_S)
    try:
        yield
    finally:
        within = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left_s:
            signal.setitimer(signal.ITIMER_REAL, max(left_s - (clock.monotonic() - begun_s), 0.001), every_s)
