"""The SQLSTATE with which Postgres refuses a connection.

psycopg gives no SQLSTATE for a connection that failed. libpq's trace of the messages from the server has it.
"""

from __future__ import annotations

import os
import re
import select
from contextlib import closing

from psycopg import pq
from psycopg.pq.abc import PGconn

_SILENCE_S = 10.0
_ANSWER = re.compile(rb'\tErrorResponse\t S "[^"]*"(?: V "[A-Z]+")? C "([0-9A-Z]{5})"')


def answer(conninfo: str) -> str:
    """The SQLSTATE with which a server refuses a connection now. Empty if it accepts one or does not answer."""
    # In memory: libpq writes all of the login there.
    with closing(os.fdopen(os.memfd_create("cdc-login"), "rb")) as trace:
        session = pq.PGconn.connect_start(conninfo.encode())
        try:
            if session.status != pq.ConnStatus.BAD:
                session.trace(trace.fileno())
                _finish(session)
                session.untrace()
        finally:
            session.finish()
        trace.seek(0)
        found = _ANSWER.findall(trace.read())
    return found[-1].decode() if found else ""


def _finish(session: PGconn) -> None:
    """Go on until the session is open or refused, or nothing has come for some seconds."""
    while (status := session.connect_poll()) in (pq.PollingStatus.READING, pq.PollingStatus.WRITING):
        line = [session.socket]
        reads, writes = (line, []) if status is pq.PollingStatus.READING else ([], line)
        if not any(select.select(reads, writes, [], _SILENCE_S)):
            return
