"""Shared by the probes of ``cdc check``: short timeouts, places without secrets, errors with the remedy."""

from __future__ import annotations

import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from cdc.process.errors import ConfigError, SinkError
from cdc.process.untrusted_text import quoted

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
