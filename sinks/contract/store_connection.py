"""The way to a store: tried again while it is out of reach, longer and longer, for a bounded time, then one sentence
with the remedy and without secrets."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import tenacity

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, ConfigError, Exit, Retry, SinkError
from cdc.process.logs import LoggedCauses
from cdc.process.untrusted_text import quoted
from sinks.contract.attempt_limits import tries
from sinks.contract.port import StoreAway

T = TypeVar("T")
log = logging.getLogger("headrace.sinks")

_FIRST_S = 0.1
_LONGEST_S = 5.0
_ATTEMPTS = 10
"""About 25 seconds in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRetry:
    """How often a store is tried. ``store``: what to call it in messages. Never with a secret in it.

    ``passing``: exceptions that may pass by themselves. ``explain``: the SinkError that any exception of the
    client stands for.
    """

    store: str
    passing: tuple[type[Exception], ...]
    explain: Callable[[Exception], SinkError]
    clock: Clock = SYSTEM_CLOCK
    attempts: int = _ATTEMPTS
    logged: LoggedCauses = field(default_factory=LoggedCauses, compare=False, repr=False)

    def call(self, act: Callable[[], T], *, again: Callable[[], object] | None = None) -> T:
        """``act``'s result. ``again`` is called before each repetition. SinkError when it goes on failing."""

        def before(state: tenacity.RetryCallState) -> None:
            failure = state.outcome.exception() if state.outcome is not None else None
            error = type(failure).__name__
            if self.logged.is_new(self.store, error):
                log.warning("store_unreachable", extra={"store": self.store, "error": error})
            if again is not None:
                again()

        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(tries(self.attempts)),
            wait=tenacity.wait_random_exponential(multiplier=_FIRST_S, max=_LONGEST_S),
            retry=tenacity.retry_if_exception_type(self.passing),
            sleep=self.clock.sleep,
            before_sleep=before,
            reraise=True,
        )
        try:
            done = retrying(act)
        except CdcError:
            raise
        except Exception as error:
            raise self.explain(error) from None
        self.logged.over(self.store)
        return done


def unreachable(store: str, why: str, *, setting: str = "url") -> SinkError:
    """The server does not answer."""
    return StoreAway(
        f"{store} cannot be reached: {brief(why)}",
        hint=f"check the sink's {setting}, and that the server runs and can be reached from here",
    )


def login_refused(store: str, why: str, *, retry: Retry = Retry.SECRET) -> SinkError:
    """The server answers and does not let us in. ``retry``: NEVER where it knows us, and a right is missing."""
    return SinkError(
        f"{store} refuses the login: {brief(why)}",
        hint='check the sink\'s user, and its password = "env:NAME", "file:PATH" or "command:PROGRAM"',
        retry=retry,
        exit=Exit.CONFIG,
    )


def brief(reason: str) -> str:
    """The first line of what a client says, and not much of it. See :func:`cdc.process.untrusted_text.quoted`."""
    return quoted(reason)


TIMEOUT_S = 5.0
ELSEWHERE = "check the port in the sink's url: another server may listen there"
"""The remedy where what answers is no such store."""


def place(url: str, like: tuple[str, ...] = ()) -> str:
    """Host and port of a URL, without anything secret.

    ``like``: an example for each scheme that may be, the first for the hint. Empty: any. ConfigError when it is
    no such URL.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "localhost", parts.port
    except ValueError:
        # The reason that Python gives may quote a password with a slash in it.
        raise bad_url("its host or port cannot be read", like) from None
    schemes = [example.partition("://")[0] for example in like]
    if like and parts.scheme not in schemes:
        raise bad_url(f"it begins with none of {', '.join(f'{scheme}://' for scheme in schemes)}", like)
    return f"{host}:{port}" if port else host


def bad_url(why: str, like: tuple[str, ...]) -> ConfigError:
    """The error for a URL that is none. Names nothing of it, for it may hold a password."""
    hint = f'write url = "{like[0]}"' if like else "write scheme://user@host:port/..., with a port up to 65535"
    return ConfigError(f"the sink's url cannot be used: {why}", hint=hint)


def login(where: str, reason: str) -> ConfigError:
    """The error for a login that was refused."""
    return ConfigError(
        f"{where} refuses the login: {quoted(reason)}", hint='set password = "env:NAME" or "file:PATH" for this sink'
    )


def stranger(protocol: str, where: str, hint: str = ELSEWHERE) -> ConfigError:
    """The error for a server that answers, and not as such a store does."""
    return ConfigError(f"what answers at {where} does not speak {protocol}", hint=hint)


def unreached(product: str, where: str, reason: str, setting: str) -> SinkError:
    """The error for a server that does not answer. ``setting``: what names it."""
    return SinkError(
        f"cannot reach {product} at {where}: {quoted(reason)}",
        hint=f"check the sink's {setting}, and that the server runs and can be reached from here",
    )


def require_folder(folder: Path) -> None:
    """ConfigError unless the folder, or the nearest one above it that exists, can be written."""
    nearest = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    if not nearest.is_dir():
        raise ConfigError(f"the folder {folder} cannot be made: {nearest} is a file", hint="name a folder in path")
    try:
        # Asked by doing it: what a user may not write is not all that cannot be written.
        with tempfile.TemporaryDirectory(prefix=".cdc-", dir=nearest):
            pass
    except OSError as error:
        raise ConfigError(
            f"the folder {folder} cannot be written: {error.strerror}",
            hint=f"give this user the right to write {nearest}, or name another folder in path",
        ) from None
