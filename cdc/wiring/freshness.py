"""Read your own write, with connections kept between calls.

with Freshness(load_settings(Path("cdc.toml"))) as freshness:
    ...                                             # write to Postgres, commit, take the token
    freshness.wait("cache", Lsn.parse(token))       # the cache now shows what was written
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cdc.freshness.run import WaitPorts, Waits
from cdc.process.clock import SYSTEM_CLOCK
from cdc.settings.model import require_postgres
from sinks.contract.stores import open_store, sink_settings

if TYPE_CHECKING:
    from cdc.settings.model import Settings


class Freshness(Waits):
    """Waits for stores of the pipeline that the settings describe. A context. One thread at a time."""

    def __init__(self, settings: Settings) -> None:
        from connectors.operate.wait import nudge, read_epoch, read_letters, topic_of
        from sinks.contract.tries import looking

        ports = WaitPorts(
            open=lambda sink: open_store(sink, settings),
            briefly=looking,
            epoch=partial(read_epoch, settings),
            letters=partial(read_letters, settings),
            nudge=partial(nudge, settings),
            require=partial(require_postgres, settings, "cdc wait"),
            place=lambda sink, table: topic_of(settings, sink_settings(sink, settings).tables, table),
        )
        super().__init__(ports, SYSTEM_CLOCK)
