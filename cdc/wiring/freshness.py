"""Read your own write, with connections kept between calls.

with Freshness(load_settings(Path("cdc.toml"))) as freshness:
    ...                                             # write to Postgres, commit, take the token
    freshness.wait("cache", Lsn.parse(token))       # the cache now shows what was written
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cdc.clock import SYSTEM_CLOCK
from cdc.freshness.run import WaitPorts, Waits
from cdc.settings import require_postgres
from sinks.stores import open_store

if TYPE_CHECKING:
    from cdc.progress import Watermark
    from cdc.settings import Settings


class Freshness(Waits):
    """Waits for stores of the pipeline that the settings describe. A context. One thread at a time."""

    def __init__(self, settings: Settings) -> None:
        from connectors.freshness import nudge, read_epoch, read_letters
        from sinks.store_retry import looking

        ports = WaitPorts(
            open=lambda sink: open_store(sink, settings),
            briefly=looking,
            epoch=partial(read_epoch, settings),
            letters=partial(read_letters, settings),
            nudge=partial(nudge, settings),
        )
        super().__init__(ports, SYSTEM_CLOCK)
        self._settings = settings

    def wait(self, sink: str, lsn: int, *, timeout_s: float = 30.0) -> Watermark:
        """As :meth:`cdc.freshness.run.Waits.wait`. ConfigError where the source is another database than Postgres."""
        require_postgres(self._settings, "cdc wait")
        return super().wait(sink, lsn, timeout_s=timeout_s)
