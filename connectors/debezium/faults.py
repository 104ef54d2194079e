"""A task's trace in one sentence, and what helps: Java's words cut to what a person can use, without secrets."""

from __future__ import annotations

import re

from cdc.foreign import hide

RESTART = "mend the cause, then cdc connect restart; the worker's log has the whole trace"
_LONGEST = 400
_GONE = ", but this is no longer available"
_UNPARSED, _STATEMENT = "DDL statement couldn't be parsed.", " with the statement '"
_BEHIND_STATEMENT = re.compile(r"'(?: no viable| mismatched| extraneous| missing| token recognition)")
_LOGIN = re.compile(r"(?i)(identified\s+(?:by|with|via|as)\b).*", re.DOTALL)
_WITHOUT = r"\1 ***"


def first_line(trace: str) -> str:
    r"""The first line of the trace. Empty for no trace.

    >>> first_line("a.B: outer\n\tat x")
    'a.B: outer'
    """
    return _shown(_messages(trace)[0]) if trace.strip() else ""


def cause(trace: str) -> str:
    r"""The innermost ``Caused by`` that says something, without its class's package. Empty where none does.

    >>> cause("a.B: outer\n\tat x\nCaused by: org.c.PSQLException: no slot\n\tat y\nCaused by: d.NoWords\n\tat z")
    'PSQLException: no slot'
    """
    causes = [text.removeprefix("Caused by: ") for text in _messages(trace) if text.startswith("Caused by: ")]
    telling = next((text for text in reversed(causes) if ": " in text), causes[-1] if causes else "")
    name, colon, words = telling.partition(": ")
    return _shown(f"{name.rsplit('.', 1)[-1]}{colon}{words}")


_ADVICE = {
    "could not parse the statement": (
        'if it changes no captured table: "schema.history.internal.skip.unparseable.ddl" = "true" in '
        "[debezium.options] and cdc connect deploy; else write the change in another way, and begin anew by "
        "cdc connect resnapshot, which reads every table again"
    ),
    "schema isn't known to this connector": (
        "the schema history lacks that table: cdc connect deploy, so that all tables are kept, then cdc connect "
        "resnapshot, which reads every table again"
    ),
    '"this.gtidSet" is null': (
        "the server had no GTID when the connector began, as after RESET MASTER; it has one now, so that cdc connect "
        "restart begins anew"
    ),
    "without key": "that topic's table has no primary key: give it one, or exclude it and run cdc connect deploy",
    "no longer available on the server": (
        "what was changed since then cannot be read any more: cdc connect resnapshot reads every table again"
    ),
}
"""Words of a fault -> what to do about it."""


def advice(fault: str) -> str:
    """The advice for a fault that is known by its words. Else to remove the cause."""
    return next((what for words, what in _ADVICE.items() if words in fault), RESTART)


def _messages(trace: str) -> list[str]:
    """The exceptions of a trace, each with all lines of its message and none of its frames."""
    found: list[str] = []
    within = False
    for line in trace.strip().splitlines():
        if line.startswith(("\tat ", "\t... ", "\tSuppressed:")):
            within = False
        elif line.startswith("Caused by: ") or not found:
            found.append(line.strip())
            within = True
        elif within:
            found[-1] += " " + line.strip()
    return found


def _shown(message: str) -> str:
    told = _without_offset(message)
    statement = _unparsed(told)
    if statement is not None:
        told = f"Debezium could not parse the statement {_LOGIN.sub(_WITHOUT, statement)}"
    shown = hide(told)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST].rstrip()} ..."


def _without_offset(message: str) -> str:
    """The same with the offset that is gone named in words. It takes half a page as Debezium prints it."""
    begin, end = message.find("starting at "), message.rfind(_GONE)
    if "OffsetContext" not in message[max(begin, 0) : max(end, 0)]:
        return message
    return f"{message[:begin]}starting at the stored offset{message[end:]}"


def _unparsed(message: str) -> str | None:
    """The statement that Debezium's parser did not take. None where the message is of something else."""
    _, _, behind = message.partition(_UNPARSED)
    _, quote, rest = behind.partition(_STATEMENT)
    found = _BEHIND_STATEMENT.search(rest)
    if found is not None:
        return rest[: found.start()]
    return rest[:-1] if quote and rest.endswith("'") else None
