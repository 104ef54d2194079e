"""Read your own write, with connections kept between calls.

with Freshness(load(Path("cdc.toml"))) as freshness:
    ...                                             # write to Postgres, commit, take the token
    freshness.wait("cache", Lsn.parse(token))       # the cache now shows what was written
"""

from __future__ import annotations

from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Self

from cdc.dead import Parked
from cdc.epochs import EpochsState
from cdc.errors import CdcError, LogError, TopicError
from cdc.found import Unknown, look
from cdc.freshness import shows, wait_until_shown
from cdc.settings import Settings
from cdc.state import SlotState
from cdc.topic import dead_topic
from cdc.wiring import open_source, open_state, require_broker
from cdc.wiring.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdc.progress import Watermark
    from sinks.port import OpenSink


class Freshness:
    """Waits for stores of one pipeline. One thread at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._open = ExitStack()
        self._stores: dict[str, OpenSink] = {}
        self._epoch: int | None = None
        self.unsure = ""
        """What the last :meth:`wait` could not find out; empty when it knew all."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def wait(self, sink: str, lsn: int, *, timeout_s: float = 30.0) -> Watermark:
        """Return when ``sink`` shows every change committed below ``lsn``; see :mod:`cdc.freshness`.

        While the log does not answer, the epoch of the token is not known: the store's own word is taken then, see
        :attr:`unsure`. UsageError for an unknown sink, SinkError when the store does not answer, Difference after
        ``timeout_s``, LogError when the store does not show it and the log that could bring it does not answer.
        """
        from sinks.patience import looking

        with looking():
            watermarks = self._store(sink).watermarks
        epoch = self._epoch if self._epoch is not None else look(self._read_epoch)
        if isinstance(epoch, Unknown):
            with looking():
                held = watermarks.read()
            if held is None or not shows(held, lsn, None):
                raise epoch.because
            self.unsure = f"the pipeline's epoch is not known, {sink} is in epoch {held.epoch}: {epoch}"
            return held
        self._epoch, self.unsure = epoch, ""
        return wait_until_shown(sink, watermarks, lsn, epoch=epoch, timeout_s=timeout_s, nudge=self._nudge)

    def waiting(self, sink: str) -> Iterator[str]:
        """A sentence for each table that the sink holds and for each key that waits in its dead letters: they do not
        show what the LSN says."""
        mark = self._store(sink).watermarks.read()
        for hold in mark.held.values() if mark is not None else ():
            yield hold.sentence(sink)
        from connectors.kafka.letters import DeadLetterTopic

        try:
            require_broker(self._settings)
            letters = DeadLetterTopic(self._settings.log, dead_topic(self._settings.name)).read()
            for topic, keys in Parked(sink, letters).keys().items():
                for key in keys:
                    yield f"{sink} holds back {topic} {key.decode(errors='replace')}: cdc dead list says why"
        except TopicError:
            return
        except LogError as error:
            yield f"not known whether {sink} holds back a key: {error.message}"

    def _store(self, sink: str) -> OpenSink:
        if sink not in self._stores or not self._stores[sink].current():
            # Not yet, or another generation since it was rebuilt.
            store = open_store(sink, self._settings)
            self._open.callback(store.close)
            self._stores[sink] = store
        return self._stores[sink]

    def _read_epoch(self) -> int | None:
        require_broker(self._settings)
        held = open_state(self._settings).read()
        if self._settings.source.kind == "debezium":
            return (EpochsState.find(held) or EpochsState()).latest
        slot = SlotState.find(held)
        return slot.epoch if slot is not None else None

    def _nudge(self) -> None:
        """Write a fence, so that a quiet server's log moves past the token; without Postgres, do without."""
        with suppress(CdcError), closing(open_source(self._settings, application_name="cdc wait")) as connection:
            from connectors.postgres.cut import write_fence

            write_fence(connection)
