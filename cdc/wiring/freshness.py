"""Read your own write, with connections kept between calls.

with Freshness(load_settings(Path("cdc.toml"))) as freshness:
    ...                                             # write to Postgres, commit, take the token
    freshness.wait("cache", Lsn.parse(token))       # the cache now shows what was written
"""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING

from cdc.clock import SYSTEM_CLOCK
from cdc.epochs import epoch_of
from cdc.errors import CdcError
from cdc.freshness.run import Ports, Waits
from cdc.settings import require_postgres
from cdc.topic import dead_topic
from cdc.wiring import open_source, open_state, require_broker
from sinks.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc.dead import DeadLetter
    from cdc.progress import Watermark
    from cdc.settings import Settings


class Freshness(Waits):
    """Waits for stores of the pipeline that the settings describe. A context; one thread at a time."""

    def __init__(self, settings: Settings) -> None:
        from sinks.patience import looking

        ports = Ports(
            open=lambda sink: open_store(sink, settings),
            briefly=looking,
            epoch=lambda: _read_epoch(settings),
            letters=lambda: _read_letters(settings),
            nudge=lambda: _nudge(settings),
        )
        super().__init__(ports, SYSTEM_CLOCK)
        self._settings = settings

    def wait(self, sink: str, lsn: int, *, timeout_s: float = 30.0) -> Watermark:
        """As :meth:`cdc.freshness.run.Waits.wait`; ConfigError where the source is another database than Postgres."""
        require_postgres(self._settings, "cdc wait")
        return super().wait(sink, lsn, timeout_s=timeout_s)


def _read_epoch(settings: Settings) -> int | None:
    require_broker(settings)
    return epoch_of(open_state(settings).read(), settings.source.kind)


def _read_letters(settings: Settings) -> Iterable[DeadLetter]:
    from connectors.kafka.letters import DeadLetterTopic

    require_broker(settings)
    return DeadLetterTopic(settings.log, dead_topic(settings.name)).read()


def _nudge(settings: Settings) -> None:
    """Write a fence; without Postgres, do without."""
    with suppress(CdcError), closing(open_source(settings, application_name="cdc wait")) as connection:
        from connectors.postgres.cut import write_fence

        write_fence(connection)
