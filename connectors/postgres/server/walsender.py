"""The walsender session: frames in, feedback out.

Feedback has its own thread and clock, because a server that hears nothing for ``wal_sender_timeout`` ends the
session, and we may well be busy for longer: waiting for a stalled broker, decoding, re-selecting. Every
status asks for a keepalive, so an idle database moves on and a dead connection is noticed.
"""

from __future__ import annotations

import logging
import threading

from psycopg import sql
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from cdc.process.clock import Clock
from cdc.process.errors import ActiveError, CdcError, ConfigError, SlotError, SourceError
from cdc.process.sql_files import load, quote_identifier, quote_literal
from cdc.process.untrusted_text import quoted
from cdc.record.ports import StreamBatch
from cdc.record.position import Lsn
from cdc.settings.model import SourceSettings
from connectors.postgres.protocol.frames import KEEPALIVE, QUOTES_VALUES, Feedback, ServerNotice, keepalive
from connectors.postgres.protocol.messages import XLOG_DATA
from connectors.postgres.server.connections import Connection, describe
from connectors.postgres.server.slot import RUNBOOK, START_OVER, active
from connectors.postgres.server.transport import Broken, CopyStream, open_link

log = logging.getLogger(__name__)

FEEDBACK_S = 1.0
_SILENCE_MIN_S = 15.0
_SILENCE_WITHOUT_TIMEOUT_S = 120.0
_IN_USE_S = 10.0
_BATCH_FRAMES = 1000
_NOT_PREREQUISITE = "55000"
"""SQLSTATE of a slot the server gave up, and of the warning that a publication is passed over."""
_STANDBYS = "synchronized_standby_slots"
"""Named, with the same SQLSTATE, where the server waits for a standby. In any language."""


_NOTHING = StreamBatch([], None)
_XLOG_DATA, _KEEPALIVE = bytes((XLOG_DATA,)), bytes((KEEPALIVE,))


class ReplicationStream:
    """A started stream. One thread reads. :meth:`acknowledge` may be called from it at any time.

    ``connection``: a replication session, owned from here on. ``start_lsn``: our position. ``row_limit``: values that
    make a row larger are left out, see :mod:`connectors.postgres.protocol.oversized_fields`. Raises SlotError,
    ActiveError, ConfigError or SourceError when the server does not start it.
    """

    def __init__(
        self,
        connection: Connection,
        settings: SourceSettings,
        *,
        slot: str,
        publication: str,
        start_lsn: int,
        row_limit: int,
        clock: Clock,
    ) -> None:
        self._connection = connection
        self._where = describe(settings)
        self._slot = slot
        self._publication = publication
        self._clock = clock
        self._feedback = Feedback(start_lsn)
        self._lock = threading.Lock()
        self._poke = threading.Event()
        self._stopping = threading.Event()
        self._started = False
        self._silent_s = 0.0
        self._warned: list[str] = []
        self._awaited: set[str] = set()
        self._failure: CdcError | None = None
        self._last_feedback_s = clock.monotonic()
        timeout_s = self._timeout_s()
        self._interval_s = min(FEEDBACK_S, timeout_s / 3) if timeout_s else FEEDBACK_S
        self._silence_s = max(_SILENCE_MIN_S, 2 * timeout_s) if timeout_s else _SILENCE_WITHOUT_TIMEOUT_S
        self._link: CopyStream = open_link(connection, row_limit, self._notice)
        try:
            self._start(start_lsn)
        except BaseException:
            self._link.close()
            raise
        self._beat = threading.Thread(target=self._keep_alive, name="cdc-feedback", daemon=True)
        self._beat.start()

    @property
    def received(self) -> int:
        """The end of the WAL that the server has spoken of."""
        return self._feedback.received

    @property
    def last_feedback_s(self) -> float:
        """When feedback last went out, by the clock's monotonic time."""
        return self._last_feedback_s

    def read(self, timeout_s: float) -> StreamBatch:
        """Return the messages that have arrived, at once if there are any, else after at most ``timeout_s``.

        SourceError when the connection broke, was ended by the server or has been silent for too long.
        SlotError when the server can not go on with this slot or publication.
        """
        batch = self._take()
        if batch is _NOTHING and timeout_s > 0:
            start_s = self._clock.monotonic()
            if not self._link.wait(timeout_s):
                self._silence(self._clock.monotonic() - start_s)
                return _NOTHING
            batch = self._take()
        self._silent_s = 0.0
        return batch

    def acknowledge(self, lsn: int) -> None:
        """The broker holds a progress record of this lsn: the server may forget what lies below."""
        if self._feedback.hold(lsn):
            self._poke.set()

    def close(self) -> None:
        """Say goodbye: a last status, then the end of the copy. Never raises, never waits long."""
        self._stopping.set()
        self._poke.set()
        self._beat.join(5)
        try:
            with self._lock:
                self._send(reply=False)
                self._link.finish()
            self._await_end()
        except Broken:
            pass  # the server is gone already
        finally:
            self._release()

    def abandon(self) -> None:
        """Close the connection as it is, telling the server nothing more."""
        self._stopping.set()
        self._poke.set()
        self._beat.join(5)
        self._release()

    def _release(self) -> None:
        self._link.close()
        self._connection.close()

    # -- reading

    def _take(self) -> StreamBatch:
        """Everything that can be had without waiting, up to a batch's size or a keepalive."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            try:
                frames = self._link.receive(_BATCH_FRAMES)
            except Broken as error:
                raise self._broken(str(error)) from None
        if self._warned:
            raise self._unpublished()
        if not frames:
            if self._link.ended:
                raise self._ended()
            return _NOTHING
        if frames[-1][:1] != _XLOG_DATA:
            return StreamBatch(frames, self._keepalive(frames.pop()))
        self._feedback.receive(int.from_bytes(frames[-1][9:17], "big"))
        return StreamBatch(frames, None)

    def _keepalive(self, frame: bytes) -> int:
        if frame[:1] != _KEEPALIVE:
            raise SourceError(f"Postgres at {self._where} sent a frame of the unknown kind {frame[:1]!r}")
        heard = keepalive(frame)
        self._feedback.receive(heard.wal_end)
        if heard.reply_requested:
            self._poke.set()
        return heard.wal_end

    def _silence(self, waited_s: float) -> None:
        """Only time spent waiting counts: a frame may well stand in the socket while we do something else."""
        self._silent_s += waited_s
        if self._silent_s > self._silence_s:
            raise SourceError(
                f"Postgres at {self._where} has been silent for {self._silent_s:.0f} s",
                hint="the connection is half open; capture connects again",
            )

    def _ended(self) -> CdcError:
        if self._link.error is not None:
            return self._refused(self._link.error)
        return SourceError(f"Postgres at {self._where} ended the stream", hint="it shuts down or restarts")

    # -- feedback

    def _keep_alive(self) -> None:
        while not self._stopping.is_set():
            self._poke.wait(self._interval_s)
            self._poke.clear()
            if self._stopping.is_set():
                return
            try:
                with self._lock:
                    self._send(reply=True)
            except Broken as error:
                self._failure = self._broken(str(error))
                return
            except Exception as error:
                # A thread that ends without a word would leave the server without feedback.
                self._failure = SourceError(
                    f"feedback to Postgres at {self._where} ended: {type(error).__name__}",
                    hint="capture connects again; this is a fault of Headrace",
                )
                return

    def _send(self, *, reply: bool) -> None:
        self._link.send(self._feedback.status(self._clock.now_ns(), reply=reply))
        self._last_feedback_s = self._clock.monotonic()

    def _await_end(self) -> None:
        """Let the server finish, so that the slot is free when we are gone."""
        deadline = self._clock.monotonic() + 2.0
        while not self._link.ended and self._clock.monotonic() < deadline:
            if not self._link.receive(_BATCH_FRAMES):
                self._link.wait(0.1)

    # -- starting

    def _timeout_s(self) -> float:
        row = self._connection.execute(load(__package__, "stream.sql")["timeout"].encode()).fetchone()
        return float(row[0]) / 1000 if row else 60.0

    def _start(self, start_lsn: int) -> None:
        template = sql.SQL(load(__package__, "stream.sql")["start"])
        # publication_names is a list of identifiers inside a string literal: quoted twice.
        statement = template.format(
            slot=sql.Identifier(self._slot),
            lsn=sql.SQL(str(Lsn(start_lsn))),
            publications=sql.SQL(quote_literal(quote_identifier(self._publication))),
        ).as_bytes(self._connection)
        waiting = Retrying(
            retry=retry_if_exception_type(ActiveError),
            wait=wait_exponential(0.2, max=2),
            stop=stop_after_delay(_IN_USE_S),
            sleep=self._clock.sleep,
            reraise=True,
        )
        waiting(self._start_once, statement)

    def _start_once(self, statement: bytes) -> None:
        try:
            refusal = self._link.start(statement)
        except Broken as error:
            raise self._broken(str(error)) from None
        if refusal is not None:
            raise self._refused(refusal)
        self._started = True

    # -- what went wrong

    def _notice(self, said: ServerNotice) -> None:
        if _STANDBYS in said.primary:
            if said.primary not in self._awaited:
                self._awaited.add(said.primary)
                log.warning("waiting_for_standby", extra={"why": said.primary})
        elif said.sqlstate == _NOT_PREREQUISITE:
            self._warned.append(said.primary)

    def _unpublished(self) -> SlotError:
        """PostgreSQL 18 passes over changes whose publication did not exist at the time, with a warning only."""
        return SlotError(
            f"the server does not send changes from before the publication {self._publication} was made "
            f"({self._warned[0]})",
            hint=f"the publication has to be made before the slot: {START_OVER}",
        )

    def _refused(self, said: ServerNotice) -> CdcError:
        reason = said.primary
        match said.sqlstate:
            case "55006":
                return active(self._slot, reason)
            # With the standbys' setting in it: it shuts down, and one has not received everything.
            case "55000" | "58P01" if _STANDBYS not in reason:
                return SlotError(f"the slot {self._slot} cannot be read: {reason}", hint=RUNBOOK)
            case "42704" if not self._started:
                return SlotError(f"the slot {self._slot} does not exist any more", hint=RUNBOOK)
            case "42704":
                return SlotError(
                    f"the slot {self._slot} cannot go on: {reason}",
                    hint=f"the publication was dropped, or made after the slot: {START_OVER}",
                )
            case "42501" | "28000":
                return ConfigError(f"Postgres at {self._where} refuses: {reason}", hint="cdc check names the right")
        if said.sqlstate[:2] in QUOTES_VALUES:
            reason = f"it answers {said.sqlstate}, and its log has the words"
        return self._broken(reason)

    def _broken(self, text: str) -> SourceError:
        reason = quoted(text) if text.strip() else "the connection broke"
        return SourceError(f"Postgres at {self._where} broke off: {reason}", hint="capture connects again by itself")
