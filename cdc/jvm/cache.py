"""Where downloads are kept, outside every checkout, so that tests, demo and the next clone share them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/headrace``, by default below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headrace"


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Hold ``lock`` while the body runs. Other processes wait here. Ends with the process, however that ends."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
