"""A secret by reference: where ``env:NAME``, ``file:PATH`` and ``command:PROGRAM`` are read.

Executors import this, and no settings."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from cdc.errors import ConfigError, Retry
from cdc.foreign import quoted, remember

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
