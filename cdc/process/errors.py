"""Everything that can stop Headrace, as one sentence, a hint and an exit code.

Only the command line turns these into text. A traceback on a user's screen is a bug.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum


class Exit(IntEnum):
    """Exit codes of ``cdc``. 64 and above ask a supervisor not to restart, except 69."""

    OK = 0
    DIFFERENCE = 1
    """A limit was passed or a difference found."""
    USAGE = 64
    POISON = 65
    """A record cannot be carried and the policy is to stop."""
    UNAVAILABLE = 69
    """A server did not answer in time. A restart is useful."""
    BUG = 70
    CONFIG = 78
    SLOT = 80
    """The slot is lost, missing or ahead of us."""
    IDENTITY = 81
    """Another server, timeline or database answers behind the same address."""
    TOPIC = 82
    """A topic is not as it was made, or is another one."""
    ACTIVE = 83
    """Another instance is running."""
    FORMAT = 84
    """A stored document has another format than this Headrace reads."""


class Retry(Enum):
    """When trying again can help."""

    NOW = "now"
    LATER = "later"
    SECRET = "secret"
    """For some minutes, with the secret read anew: a server has refused a login, or nothing gave the secret."""
    NEVER = "never"


class CdcError(Exception):
    """Base of all. ``message``: one sentence without a final period's context. ``hint``: what to do about it."""

    exit = Exit.BUG
    retry = Retry.NEVER
    others: Sequence[CdcError] = ()
    """Faults found beside this one, each with its own hint."""

    def __init__(self, message: str, *, hint: str = "", retry: Retry | None = None, exit: Exit | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if retry is not None:
            self.retry = retry
        if exit is not None:
            self.exit = exit

    @property
    def advice(self) -> str:
        """The message with its hint behind it, for a place that has one line."""
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UsageError(CdcError):
    """The command was called with arguments that do not fit."""

    exit = Exit.USAGE


class ConfigError(CdcError):
    """The settings, or what was prepared on a server, do not fit what was asked for."""

    exit = Exit.CONFIG


class SourceError(CdcError):
    """Postgres refused or could not be reached."""

    exit = Exit.UNAVAILABLE
    retry = Retry.LATER


class SlotError(SourceError):
    """The replication slot cannot give what we need. Nothing may be skipped, so capture stops."""

    exit = Exit.SLOT
    retry = Retry.NEVER


class IdentityError(SourceError):
    """The server is not the one the pipeline was made on."""

    exit = Exit.IDENTITY
    retry = Retry.NEVER


class ActiveError(SourceError):
    """Another instance holds the slot or the lock."""

    exit = Exit.ACTIVE
    retry = Retry.LATER


class DecodeError(CdcError):
    """Bytes from Postgres that the decoder does not understand: a bug here or a new Postgres."""

    exit = Exit.POISON


class PoisonError(CdcError):
    """A record that cannot be carried (too large for the broker, not encodable) under the policy ``stop``."""

    exit = Exit.POISON


class LogError(CdcError):
    """Kafka refused or could not be reached."""

    exit = Exit.UNAVAILABLE
    retry = Retry.LATER


class TopicError(LogError):
    """A topic is missing, has another policy or partition count, or was made anew."""

    exit = Exit.TOPIC
    retry = Retry.NEVER


class FormatError(CdcError):
    """A stored document has another format than this version reads. Nothing of it may be guessed."""

    exit = Exit.FORMAT

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="run the version of Headrace that wrote it; see cdc --version")


class DamagedError(CdcError):
    """A stored document is not what any version of Headrace writes."""

    exit = Exit.POISON

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="something else wrote there, or it is damaged; restore it from a backup")


class SinkError(CdcError):
    """A store refused or could not be reached."""

    exit = Exit.UNAVAILABLE
    retry = Retry.LATER


class DifferenceFound(CdcError):
    """A limit was passed or a difference found: not a failure of ours, but exit code 1."""

    exit = Exit.DIFFERENCE
