"""Capture up to a mark and no further: the log then holds every change below one LSN, and none above it."""

from __future__ import annotations

from collections.abc import Callable

from cdc.advance import Advance
from cdc.capture import CaptureSession
from cdc.clock import Clock
from cdc.errors import LogError
from cdc.progress import PROGRESS_KEY, Progress

_READ_S = 0.1
_ACKED_S = 0.05
_TIMEOUT_S = 60.0


def capture_up_to(
    session: CaptureSession, mark: int, clock: Clock, watch: Callable[[int], None] = lambda _: None
) -> int:
    """Write every transaction up to the first that ends beyond ``mark``, and acknowledge it. Its end.

    A transaction that follows is not begun, so that another writer can go on right there. ``watch`` gets its progress.
    Closes the session. Raises what the session raises, LogError when the broker takes too long.
    """
    stream, assembler = session.stream, session.assembler
    advance = Advance(session.start.position, clock.monotonic())
    works = False
    try:
        boundary = 0
        while boundary <= mark:
            frames, _ = stream.read(_READ_S)
            for frame in frames:
                # One by one: what stands behind the boundary in the same batch must not be written.
                assembled = assembler.feed([frame], clock.now_ns())
                if assembled.records:
                    # At once: the next frame may pass some of its records on before it returns the rest.
                    session.log.produce(assembled.records)
                for commit in assembled.commits:
                    boundary = commit.end_lsn
                if boundary > mark:
                    break
            advance.waits(assembler.oldest_waiting, session.log.newest)
            advance.commit(boundary, session.log.newest, 0)
            advance.acked(session.log.acked())
            watch(boundary)
        _until(lambda: _held(session, advance, boundary), clock)
        _write_progress(session, advance, clock)
        _until(lambda: _held(session, advance, boundary) and advance.position >= boundary, clock)
        stream.acknowledge(boundary)
        works = True
        return boundary
    finally:
        # In order: closing says the last acknowledgement to the source.
        stream.close()
        session.close(works)


def _held(session: CaptureSession, advance: Advance, boundary: int) -> bool:
    """Whether the broker holds everything, what waited too. Each round waits for the broker, so a table that waits is
    not asked without a pause."""
    _resume(session, advance)
    advance.acked(session.log.acked(_ACKED_S))
    return advance.durable >= boundary


def _resume(session: CaptureSession, advance: Advance) -> None:
    """Write what waited and can be completed by now."""
    if session.assembler.oldest_waiting is not None:
        records = session.assembler.resume()
        if records:
            session.log.produce(records)
        advance.waits(session.assembler.oldest_waiting, session.log.newest)


def _write_progress(session: CaptureSession, advance: Advance, clock: Clock) -> None:
    start = session.start
    offsets = {topic: parts for topic, parts in session.log.offsets().items() if topic != start.topic}
    value = Progress(epoch=start.epoch, lsn=advance.durable, offsets=offsets, lineage=start.lineage).to_json()
    group = session.log.produce([(start.lane, PROGRESS_KEY, value, [])])
    advance.writing(group, len(value), clock.monotonic())


def _until(reached: Callable[[], bool], clock: Clock) -> None:
    until_s = clock.monotonic() + _TIMEOUT_S
    while not reached():
        if clock.monotonic() > until_s:
            raise LogError(
                f"the broker did not take everything within {_TIMEOUT_S:g} s",
                hint="nothing is lost: run the command again",
            )
