"""The writers' lock, from the side of ``cdc snapshot``.

Taken exclusively first: that proves that no capture runs and no worker of a killed run is left. Then kept shared,
beside the workers, until the snapshot is complete. Capture needs it exclusively.
"""

from __future__ import annotations

from cdc.clock import Clock
from cdc.errors import ActiveError
from snapshot.edges import Session
from snapshot.queries import Queries

_SQL = Queries(__package__)
TIMEOUT_S = 5.0
"""How long the rest of a killed run may take to go."""
_PAUSE_S = 0.1


def take_writers_lock(session: Session, lock: tuple[int, int], clock: Clock, timeout_s: float = TIMEOUT_S) -> None:
    """Take the lock for this session and leave it shared. ActiveError names who holds it past ``timeout_s``."""
    arguments = {"class": lock[0], "number": lock[1]}
    deadline = clock.monotonic() + timeout_s
    while not _SQL.one(session, "take_lock", **arguments)[0]:
        if clock.monotonic() >= deadline:
            holders = [f"{row.name}, pid {row.pid}" for row in _SQL.rows(session, "lock_holders", **arguments)]
            raise ActiveError(
                f"the pipeline's topics are being written by another session ({'; '.join(holders) or 'now gone'})",
                hint="one cdc snapshot or cdc run at a time: stop the other one, or wait for it",
            )
        clock.sleep(_PAUSE_S)
    # The same session may hold both, so there is no moment without the lock.
    _SQL.one(session, "share_lock", **arguments)
    _SQL.one(session, "give_lock_back", **arguments)
