"""Questions to the servers while the stream runs: by threads of their own, with sessions of their own.

The loop takes the newest answers and waits for none. A question without an answer ends nothing: what was known stays
known, with its age. An answer that proves a fault (the publication or a topic is gone, a topic forgets) ends capture at
the loop's next turn.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

import psycopg

from cdc.capture.topic_specs import made_specs
from cdc.capture.windows import Closed
from cdc.figures.capture_metrics import STALL_S, CaptureFigures
from cdc.process.clock import Clock
from cdc.process.errors import CdcError, LogError, SlotError, TopicError
from cdc.record.progress import Offsets
from cdc.record.server_facts import PublicationFacts, SlotFacts
from cdc.record.state import SlotState, TopicsState
from cdc.record.tables_aside import CannotFollow, Unfollowed, not_followed
from cdc.settings.model import Settings
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.topic_ends import EndsWatch
from connectors.kafka.topic_problems import TopicProblem, in_sync_problems, policy_problems, state_problems
from connectors.postgres.server.catalog_facts import read_publication, read_relations, read_server, read_slot
from connectors.postgres.server.connections import Connection, connect
from connectors.postgres.server.outbox_table import outbox_name
from connectors.postgres.server.slot import START_OVER
from connectors.postgres.server.table_selection import takes, unnamed_children
from connectors.session.aside_causes import Remedies

log = logging.getLogger(__name__)

LOOK_S = 3.0
_REST = 10
"""A look rests for so many times the time it took, so that thousands of topics cost a tenth of a core at most."""


class RepeatedLook:
    """``look``: asks once, and returns after how many seconds to ask again. Raises Closed at the session's end.
    ``over``: ends it between two looks. ``done``: called by its thread at the end. ``again_s``: the rest behind a look
    that failed."""

    def __init__(
        self,
        name: str,
        look: Callable[[], float],
        over: threading.Event,
        clock: Clock,
        *,
        done: Callable[[], None] = lambda: None,
        again_s: float = LOOK_S,
    ) -> None:
        self._name = name
        self._look = look
        self._over = over
        self._clock = clock
        self._done = done
        self._again_s = again_s
        self._told = False
        self._thread = threading.Thread(target=self._run, name=f"cdc-look-{name}", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for its end, once ``over`` is set. Whether it came."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        wait_s = 0.0
        while not self._over.wait(wait_s):
            begun_s = self._clock.monotonic()
            wait_s = self._again_s
            try:
                wait_s = self._look()
                # A look that asks much rests. One that was not answered has asked nothing yet.
                wait_s = max(wait_s, _REST * (self._clock.monotonic() - begun_s) if wait_s >= LOOK_S else 0)
                self._told = False
            except Closed:
                break
            except CdcError as error:
                self._unanswered(error.message)
            except (psycopg.Error, OSError) as error:
                self._unanswered(type(error).__name__)
            except Exception:
                # A thread that ended here would leave the last answers standing for good.
                log.exception("look_failed")
        self._done()

    def _unanswered(self, why: str) -> None:
        if not self._told and not self._over.is_set():
            self._told = True
            log.warning("look_unanswered", extra={"look": self._name, "why": why})


_AGAIN_S = 3.0
"""A topic that seems to be gone is looked for once more: a broker that just came up may not know it yet, nor one that
stood still while it was made (1.2 s behind that, measured)."""
_JOIN_S = 3.0
_LIMITS = {"lock_timeout": "2s", "statement_timeout": "10s"}
_ANSWER_S = 20.0
"""The longest wait for one answer. Then the look counts as unanswered, and the next one asks in another session."""


class SideQueries:
    """Two threads, one for each server.

    ``topics``: what is captured by now. ``oids``: of which relation, as far as known. ``counts``: topic -> number of
    partitions.
    """

    def __init__(
        self,
        settings: Settings,
        slot: SlotState,
        *,
        topics: Callable[[], TopicsState],
        oids: Callable[[], Mapping[str, int]],
        counts: Mapping[str, int],
        figures: CaptureFigures,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self.remedies: Remedies | None = None
        """Finds out what may be followed again."""
        self.write_notes: Callable[[], None] = lambda: None
        """Writes to the state topic what the loop does not wait for. Raises LogError."""
        self._slot = slot
        self._topics = topics
        self._oids = oids
        self._counts = counts
        self._figures = figures
        self._clock = clock
        self._over = threading.Event()
        self._fault: CdcError | None = None
        self._ends: Offsets | None = None
        self._found: tuple[SlotFacts | None, int | None] = (figures.slot, figures.wal_lsn)
        self._session: Connection | None = None
        self._told: set[str] = set()
        self._unfollowed: Mapping[str, Unfollowed] = {}
        self._standstill = Standstill(clock.monotonic())
        figures.stuck_since_s = None
        self._looks = [
            RepeatedLook("source", self._look_source, self._over, clock, done=self._let_go),
            RepeatedLook("log", _LogLook(self).look, self._over, clock),
        ]
        for look in self._looks:
            look.start()

    def newest(self) -> tuple[SlotFacts | None, int | None]:
        """The slot and the server's position, as last known. Raises what a look has proven to be wrong."""
        if self._fault is not None:
            raise self._fault
        return self._found

    def ends(self) -> Offsets | None:
        """Where the topics end, as of some time since the call before. None when nothing new is known."""
        found, self._ends = self._ends, None
        return found

    def close(self) -> None:
        """End both. Returns within seconds, with servers that do not answer too."""
        self._over.set()
        session = self._session
        if session is not None:
            with suppress(psycopg.Error):
                session.cancel_safe(timeout=1)
        for look in self._looks:
            look.join(_JOIN_S)

    def _let_go(self) -> None:
        if self._session is not None:
            self._session.close()

    # -- Postgres

    def _look_source(self) -> float:
        if self._session is None or self._session.closed:
            # A process of the server that stands still heeds no timeout.
            self._session = connect(
                self._settings.source,
                application_name="cdc capture looks",
                options=_LIMITS,
                turn=self._turn,
                limit_s=_ANSWER_S,
            )
        try:
            self._ask(self._session)
        except (CdcError, psycopg.Error):
            self._session.close()
            raise
        return LOOK_S

    def _turn(self) -> None:
        if self._over.is_set():
            raise Closed

    def _ask(self, session: Connection) -> None:
        publication = read_publication(session, self._slot.publication)
        if publication is None:
            self._fault = gone(self._slot)
            return
        server = read_server(session)
        self._found = read_slot(session, self._slot.slot), server.wal_lsn
        self._figures.looked(self._clock.monotonic(), *self._found)
        topics, oids = self._topics(), self._oids()
        source = self._settings.source
        wanted = [table for table in topics.tables if takes(table, source.tables, source.exclude)]
        relations = read_relations(session, wanted, [oids[table] for table in wanted if table in oids])
        found = not_followed(wanted, oids, relations, publication, unnamed_children(session, relations, source))
        figures, faults = self._figures, {table: one for table, one in found.items() if one.lacking}
        if found != self._unfollowed:
            for one in sorted(found.values()):
                log.warning("table_not_followed", extra={"why": one.why})
        self._unfollowed = found
        figures.not_followed = {table: one.why for table, one in faults.items()} | self._unsent_outbox(publication)
        self._standstill.judge(figures, server.wal_lsn or 0, self._clock.monotonic())
        if self.remedies is not None:
            try:
                self.remedies.look(session, faults, figures.flushed_lsn)
            except CannotFollow as why:
                # A history is not set aside: changes of it are missing, and capture stops.
                self._fault = why

    def _unsent_outbox(self, publication: PublicationFacts) -> dict[str, str]:
        """The outbox table and the sentence about it, where the server sends none of its events any more."""
        table = outbox_name(self._settings)
        if table is None or table in publication.tables:
            return {}
        return {str(table): f"the outbox {table} is not in the publication: events written now are not captured"}

    # -- Kafka

    def topics_are(self, problems: list[TopicProblem]) -> None:
        """The faults of the topics: the first that capture must not run with ends it."""
        for problem in problems:
            if problem.fatal:
                self._fault = TopicError(problem.message, hint=problem.hint)
                return
            if problem.message not in self._told:
                self._told.add(problem.message)
                log.warning("topic_differs", extra={"topic": problem.topic, "what": problem.message})

    def topics_end(self, ends: Offsets | None) -> None:
        """Note where topics end. None where the brokers did not answer: the last known ends stay."""
        self._ends = ends if ends is not None else self._ends

    @property
    def settings(self) -> Settings:
        """The pipeline's settings."""
        return self._settings

    @property
    def known(self) -> TopicsState:
        """The tables that are captured by now, and their topics."""
        return self._topics()

    @property
    def counts(self) -> Mapping[str, int]:
        """The partition count of each topic."""
        return self._counts


class _LogLook:
    """The thread's that asks Kafka."""

    def __init__(self, looks: SideQueries) -> None:
        self._looks = looks
        self._admin: TopicAdmin | None = None
        self._watch: EndsWatch | None = None
        self._suspects: set[str] = set()

    def look(self) -> float:
        try:
            wait_s = self._look()
        except LogError:
            # Of several brokers one may be away: a client that took it for the controller asks it again for minutes.
            self._admin = self._watch = None
            raise
        self._looks.write_notes()
        return wait_s

    def _look(self) -> float:
        looks = self._looks
        if self._admin is None or self._watch is None:
            self._admin = TopicAdmin(looks.settings.log)
            self._watch = EndsWatch(self._admin, looks.counts)
        looks.topics_end(self._watch.look())
        known = looks.known
        facts = self._admin.describe(known.topics)
        changed = [p for p in state_problems(known, facts, known.cluster_id) if p.fatal]
        suspects, self._suspects = self._suspects, {problem.message for problem in changed}
        if self._suspects - suspects:
            return _AGAIN_S
        specs = made_specs(looks.settings.log, looks.settings.name, known)
        # A topic that deletes by age loses rows from now on. A shorter retention is logged. The next start refuses it.
        forgetful = policy_problems(specs, facts, ("cleanup.policy",))
        others = [replace(one, fatal=False) for one in policy_problems(specs, facts) if one not in forgetful]
        looks.topics_are([*changed, *forgetful, *others, *in_sync_problems(facts)])
        return LOOK_S


def gone(slot: SlotState) -> SlotError:
    """The publication is not there: changes that are written now will never be sent."""
    return SlotError(
        f"the publication {slot.publication} is gone, and the slot {slot.slot} cannot go on without it",
        hint=f"one made anew does not serve older changes: {START_OVER}",
    )


class Standstill:
    """Judges one session, by looks at the server. ``now_s``: of the monotonic clock, when the session began."""

    def __init__(self, now_s: float) -> None:
        self._mark = (0, now_s)
        """Where the server was, and when, at the last look that saw progress."""
        self._token: object = None

    def judge(self, figures: CaptureFigures, wal_lsn: int, now_s: float) -> None:
        """Set ``figures.stuck_since_s``. A loop that comes round may well stand still. ``wal_lsn``: the server's."""
        token = (figures.received_lsn, figures.flushed_lsn, figures.flow().records)
        # A table that waits keeps the position back, and has a limit of its own.
        waits = figures.waiting_since_s is not None
        if waits or figures.flushed_lsn >= self._mark[0] or token != self._token:
            self._mark = (wal_lsn, now_s)
        self._token = token
        figures.stuck_since_s = self._mark[1] if now_s - self._mark[1] > STALL_S else None
