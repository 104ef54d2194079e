"""A secret by reference: ``env:NAME``, ``file:PATH``, ``command:PROGRAM``, and how long a refused one is read anew."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from cdc.process.clock import Clock
from cdc.process.errors import CdcError, ConfigError, Retry
from cdc.process.untrusted_text import quoted, remember

REFERENCES = ("env:", "file:", "command:")
"""How a reference begins."""
COMMAND_LIMIT_S = 20.0
"""How long a command may take to print its secret."""


def reveal(reference: str) -> str:
    """The secret itself, read now, so that a rotated one is picked up.

    ConfigError names the variable, file or program that does not give it, never a value. A file or a program may give
    it later: then ``retry`` is SECRET.
    """
    kind, _, where = reference.partition(":")
    revealed = _READERS[kind](where)
    remember([revealed], origin=reference)
    return revealed


def _from_environment(name: str) -> str:
    if name not in os.environ:
        raise ConfigError(f"the environment variable {name} is not set", hint=f"export {name}=... first")
    return os.environ[name]


def _from_file(path: str) -> str:
    hint = 'write the secret alone into that file, readable by you alone; or use "env:NAME"'
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        why = f"the secret file {path} cannot be read: {error.strerror}"
        raise ConfigError(why, hint=hint, retry=Retry.SECRET) from None
    except UnicodeDecodeError:
        raise ConfigError(f"the secret file {path} is not UTF-8 text", hint=hint) from None


def _from_command(line: str) -> str:
    """The program's output, without the end of its last line. No shell reads ``line``."""
    try:
        done = subprocess.run(
            shlex.split(line),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_LIMIT_S,
            check=False,
        )
        revealed = done.stdout.decode().rstrip("\r\n")
    except subprocess.TimeoutExpired:
        raise _no_secret(line, f"has not ended after {COMMAND_LIMIT_S:g} s") from None
    except UnicodeDecodeError:
        raise _no_secret(line, "prints what is not UTF-8 text") from None
    except (OSError, ValueError, IndexError) as error:
        why = f"cannot be run: {quoted(getattr(error, 'strerror', None) or str(error))}"
        raise _no_secret(line, why, retry=Retry.NEVER) from None
    if done.returncode != 0:
        # A program that fails may have printed the secret on either side.
        remember([revealed], origin=line)
        raise _no_secret(line, f"ends with exit code {done.returncode}: {quoted(done.stderr.decode(errors='replace'))}")
    if not revealed:
        raise _no_secret(line, "prints nothing")
    return revealed


def _no_secret(line: str, why: str, *, retry: Retry = Retry.SECRET) -> ConfigError:
    return ConfigError(
        f"the command {quoted(line)} for a secret {why}",
        hint="run it by hand as the user that runs cdc: it has to print the secret alone, and end with exit code 0",
        retry=retry,
    )


_READERS = {"env": _from_environment, "file": _from_file, "command": _from_command}


# How long a refused login is tried again, with its secret read anew each time.
#
# Passwords and tokens rotate: a server may know the next one before its file is written, or only some time after.

T = TypeVar("T")
_AGAIN_S = 1.0

SHORT_S = 15.0
"""Of a command, and of a process that starts: somebody waits for it."""
LONG_S = 300.0
"""Of a process that has worked before: the secret was right then."""


class RefusedLogin:
    """The refusals since a login was last accepted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limit_s = SHORT_S
        self._since_s: float | None = None

    def may_pass(self, error: CdcError) -> bool:
        """Whether the login that failed with this error is to be tried again."""
        if error.retry is not Retry.SECRET:
            return False
        now_s = self._clock.monotonic()
        self._since_s = now_s if self._since_s is None else self._since_s
        return now_s - self._since_s <= self._limit_s

    def over(self) -> None:
        """A login was accepted."""
        self._since_s, self._limit_s = None, LONG_S


def patiently(act: Callable[[], T], clock: Clock) -> T:
    """The result of ``act``, which reads its secret itself: again for :data:`SHORT_S` while a login is refused."""
    login = RefusedLogin(clock)
    while True:
        try:
            return act()
        except CdcError as error:
            if not login.may_pass(error):
                raise
        clock.sleep(_AGAIN_S)
