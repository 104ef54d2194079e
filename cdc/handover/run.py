"""The steps of a handover, over its ports.

The slot passes from one writer to the other, so no WAL is lost between them. Each step is noted in ``<name>.state``
before the next begins, so that a command that was killed anywhere goes on by being run again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from cdc.checks.facts import ServerFacts, SlotFacts
from cdc.clock import Clock
from cdc.crash import crash_point, declare
from cdc.epochs import EpochsState
from cdc.errors import ActiveError, LogError
from cdc.handover.keys import key_problems, key_questions
from cdc.handover.ports import HandoverPorts
from cdc.handover.rules import (
    HandoverPlan,
    adopted,
    require_complete,
    require_native_complete,
    require_no_writer,
    require_partitions,
    require_same_keys,
    require_unshaped,
    require_within,
    settled,
    usable,
)
from cdc.lsn import Lsn
from cdc.progress import PROGRESS_KEY, Offsets, Progress
from cdc.source_lineage import SourceLineage
from cdc.state import SlotState, TopicsState
from cdc.topic import state_topic
from cdc.turn import Writer, WriterState

log = logging.getLogger(__name__)
Say = Callable[[str], None]

declare("handover_begun", "handover_stopped", "handover_located", "handover_placed", "handover_resumed")

_FREE_S = 60.0
_STILL_S = 60.0
_POLL_S = 0.2
_STEADY_S = 1.0


class Handover:
    """One handover. ``say`` is given a sentence for each thing done."""

    def __init__(self, plan: HandoverPlan, ports: HandoverPorts, say: Say, clock: Clock) -> None:
        self._plan = plan
        self._ports = ports
        self._say = say
        self._clock = clock

    def run(self, to: Writer) -> WriterState:
        """Let ``to`` write the pipeline's topics from here on. Returns what was noted. Safe to repeat.

        Everything is checked before anything is stopped: ConfigError where the two would write other keys, topics or
        partitions. ActiveError while ``cdc run`` runs. Raises ConnectError, SlotError, TopicError, LogError.
        """
        known = self._writer()
        if known is not None and settled(known, to):
            self._say("nothing to do: it writes already")
            return known
        under_way = None if known is None or known.settled else known
        return self._to_native(under_way) if to == "native" else self._to_debezium(under_way)

    def _to_native(self, known: WriterState | None) -> WriterState:
        if known is None:
            known = self._begin_native()
        if known.step == "begun":
            known = self._take_over_slot(known)
        if self._ports.connector.withdraw():
            self._say(f"removed the connector {self._plan.connector} with its offsets")
        done = self._note(replace(known, step="done"))
        self._say(f'the native capture goes on at {Lsn(done.lsn)}: set [source] kind = "postgres", then cdc run')
        return done

    def _begin_native(self) -> WriterState:
        require_complete(self._ports.connector.facts())
        # Debezium makes a publication without TRUNCATE. Where it is sent, Debezium skips it by its own settings.
        if self._ports.source.publish_everything():
            self._say(f"the publication {self._plan.publication} sends TRUNCATE too, from now on")
        self._require_same()
        return self._begun("native")

    def _take_over_slot(self, known: WriterState) -> WriterState:
        if self._ports.connector.stop():
            self._say(f"stopped the connector {self._plan.connector}")
        lsn = self._adopt()
        crash_point("handover_located")
        known = self._note(replace(known, step="stopped", lsn=lsn))
        crash_point("handover_stopped")
        return known

    def _adopt(self) -> int:
        """Note slot, snapshot and progress as the native capture would have. The LSN it goes on from."""
        server, slot = self._free_slot()
        documents = self._ports.state.read()
        topics = _topics(documents)
        noted, snapshot = adopted(self._plan, documents, server, slot)
        start = slot.confirmed_flush_lsn or 0
        ends = self._still(topics)
        self._say(f"reading the log from {Lsn(start)} on, to see what Debezium wrote last")
        ahead = self._ports.native.ahead(noted, topics, start, ends)
        lineage = SourceLineage.of_slot(noted)
        progress = Progress(epoch=noted.epoch, lsn=start, lineage=lineage, offsets=ends, ahead=ahead)
        self._ports.progress.write([(PROGRESS_KEY, progress.to_json())])
        self._ports.state.write([(noted.key(), noted.to_json()), (snapshot.key(), snapshot.to_json())])
        return start

    def _to_debezium(self, known: WriterState | None) -> WriterState:
        if known is None:
            require_native_complete(self._ports.state.read())
            self._require_same()
            require_no_writer(self._ports.source.writer())
            known = self._begun("debezium")
        if known.step == "begun":
            known = self._stop_native(known)
        if known.step == "stopped":
            self._ports.connector.place_stopped(known.lsn)
            crash_point("handover_placed")
            known = self._note(replace(known, step="placed"))
        self._ports.connector.resume()
        crash_point("handover_resumed")
        done = self._note(replace(known, step="done"))
        self._say(f'Debezium goes on at {Lsn(done.lsn)}: set [source] kind = "debezium", and start the sinks again')
        return done

    def _stop_native(self, known: WriterState) -> WriterState:
        mark = self._ports.source.mark()
        self._say("writing what is left, up to the end of a transaction")
        lsn = self._ports.native.write_up_to(mark)
        _, slot = self._free_slot()
        require_within(slot, lsn)
        self._note_epoch()
        known = self._note(replace(known, step="stopped", lsn=lsn))
        crash_point("handover_stopped")
        return known

    def _note_epoch(self) -> None:
        """Debezium's records carry no epoch: theirs begins where the topics end now."""
        documents = self._ports.state.read()
        slot, known = SlotState.find(documents), EpochsState.find(documents) or EpochsState()
        assert slot is not None
        grown = known.reaching(slot.epoch, self._still(_topics(documents)))
        if grown != known:
            self._ports.state.write([(grown.key(), grown.to_json())])

    def _require_same(self) -> None:
        """Refuse, while both still stand as they are, what would come out otherwise."""
        require_unshaped(self._plan.shaping)
        self._ports.native.prepare()
        topics = _topics(self._ports.state.read())
        require_partitions(topics, self._ports.topics.counts(topics.tables.values()))
        shapes = [shape for shape in self._ports.native.shapes() if str(shape.table) in topics.tables]
        asked = self._ports.keys.answer(key_questions(shapes))
        require_same_keys([*key_problems(shapes, self._ports.keys.primary()), *(one.sentence for one in asked)])

    def _free_slot(self) -> tuple[ServerFacts, SlotFacts]:
        """The server and the slot, once nobody reads it any more."""
        deadline_s = self._clock.monotonic() + _FREE_S
        while True:
            server, found = self._ports.source.facts()
            slot = usable(found, self._plan.slot)
            if slot.active_pid is None:
                return server, slot
            if self._clock.monotonic() > deadline_s:
                raise ActiveError(
                    f"the slot {slot.slot} is still read by Postgres session {slot.active_pid}",
                    hint="stop its reader; the handover goes on when it is run again",
                )
            self._clock.sleep(_POLL_S)

    def _still(self, topics: TopicsState) -> Offsets:
        """The table topics' ends, seen twice alike: what a dead writer's client still had has arrived."""
        counts = {topic: topics.topics[topic]["partitions"] for topic in sorted(set(topics.tables.values()))}
        deadline_s = self._clock.monotonic() + _STILL_S
        ends = self._ports.topics.end_offsets(counts)
        while self._clock.monotonic() < deadline_s:
            self._clock.sleep(_STEADY_S)
            now = self._ports.topics.end_offsets(counts)
            if now == ends:
                return ends
            ends = now
        raise LogError("the table topics still grow, though nobody should write to them", hint="find the other writer")

    def _writer(self) -> WriterState | None:
        if not self._ports.topics.counts([state_topic(self._plan.name)]):
            return None
        return WriterState.find(self._ports.state.read())

    def _begun(self, to: Writer) -> WriterState:
        known = self._note(WriterState(writer=to, step="begun"))
        crash_point("handover_begun")
        return known

    def _note(self, state: WriterState) -> WriterState:
        self._ports.state.write([(state.key(), state.to_json())])
        log.info("handover", extra={"writer": state.writer, "step": state.step, "lsn": str(Lsn(state.lsn))})
        return state


def _topics(documents: Mapping[bytes, bytes]) -> TopicsState:
    topics = TopicsState.find(documents)
    assert topics is not None
    return topics
