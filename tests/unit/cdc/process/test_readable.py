"""Waiting for a socket, whatever its number."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
from collections.abc import Iterator

import pytest

from cdc.process.clock import readable

HIGH = 2000
"""Beyond what select(2) takes."""


@pytest.fixture
def pair() -> Iterator[tuple[int, socket.socket]]:
    """A high descriptor and the socket at its other end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, HIGH + 10), hard))
    ours, theirs = socket.socketpair()
    high = fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD, HIGH)
    ours.close()
    try:
        yield high, theirs
    finally:
        os.close(high)
        theirs.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_descriptor_beyond_the_reach_of_select(pair: tuple[int, socket.socket]) -> None:
    high, theirs = pair
    assert high >= HIGH
    assert not readable(high, 0)
    theirs.send(b"x")
    assert readable(high, None)


def test_the_other_ends_close_can_be_read(pair: tuple[int, socket.socket]) -> None:
    high, theirs = pair
    theirs.close()
    assert readable(high, 5)


def test_a_closed_descriptor_does_not_wait() -> None:
    ours, theirs = socket.socketpair()
    number = ours.fileno()
    ours.close()
    theirs.close()
    assert readable(number, None)
