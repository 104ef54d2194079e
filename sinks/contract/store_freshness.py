"""Read your own write with the store alone: no settings, no Kafka, no Postgres, no secrets but the store's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as Late
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from typing import Self, TypeVar

from cdc.freshness.bounded_ports import LOOK_S, OpenedStore
from cdc.freshness.rules import EpochLsn, TokenWait, Wanted, bounded, named_tables
from cdc.freshness.run import POLLERS, WatermarkPoller
from cdc.process.errors import CdcError, ConfigError, SinkError, UsageError
from cdc.process.untrusted_text import remember
from cdc.record.progress import Watermark
from cdc.record.tokens import Token
from sinks.contract.attempt_limits import looking
from sinks.contract.kinds import spec_for
from sinks.contract.sink_spec import Option, SinkSpec, open_sink

T = TypeVar("T")
_ONCE_S = 2 * LOOK_S
"""For one look: it may begin behind another one, which ends within its limit."""
_GONE_S = 1.0


class _Followed:
    """A store that a process waits for. Any number of threads and event loops share one poller."""

    def __init__(
        self,
        kind: str,
        name: str,
        *,
        password: str | None = None,
        secrets: Mapping[str, str] | None = None,
        **options: Option,
    ) -> None:
        """``kind``: of the store, as in the settings. ``name``: the pipeline's, or the sink's ``prefix``.

        ``options``: as in the section of the sink, such as ``url`` or ``path``. ``secrets``: by option, those beside
        the password. Nothing is connected yet. ConfigError when there is no such kind.
        """
        given = {**(secrets or {}), **({"password": password} if password is not None else {})}
        self._follow(spec_for(kind, prefix=name, options=options, secrets=given), f"the {kind} store of {name}")

    @classmethod
    def of(cls, spec: SinkSpec, named: str, connect: Callable[[SinkSpec], OpenedStore] = open_sink) -> Self:
        """The same for a store that is described already. ``named``: what errors call it. ``connect`` opens it."""
        made = cls.__new__(cls)
        made._follow(spec, named, connect)
        return made

    def _follow(self, spec: SinkSpec, named: str, connect: Callable[[SinkSpec], OpenedStore] = open_sink) -> None:
        remember(spec.secrets.values())
        self._named = named
        for option, value in spec.options.items():
            if not isinstance(value, str | int | float | bool | None):
                raise ConfigError(
                    f"the option {option} is a {type(value).__name__}", hint="write a text, a number or a truth value"
                )
        self._key = spec.kind, spec.prefix, *sorted(spec.options.items()), *sorted(spec.secrets.items())
        self._poller = POLLERS.join(self._key, lambda: WatermarkPoller(lambda: connect(spec), looking))
        self._open = True

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._poller.dismiss(self, self._closed())
            POLLERS.leave(self._key)

    def _closed(self) -> SinkError:
        return SinkError(f"{self._named} is not followed any more: the Freshness was closed")

    def _wait(self, token: Token | EpochLsn, timeout_s: float, tables: Iterable[str]) -> tuple[TokenWait, float]:
        """Somebody who waits, and for how long."""
        if not isinstance(token, Token | EpochLsn):
            raise UsageError("only a token can be waited for", hint="Token.parse reads it back from its text")
        once = bounded(timeout_s) == 0
        wanted = Wanted(self._named, token, named_tables(tables), once)
        return TokenWait(wanted, self), _ONCE_S if once else timeout_s

    def _ask(self, wait: TokenWait) -> Future[Watermark]:
        if not self._open:
            raise self._closed()
        return self._poller.ask(wait)


class StoreFreshness(_Followed):
    """Waits until a store shows a token. A context. Threads share it.

    All of them in one process are served by one poller per store, which looks at the watermark only while somebody
    waits. Behind a fork the child has a poller and connections of its own.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait no more: a wait that is under way ends with SinkError. The last one of a store closes its connections.
        Again is nothing."""
        self._close()

    def wait(self, token: Token, *, timeout_s: float = 2.0, tables: Iterable[str] = ()) -> Watermark:
        """Return the watermark once the store shows everything below ``token``, within ``timeout_s`` seconds.

        0 looks once. ``tables``: as ``schema.table`` or ``view.NAME``, the ones that are read. Unless given, a table
        that the store holds back counts whichever it is. NotShown after the time, also for a table that the store does
        not read, and at once where waiting is of no use. SinkError, within a second or so, where the store does not
        answer, FormatError and DamagedError where its watermark cannot be understood. It never returns for another
        server's token. UsageError where ``timeout_s`` or ``tables`` do not fit.
        """
        return self.wait_for(token, timeout_s, tables)

    def wait_for(
        self,
        token: Token | EpochLsn,
        timeout_s: float,
        tables: Iterable[str],
        gone: Callable[[], bool] = lambda: False,
    ) -> Watermark:
        """The same, also for an LSN of one of the pipeline's epochs. ``gone``: whether nobody waits any more. It is
        asked once a second, and ends the wait as its time does."""
        wait, within_s = self._wait(token, timeout_s, tables)
        try:
            asked = self._ask(wait)
            while within_s > _GONE_S and not gone():
                with suppress(Late):
                    return asked.result(_GONE_S)
                within_s -= _GONE_S
            return asked.result(0 if gone() else within_s)
        except (Late, CancelledError):
            raise wait.late(timeout_s) from None
        finally:
            self._poller.forget(wait)

    @contextmanager
    def reading(
        self,
        token: Token | None,
        store: T,
        otherwise: Callable[[], AbstractContextManager[T]],
        *,
        timeout_s: float = 0.2,
        tables: Iterable[str] = (),
        told: Callable[[CdcError], object] = lambda _: None,
    ) -> Iterator[T]:
        """A context of ``store`` if it shows ``token`` within ``timeout_s``, else of ``otherwise()``, which is closed
        behind it. ``otherwise`` reads from Postgres, by a class of the program's with the methods of ``store``.

        ``token``: None where the reader has written nothing: the store is taken then, and nothing is asked.
        ``tables``: as in :meth:`wait`. ``told`` gets why the store is not read: any CdcError of the look, but for the
        UsageError of a call that does not fit, which is raised. Raises what ``otherwise`` raises.
        """
        shown = True
        if token is not None:
            try:
                self.wait(token, timeout_s=timeout_s, tables=tables)
            except UsageError:
                raise
            except CdcError as why:
                shown = False
                told(why)
        with nullcontext(store) if shown else otherwise() as reader:
            yield reader


class AsyncFreshness(_Followed):
    """The same for asyncio: ``await freshness.wait(token)``. An asynchronous context. Any event loop."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """As :meth:`StoreFreshness.close`. The event loop goes on meanwhile."""
        await asyncio.to_thread(self._close)

    async def wait(self, token: Token, *, timeout_s: float = 2.0, tables: Iterable[str] = ()) -> Watermark:
        """As :meth:`StoreFreshness.wait`, and raises as that."""
        wait, within_s = self._wait(token, timeout_s, tables)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self._ask(wait)), within_s)
        except TimeoutError:
            raise wait.late(timeout_s) from None
        finally:
            self._poller.forget(wait)

    @asynccontextmanager
    async def reading(
        self,
        token: Token | None,
        store: T,
        otherwise: Callable[[], AbstractAsyncContextManager[T]],
        *,
        timeout_s: float = 0.2,
        tables: Iterable[str] = (),
        told: Callable[[CdcError], object] = lambda _: None,
    ) -> AsyncIterator[T]:
        """As :meth:`StoreFreshness.reading`. ``otherwise`` makes an asynchronous context."""
        shown = True
        if token is not None:
            try:
                await self.wait(token, timeout_s=timeout_s, tables=tables)
            except UsageError:
                raise
            except CdcError as why:
                shown = False
                told(why)
        async with nullcontext(store) if shown else otherwise() as reader:
            yield reader
