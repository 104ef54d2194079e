"""The time of a group's window: the one column of its key by which windows close. Pure.

A window closes ``close`` behind the time in that column, by the commit times of the source.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cdc.errors import ConfigError
from cdc.views.calendar_days import DAY, INFINITY, SECOND, timestamp_text
from cdc.views.refused import NotComputable
from cdc.views.sql_types import Group, SqlType
from cdc.views.stored_values import stored
from cdc.views.view_plan import ViewPlan

_TIMES = (Group.DATE, Group.TIMESTAMP, Group.TIMESTAMPTZ)


@dataclass(frozen=True, slots=True)
class WindowKey:
    """``place``: of the column with the time in the view's key. ``close_us``: for so long behind it a window is open,
    in microseconds. ``flag``: the name of the view's column that is true in the last figure, empty for none."""

    place: int
    kind: SqlType
    close_us: int
    flag: str = ""

    def time_us(self, key: tuple[Any, ...]) -> int | None:
        """The time of a group, in microseconds since 1970. None for NULL and for infinity: such a group never closes.

        >>> WindowKey(1, SqlType("date"), 0).time_us((7, 1))
        86400000000
        """
        value = key[self.place]
        if value is None or abs(value) >= INFINITY:
            return None
        return int(value) * DAY if self.kind.group is Group.DATE else int(value)

    def of_store_key(self, key: str) -> int:
        """The time of a group by its key in a store. Beyond all others where it has none, or the key is none of ours.

        >>> WindowKey(1, SqlType("timestamp"), 0).of_store_key("7:1970-01-01T00%3A00%3A01Z")
        1000000
        >>> WindowKey(0, SqlType("date"), 0).of_store_key("%null") == INFINITY
        True
        """
        parts = key.split(":")
        convert = stored(self.kind)
        assert convert is not None
        try:
            text = parts[self.place].replace("%3A", ":").replace("%25", "%")
            time_us = self.time_us((*parts[: self.place], convert(text)))
        except (IndexError, ValueError, NotComputable):
            time_us = None
        return INFINITY if time_us is None else time_us


def window_key(view: str, plan: ViewPlan, close: timedelta, column: str = "") -> WindowKey | None:
    """How the windows of a view close, from ``[views.NAME] close`` and ``window``. None where they do not.

    ConfigError where the view has no such column.
    """
    if not close:
        if column:
            raise ConfigError(f"[views.{view}] window names a column, and there is no close", hint='close = "7d"')
        return None
    if plan.grouping is None:
        raise ConfigError(
            f"[views.{view}] close: the view has no groups, and windows are keys of groups",
            hint="leave close out, or group by a window such as date_bin('1 day', …)",
        )
    names = [output for _, output in plan.key]
    times = [name for name, kind in zip(names, plan.grouping.keys, strict=True) if kind.group in _TIMES]
    if column and column not in times:
        raise ConfigError(
            f"[views.{view}] window: {column} is no date or timestamp in the view's key",
            hint=f"such columns of its key: {', '.join(times) or 'none'}",
        )
    if len(times) != 1 and not column:
        found = "several columns of the view's key have" if times else "no column of the view's key has"
        raise ConfigError(
            f"[views.{view}] close: {found} a time",
            hint=f'window = "{times[0]}" says which one' if times else "a window is a date or timestamp of GROUP BY",
        )
    place = names.index(column or times[0])
    flag = next((n for n, kind in plan.outputs if n == "final" and kind.group is Group.BOOLEAN), "")
    close_us = round(close.total_seconds() * 1_000_000)
    return WindowKey(place, plan.grouping.keys[place], close_us, "" if flag in names else flag)


def time_text(us: int) -> str:
    """Microseconds since 1970 in UTC, ISO 8601, whole seconds.

    >>> time_text(86_400_000_000)
    '1970-01-02T00:00:00Z'
    """
    return timestamp_text(us - us % SECOND, "T", "Z")
