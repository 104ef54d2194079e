"""The workers: processes with their own sessions and producers that read one chunk after the other, and their pool.

None ever outlives the process that started it: an orphan could write a row behind a streamed event. Three
things see to that: the kernel kills it with the server it was forked from, and that one with its starter
(:mod:`snapshot.first.fork_server`). A watch on a pipe ends it where there is no such kernel, and its session holds the
writers' lock, which capture needs for itself, until all it produced is acknowledged.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess

import psycopg

from cdc.capture.table_masks import masks_of
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import ActiveError, CdcError, SourceError
from cdc.record.state import ChunkState
from snapshot.first.row_writer import ChunkTask, CutLost, RowWriter, read_chunk
from snapshot.source.ports import Edges, Session
from snapshot.source.read_transaction import SQL, Changed, LockTimeout, first_line

declare("chunk_first_block", "chunk_produced", "chunk_flushed", "chunk_committed")

FLUSH_S = 300.0
_TELL_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReady:
    """The worker is ready for tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsRead:
    """Rows read of the chunk so far."""

    chunk: ChunkState
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRead:
    """A task ended well. ``settled``: chunks that the brokers hold whole, usually the task's own.

    ``lost``: values by ``table.column`` that the encoding cannot express.
    """

    settled: tuple[ChunkState, ...]
    lost: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkUnread:
    """A chunk has to be read again. ``why``: ``changed``, ``cut lost``, ``blocked`` or ``session lost``."""

    chunk: ChunkState
    why: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFailed:
    """The worker cannot go on and ends. ``trace``: only where it is a fault of ours."""

    error: CdcError
    trace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoMoreTasks:
    """No more tasks: write what was kept back, and end."""


WorkerReport = WorkerReady | RowsRead | ChunkRead | ChunkUnread | WorkerFailed


def main(edges: Edges, exact: bool, pipe: Connection, life: Connection) -> None:
    """The process. ``pipe``: orders in, reports out. ``life``: ends when the process that started it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group. The parent decides.
    _die_with_the_fork_server()
    threading.Thread(target=_watch, args=(life,), daemon=True).start()
    try:
        with ChunkWorker(edges, pipe, exact=exact) as worker:
            worker.work()
    except (EOFError, BrokenPipeError):
        os._exit(1)  # the parent is gone: nothing may be sent any more
    except CdcError as error:
        _give_up(pipe, WorkerFailed(error=error))
    except Exception as fault:
        _give_up(
            pipe, WorkerFailed(error=CdcError(f"a worker failed: {first_line(fault)}"), trace=traceback.format_exc())
        )


def _give_up(pipe: Connection, failure: WorkerFailed) -> None:
    with suppress(OSError):
        pipe.send(failure)


def _die_with_the_fork_server() -> None:
    from snapshot.first import fork_server  # noqa: PLC0415 - it is the server's, and here already where that has imported it

    fork_server.die_with_parent()
    if fork_server.PID not in (os.getpid(), os.getppid()):
        os._exit(1)  # it ended before the kernel was asked


def _watch(life: Connection) -> None:
    with suppress(EOFError, OSError):
        life.recv_bytes()
    os._exit(1)


class ChunkWorker:
    """Takes orders from a pipe until there are no more. ``exact``: see :class:`RowWriter`."""

    def __init__(self, edges: Edges, pipe: Connection, *, exact: bool, clock: Clock = SYSTEM_CLOCK) -> None:
        self._edges = edges
        self._pipe = pipe
        self._clock = clock
        self._session: Session | None = None
        session = self._open()
        self._writer = RowWriter(
            edges.log.rows(),
            name=edges.settings.name,
            database=session.info.dbname,
            clock=clock,
            exact=exact,
            masks=masks_of(edges.settings),
        )
        self._told_s = 0.0

    def work(self) -> None:
        """Until :class:`NoMoreTasks`. CdcError when it cannot go on. EOFError when the parent is gone."""
        self._pipe.send(WorkerReady())
        while isinstance(order := self._pipe.recv(), ChunkTask):
            self._pipe.send(self._try(order))
        self._writer.finish()
        self._writer.log.flush(FLUSH_S)
        self._pipe.send(self._settled())

    def __enter__(self) -> ChunkWorker:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._writer.log.abort()  # the lock is about to go: nothing more may be sent
        self._close()

    def _try(self, task: ChunkTask) -> ChunkRead | ChunkUnread:
        try:
            return self._read(task)
        except Changed as change:
            return self._unread(task, "changed", change)
        except CutLost as lost:
            return self._unread(task, "cut lost", lost)
        except LockTimeout as blocked:
            return self._unread(task, "blocked", blocked)
        except psycopg.Error as error:
            if self._session is None or not self._session.closed:
                raise SourceError(f"{task.chunk.leaf} cannot be read: {first_line(error)}") from None
            # The lock went with the session: what is queued must not be sent, the chunk is read again.
            self._writer.log.abort()
            self._writer.log = self._edges.log.rows()
            return self._unread(task, "session lost", error)

    def _read(self, task: ChunkTask) -> ChunkRead:
        session = self._open()
        self._writer.open(task)
        for lines in read_chunk(session, task):
            self._writer.write(lines)
            self._tell(task)
            crash_point("chunk_first_block")
        crash_point("chunk_produced")
        self._writer.log.flush(FLUSH_S)
        crash_point("chunk_flushed")
        session.execute(b"commit")
        self._writer.close()
        crash_point("chunk_committed")
        return self._settled()

    def _settled(self) -> ChunkRead:
        return ChunkRead(settled=tuple(self._writer.settled()), lost=dict(self._writer.lost()))

    def _unread(self, task: ChunkTask, why: str, detail: Exception) -> ChunkUnread:
        self._writer.drop()
        with suppress(psycopg.Error):
            if self._session is not None:
                self._session.rollback()
        return ChunkUnread(chunk=task.chunk, why=why, detail=first_line(detail))

    def _tell(self, task: ChunkTask) -> None:
        now = self._clock.monotonic()
        if now - self._told_s >= _TELL_S:
            self._told_s = now
            self._pipe.send(RowsRead(chunk=task.chunk, rows=self._writer.row_count))

    def _open(self) -> Session:
        if self._session is not None and not self._session.closed:
            return self._session
        settings = self._edges.settings
        self._session = self._edges.source.session(
            "cdc snapshot worker", lock_timeout_s=settings.snapshot.lock_timeout.total_seconds()
        )
        kind, number = self._edges.lock
        shared = SQL.one(self._session, "share_lock", **{"class": kind, "number": number})
        if not shared[0]:
            raise ActiveError(
                "another session writes the topics already", hint="stop cdc run; cdc status names who is active"
            )
        return self._session

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()


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
            ["__main__", "snapshot.first.fork_server", __name__, type(edges).__module__]
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
            target=main,
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
