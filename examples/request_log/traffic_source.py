"""A site's requests, as its servers would tell of them: one event each, by ``outbox.emit``.

    python -m examples.request_log.traffic_source DSN [SECONDS]

Some requests are told of late, and a few far too late. In the last third of the time the page ``/search`` is ill.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from cdc import outbox
from cdc.process.clock import SYSTEM_CLOCK, Clock

PATHS = ("/", "/search", "/cart")
PER_S = 20
LATE_S, TOO_LATE_S = 20, 3600


def requests(count: int, seed: int = 7) -> Iterator[dict[str, Any]]:
    """So many requests, without their times. ``late_s``: how long ago each was when it is told of."""
    chance = random.Random(seed)
    for number in range(count):
        path = chance.choices(PATHS, (5, 3, 2))[0]
        ill = path == "/search" and number > 2 * count // 3
        yield {
            "path": path,
            "status": 503 if chance.random() < (0.4 if ill else 0.01) else 200,
            "ms": round(chance.lognormvariate(5 if ill else 3, 0.5), 1),
            "user_id": f"u{chance.randint(1, 40)}",
            "late_s": chance.choices((0, LATE_S, TOO_LATE_S), (94, 5, 1))[0],
        }


def main(dsn: str, seconds: str = "300", *, clock: Clock = SYSTEM_CLOCK) -> int:
    """Tell of requests for so many seconds."""
    begin_s = clock.monotonic()
    with psycopg.connect(dsn, autocommit=True) as connection:
        for number, request in enumerate(requests(int(seconds) * PER_S)):
            clock.sleep(max(0.0, begin_s + number / PER_S - clock.monotonic()))
            at = datetime.now(UTC) - timedelta(seconds=request.pop("late_s"))
            with connection.transaction():
                outbox.emit(connection, "Request", request["path"], "Served", {"at": at.isoformat(), **request})
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
