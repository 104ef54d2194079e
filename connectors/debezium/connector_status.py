"""A connector's status, a task's trace in one sentence, and the options that are secret. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cdc.process.errors import ConfigError
from cdc.process.untrusted_text import hide
from connectors.debezium.client import answering, entry, text

RUNNING, FAILED, PAUSED, STOPPED = "RUNNING", "FAILED", "PAUSED", "STOPPED"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """One task. ``trace``: the first line of its stack trace. ``cause``: the innermost one's words."""

    task: int
    state: str
    worker: str
    trace: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far the slot is behind: ``lag_bytes`` from confirmed_flush_lsn, ``retained_bytes`` of WAL kept for it."""

    slot: str
    active: bool
    wal_status: str | None
    lag_bytes: int | None
    retained_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorStatus:
    """The connector, its tasks, its stored offsets and, for Postgres, its slot."""

    name: str
    state: str
    worker: str
    trace: str = ""
    tasks: tuple[TaskStatus, ...] = ()
    offsets: tuple[dict[str, Any], ...] = field(default=())
    lag: Lag | None = None
    lag_unknown: str = ""
    """Why there is no lag."""

    @property
    def failed(self) -> tuple[TaskStatus, ...]:
        """The tasks that failed."""
        return tuple(task for task in self.tasks if task.state == FAILED)

    @property
    def runs(self) -> bool:
        """Whether the connector and at least one task run, and none has failed."""
        return self.state == RUNNING and bool(self.tasks) and all(task.state == RUNNING for task in self.tasks)

    @property
    def halted(self) -> bool:
        """Whether it was paused or stopped by a command, and waits for the next one."""
        return self.state in (PAUSED, STOPPED)

    @property
    def fault(self) -> str:
        """The failure, in the server's words. Empty where nothing did."""
        if self.state == FAILED:
            return self.trace
        return next((task.cause or task.trace for task in self.failed), "")

    def document(self) -> dict[str, Any]:
        """As ``cdc connect status --json`` prints it."""
        return asdict(self)


def parse_status(document: Mapping[str, Any]) -> ConnectorStatus:
    """``GET /connectors/NAME/status``. ConfigError where the answer has another form."""
    with answering("the connector's status"):
        connector = entry(entry(document)["connector"])
        return ConnectorStatus(
            name=text(document["name"]),
            state=text(connector["state"]),
            worker=text(connector.get("worker_id", "")),
            trace=first_line(text(connector.get("trace", ""))),
            tasks=tuple(_task(entry(task)) for task in document.get("tasks", ())),
        )


def _task(task: Mapping[str, Any]) -> TaskStatus:
    trace = text(task.get("trace", ""))
    return TaskStatus(
        task=int(task["id"]),
        state=text(task["state"]),
        worker=text(task.get("worker_id", "")),
        trace=first_line(trace),
        cause=cause(trace),
    )


HIDDEN = "***"
_REFERENCE = re.compile(r"\$\{[A-Za-z0-9_.-]+:(?:[^}$]|\$(?!\{))*\}")
_WORDS = r"pass(?:word|phrase|wd)|pwd|secret|token|credential|private[._-]?key|api[._-]?key|access[._-]?key"
_SECRET = re.compile(rf"{_WORDS}|jaas|keystore[._]key|user[._]info", re.IGNORECASE)
_ABOUT_A_SECRET = re.compile(
    r"[.](?:source|provider|class|type|location|path|file|enabled?|mechanism|algorithm|endpoint[.]url|ms|seconds)$"
)
"""Options that say where a secret is, or how it is used."""
_LOGIN = re.compile(r"://[^/?#\s:]*:[^@\s]")
_ORACLES_LOGIN = re.compile(r"jdbc:oracle:\w+:[^/@\s]+/[^@\s]+@", re.IGNORECASE)
_JAAS = re.compile(r"\s*[\w.$]+\s+(?:required|requisite|sufficient|optional)\s")
_NAMED = re.compile(rf"""(?:{_WORDS})\s*=\s*["']?[^\s"';&,]""", re.IGNORECASE)


def is_reference(value: str) -> bool:
    """Whether the value is one reference for a config provider of the worker, as ``${file:/path:key}``."""
    return _REFERENCE.fullmatch(value) is not None


def is_secret(option: str) -> bool:
    """Whether an option by this name holds a secret.

    >>> is_secret("value.converter.basic.auth.user.info"), is_secret("value.converter.basic.auth.credentials.source")
    (True, False)
    """
    return _SECRET.search(option) is not None and _ABOUT_A_SECRET.search(option) is None


def exposes(option: str, value: str) -> bool:
    """Whether a secret stands in the value as itself, by the option's name or as the login of a URL.

    >>> exposes("database.password", "${env:PASSWORD}"), exposes("database.password", "x${env:PASSWORD}")
    (False, True)
    >>> exposes("mongodb.connection.string", "mongodb://cdc:hunter2@db"), exposes("database.url", "jdbc:x://h?password=y")
    (True, True)
    """
    rest = _REFERENCE.sub("", value)
    if _has_login(rest) or (("://" in rest or rest.startswith("jdbc:")) and _NAMED.search(rest)):
        return True
    if not is_secret(option):
        return False
    if "jaas" in option.lower():
        return bool(rest.strip()) and (_JAAS.match(rest) is None or _NAMED.search(rest) is not None)
    if "user" in option.lower() and rest != value:
        rest = rest.partition(":")[2]  # the user's name may be read
    return bool(rest.strip())


def masked(option: str, value: str | None) -> str | None:
    """The value as it may be printed: ``***`` where a secret stands in it."""
    return HIDDEN if value is not None and exposes(option, value) else value


def refuse_plain_secrets(config: Mapping[str, str]) -> None:
    """ConfigError for a secret that stands as itself."""
    for option, value in config.items():
        if exposes(option, value):
            raise ConfigError(
                f"the connector option {option} must not hold the secret itself",
                hint='name where Kafka Connect finds it: "${file:/path/to.properties:key}" or "${env:NAME}"',
            )


def _has_login(value: str) -> bool:
    """Whether a URL in it has a password before its host, as ``scheme://user:password@host``."""
    for word in value.split():
        begun = _LOGIN.search(word)
        if begun is not None and "@" in word[begun.end() :]:
            return True
    return _ORACLES_LOGIN.match(value) is not None


RESTART = "mend the cause, then cdc connect restart; the worker's log has the whole trace"
_LONGEST = 400
_GONE = ", but this is no longer available"
_UNPARSED, _STATEMENT = "DDL statement couldn't be parsed.", " with the statement '"
_BEHIND_STATEMENT = re.compile(r"'(?: no viable| mismatched| extraneous| missing| token recognition)")
_IDENTIFIED = re.compile(r"(?i)(identified\s+(?:by|with|via|as)\b).*", re.DOTALL)
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
        told = f"Debezium could not parse the statement {_IDENTIFIED.sub(_WITHOUT, statement)}"
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
