"""The workers, as the process that started them sees them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess

from cdc.record.state import ChunkState
from snapshot.first import chunk_worker as worker
from snapshot.first.chunk_worker import (
    ChunkRead,
    ChunkUnread,
    NoMoreTasks,
    RowsRead,
    WorkerFailed,
    WorkerReady,
    WorkerReport,
)
from snapshot.first.row_writer import ChunkTask
from snapshot.source.edges import Edges

_END_S = 10.0


ChunkId = tuple[str, int, int]
"""Table, number, generation: after a new plan, numbers mean other rows."""


def chunk_id(chunk: ChunkState) -> ChunkId:
    """The identity of a chunk: its table, its number, and the plan's generation."""
    return chunk.table, chunk.number, chunk.generation


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDied:
    """A worker ended without a word. ``chunks``: what it had been given and had not settled."""

    exit_code: int | None
    chunks: tuple[ChunkState, ...]


@dataclass(slots=True, eq=False)
class WorkerProcess:
    """One process. ``ready``: it waits for a task. ``given``: its chunks that are not settled yet."""

    process: ForkServerProcess
    pipe: Connection
    life: Connection
    ready: bool = False
    ended: bool = False
    given: dict[ChunkId, ChunkState] = field(default_factory=dict)


class WorkerPool:
    """Starts workers and hands out tasks. A context manager: leaving it ends them all.

    Forked from a server that has imported what they need (:mod:`snapshot.first.fork_server`), not from this process:
    a fork of that would share its sessions and its producer's threads, and a start from cold takes ten times the work.
    ``exact``: one worker with exact markers, see :class:`snapshot.first.row_writer.RowWriter`.
    """

    def __init__(self, edges: Edges, *, exact: bool) -> None:
        self._edges = edges
        self._exact = exact
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(
            ["__main__", "snapshot.first.fork_server", worker.__name__, type(edges).__module__]
        )
        self._workers: list[WorkerProcess] = []

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._workers:
            member.life.close()
            member.process.kill()
        for member in self._workers:
            member.process.join(_END_S)
            member.pipe.close()

    def start(self) -> None:
        """Start one more worker."""
        pipe, their_pipe = self._context.Pipe()
        their_life, life = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=worker.main,
            args=(self._edges, self._exact, their_pipe, their_life),
            name=f"cdc snapshot worker {len(self._workers) + 1}",
            daemon=True,
        )
        process.start()
        their_pipe.close()
        their_life.close()
        self._workers.append(WorkerProcess(process, pipe, life))

    @property
    def size(self) -> int:
        """How many work."""
        return sum(not member.ended for member in self._workers)

    @property
    def busy(self) -> bool:
        """Whether any chunk is out."""
        return any(member.given for member in self._workers)

    def ready(self) -> list[WorkerProcess]:
        """The workers that wait for a task."""
        return [member for member in self._workers if member.ready and not member.ended]

    def out(self) -> set[ChunkId]:
        """The chunks that are with a worker."""
        return {key for member in self._workers for key in member.given}

    def give(self, member: WorkerProcess, task: ChunkTask) -> None:
        """Hand a task to a worker that is ready. One that just died is noticed by :meth:`hear`."""
        member.ready = False
        member.given[chunk_id(task.chunk)] = task.chunk
        with suppress(OSError):
            member.pipe.send(task)

    def finish(self) -> None:
        """Send those that are ready the end of the tasks."""
        for member in self.ready():
            member.ready = False
            with suppress(OSError):
                member.pipe.send(NoMoreTasks())

    def hear(self, timeout_s: float) -> Iterator[RowsRead | ChunkRead | ChunkUnread | WorkerFailed | WorkerDied]:
        """The workers' reports within ``timeout_s``. Nothing when all are silent."""
        living = [member for member in self._workers if not member.ended]
        if not living:
            return
        ready = set(wait([w for m in living for w in (m.pipe, m.process.sentinel)], timeout_s))
        for member in living:
            if member.pipe in ready:
                yield from self._receive(member)
            elif member.process.sentinel in ready:
                yield from self._reap(member)

    def _receive(
        self, member: WorkerProcess
    ) -> Iterator[RowsRead | ChunkRead | ChunkUnread | WorkerFailed | WorkerDied]:
        with suppress(EOFError, OSError):
            while member.pipe.poll():
                report: WorkerReport = member.pipe.recv()
                match report:
                    case WorkerReady():
                        member.ready = True
                    case RowsRead():
                        yield report
                    case ChunkRead():
                        for chunk in report.settled:
                            member.given.pop(chunk_id(chunk), None)
                        member.ready = True
                        yield report
                    case ChunkUnread():
                        member.given.pop(chunk_id(report.chunk), None)
                        member.ready = True
                        yield report
                    case WorkerFailed():
                        yield report
            return
        yield from self._reap(member)

    def _reap(self, member: WorkerProcess) -> Iterator[WorkerDied]:
        member.process.join(_END_S)
        member.ended = True
        left = tuple(member.given.values())
        member.given.clear()
        if member.process.exitcode != 0 or left:
            yield WorkerDied(exit_code=member.process.exitcode, chunks=left)
