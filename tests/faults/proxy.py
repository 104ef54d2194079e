"""A TCP proxy that breaks what goes through it, in every way a network does: the project's own, for any link.

It stands before Postgres, Kafka, Redis or OpenSearch. Kafka tells its clients where to connect, so the proxy puts its
own port where the broker names its own (the text of an address and the number behind it keep their lengths).
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, TypeVar

T = TypeVar("T")
LOOPBACK = "127.0.0.1"
_BLOCK = 64 * 1024
_STALL_TURN_S = 0.05
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of zero: close() sends RST."""

Way = Literal["up", "down"]
"""``up``: from the client to the server."""


@dataclass(slots=True)
class Fault:
    """What is done to the bytes; the default is nothing.

    ``refuse``: new connections are reset. ``stall``: bytes are taken from nobody, and nobody is told. ``one_way``: the
    stall is of this direction alone. ``delay_s`` before each block. ``cut_after``: so many bytes pass (both ways, on
    each connection), then the connection is reset in the middle of whatever it was. ``block``: at most so many bytes
    at once, for a reader that takes a message for one read.
    """

    refuse: bool = False
    stall: bool = False
    one_way: Way | None = None
    delay_s: float = 0.0
    cut_after: int | None = None
    block: int = _BLOCK


@dataclass(eq=False, slots=True)
class _Link:
    """One connection. ``passed``: bytes so far."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    passed: int = 0
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class Proxy:
    """Listens on a port of its own and passes everything on to ``target``; a context. Its faults may be set from any
    thread, and hold for connections that are there and for new ones."""

    def __init__(self, target_port: int, *, kafka: bool = False) -> None:
        self._target = target_port
        self._kafka = kafka
        self._fault = Fault()
        self._links: set[_Link] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self.port = 0
        self.connections = 0
        """How many were made through it."""
        self.held_bytes = 0
        """Taken from either side, and not passed on because of a fault."""

    def __enter__(self) -> Proxy:
        self._thread.start()
        self.port = self._call(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def open_connections(self) -> int:
        return len(self._links)

    def heal(self) -> None:
        """No fault from now on; what was cut stays cut, what stalled goes on."""
        self.set(Fault())

    def set(self, fault: Fault) -> None:
        """From now on, until :meth:`heal`."""

        async def put() -> None:
            self._fault = fault

        self._call(put())

    def cut(self, *, reset: bool = True) -> int:
        """End every connection: by RST, or in order by FIN. How many there were."""

        async def end() -> int:
            links = list(self._links)
            for link in links:
                self._end(link, reset=reset)
            return len(links)

        return self._call(end())

    def half_open(self) -> int:
        """The server's side of every connection ends; the client is told nothing, as when a firewall forgets it."""

        async def forget() -> int:
            links = list(self._links)
            for link in links:
                for task in link.tasks:
                    task.cancel()
                _abort(link.server, reset=True)
            return len(links)

        return self._call(forget())

    # -- on the loop's own thread

    def _call(self, action: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(action, self._loop).result(30)

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for link in list(self._links):
            self._end(link, reset=True)
            await asyncio.gather(*link.tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._fault.refuse:
            _abort(writer, reset=True)
            return
        try:
            from_server, to_server = await asyncio.open_connection(LOOPBACK, self._target)
        except OSError:
            _abort(writer, reset=True)
            return
        self.connections += 1
        link = _Link(writer, to_server)
        self._links.add(link)
        names = _Renamed(self._target, self.port) if self._kafka else None
        link.tasks = [
            asyncio.create_task(self._pump(link, reader, to_server, "up", None)),
            asyncio.create_task(self._pump(link, from_server, writer, "down", names)),
        ]

    async def _pump(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way, names: _Renamed | None
    ) -> None:
        try:
            while block := await reader.read(self._fault.block):
                block = await self._hold_back(reader, block, way)
                limit = self._fault.cut_after
                if limit is not None and link.passed + len(block) > limit:
                    writer.write(block[: max(0, limit - link.passed)])
                    with suppress(OSError):
                        await writer.drain()
                    break
                link.passed += len(block)
                writer.write(names.rename(block) if names is not None else block)
                await writer.drain()
        except OSError:
            pass
        except asyncio.CancelledError:
            return  # half open, or closing: the other side is not told by us
        self._end(link, reset=self._fault.cut_after is not None)

    async def _hold_back(self, reader: asyncio.StreamReader, block: bytes, way: Way) -> bytes:
        """The block, and what came behind it while the fault said to wait (a block more at most, as sockets would
        buffer it); one that is healed lets go within a tenth of a second."""
        self.held_bytes += len(block)
        try:
            if self._fault.delay_s:
                await asyncio.sleep(self._fault.delay_s)
            while self._fault.stall and self._fault.one_way in (None, way):
                more = b""
                if len(block) < _BLOCK:
                    with suppress(OSError):  # gone, or nothing came in time
                        more = await asyncio.wait_for(reader.read(_BLOCK), _STALL_TURN_S)
                if not more:
                    await asyncio.sleep(_STALL_TURN_S)
                block += more
                self.held_bytes += len(more)
            return block
        finally:
            self.held_bytes -= len(block)

    def _end(self, link: _Link, *, reset: bool) -> None:
        self._links.discard(link)
        current = asyncio.current_task()
        for task in link.tasks:
            if task is not current:
                task.cancel()
        _abort(link.client, reset=reset)
        _abort(link.server, reset=reset)


class _Renamed:
    """A broker's answers with the proxy's port in place of its own.

    An address is a text (its length in front, as one byte or two) and four bytes of port. One that a read cuts in two
    is held back until the rest has come.
    """

    def __init__(self, port: int, own_port: int) -> None:
        host = LOOPBACK.encode()
        self._old = host + port.to_bytes(4, "big")
        self._new = host + own_port.to_bytes(4, "big")
        self._rest = b""

    def rename(self, block: bytes) -> bytes:
        text = (self._rest + block).replace(self._old, self._new)
        keep = next((n for n in range(len(self._old) - 1, 0, -1) if text.endswith(self._old[:n])), 0)
        self._rest = text[len(text) - keep :]
        return text[: len(text) - keep]


def _abort(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    raw = writer.get_extra_info("socket")
    if reset and raw is not None:
        with suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    if reset:
        writer.transport.abort()
    else:
        writer.close()
