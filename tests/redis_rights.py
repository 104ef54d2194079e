"""A cache's users with the rights that the manual gives them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from urllib.parse import urlsplit, urlunsplit

import redis

RIGHTS = Path(__file__).parents[1] / "compose" / "rights" / "redis.acl"


def as_default(redis_url: str) -> str:
    """The same cache for the user who may do everything."""
    parts = urlsplit(redis_url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def rights(user: str) -> list[str]:
    """The rules of a user in the file that is shipped, without the password."""
    lines = [line.split() for line in RIGHTS.read_text(encoding="utf-8").splitlines()]
    (words,) = [words[2:] for words in lines if words[:2] == ["user", user]]
    return [word for word in words if not word.startswith(">")]


@contextmanager
def least_user(redis_url: str, user: str, *, refused: bool = False) -> Iterator[str]:
    """A url of the same cache with a login that has these rights alone: on ``shop``, and on fresh corners of it
    (``shop0x``). Fails at the end if it was refused anything, or, with ``refused``, nothing."""
    name, password = f"{user}_{token_hex(4)}", token_hex(12)
    parts = urlsplit(redis_url)
    with redis.Redis.from_url(redis_url) as admin:
        corners = [word.replace("shop", "shop[0-9]*x") for word in rights(user) if "~shop" in word]
        admin.execute_command("ACL", "SETUSER", name, *rights(user), *corners, f">{password}")
        yield urlunsplit(parts._replace(netloc=f"{name}:{password}@{parts.netloc}"))
        found = [entry for entry in admin.acl_log() if entry["username"] == name]
        admin.acl_deluser(name)
        assert bool(found) == refused, f"{user} was refused: {found}"
