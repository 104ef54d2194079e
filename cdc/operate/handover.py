"""One writer after the other on the same topics, without a new snapshot: ``cdc connect handover``.

The slot passes from Debezium to the native capture, so no WAL is lost between them. Each step is noted in
``<name>.state`` before the next begins, so that a command that was killed anywhere goes on by being run again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from cdc.operate.handover_rules import (
    HandoverPlan,
    HandoverPorts,
    adopted,
    key_problems,
    key_questions,
    require_complete,
    require_no_writer,
    require_partitions,
    require_read,
    require_same_keys,
    require_unshaped,
    usable,
)
from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import ActiveError, LogError
from cdc.record.position import Lsn
from cdc.record.progress import PROGRESS_KEY, Offsets, Progress, WriterState
from cdc.record.server_facts import ServerFacts, SlotFacts
from cdc.record.source_lineage import SourceLineage
from cdc.record.state import TopicsState
from cdc.record.topic_names import state_topic

log = logging.getLogger(__name__)
Say = Callable[[str], None]

declare("handover_begun", "handover_adopted", "handover_stopped")

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

    def run(self) -> WriterState:
        """Let the native capture write the pipeline's topics from here on. Returns what was noted. Safe to repeat.

        Everything is checked before anything is stopped: ConfigError where the two would write other keys, topics or
        partitions, and while rows are read that were asked for. ActiveError while ``cdc run`` runs. Raises
        ConnectError, SlotError, TopicError, LogError.
        """
        known = self._noted()
        if known is not None and known.settled:
            self._say("nothing to do: the native capture writes already")
            return known
        if known is None:
            known = self._begin()
        if known.step == "begun":
            known = self._take_over(known)
        if self._ports.connector.withdraw():
            self._say(f"removed the connector {self._plan.connector} with its offsets")
        done = self._note(replace(known, step="done"))
        self._say(f'the native capture goes on at {Lsn(done.lsn)}: set [source] kind = "postgres", then cdc run')
        return done

    def _begin(self) -> WriterState:
        facts = self._ports.connector.facts()
        require_complete(facts)
        require_no_writer(self._ports.source.writer())
        # Debezium makes a publication without TRUNCATE. Where it is sent, Debezium skips it by its own settings.
        if self._ports.source.publish_everything():
            self._say(f"the publication {self._plan.publication} sends TRUNCATE too, from now on")
        self._require_same()
        if facts.messages:
            self._say(f"logical messages are carried no more: {facts.messages} stands still from now on")
        known = self._note(WriterState(step="begun"))
        crash_point("handover_begun")
        return known

    def _take_over(self, known: WriterState) -> WriterState:
        if self._ports.connector.stop():
            self._say(f"stopped the connector {self._plan.connector}")
            # It may have begun to read since it was asked. It has stored what it is at.
            unread = self._ports.connector.unread()
            if unread:
                self._ports.connector.resume()
                self._forget(known)
                require_read(unread)
        known = self._note(replace(known, step="stopped", **self._adopt()))
        crash_point("handover_stopped")
        return known

    def _adopt(self) -> dict[str, Any]:
        """Note slot, snapshot and progress as the native capture would have. The LSN it goes on from, and where
        Debezium's records end: what was committed since that LSN stands in the topics twice."""
        server, slot = self._free_slot()
        documents = self._ports.state.read()
        topics = _topics(documents)
        noted, snapshot = adopted(self._plan, documents, server, slot)
        start = slot.confirmed_flush_lsn or 0
        ends = self._still(topics)
        progress = Progress(epoch=noted.epoch, lsn=start, lineage=SourceLineage.of_slot(noted), offsets=ends)
        self._ports.progress.write([(PROGRESS_KEY, progress.to_json())])
        self._ports.state.write([(noted.key(), noted.to_json()), (snapshot.key(), snapshot.to_json())])
        crash_point("handover_adopted")
        texts = {topic: {str(p): end for p, end in parts.items()} for topic, parts in ends.items()}
        return {"lsn": start, "ends": texts}

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

    def _noted(self) -> WriterState | None:
        if not self._ports.topics.counts([state_topic(self._plan.name)]):
            return None
        return WriterState.find(self._ports.state.read())

    def _note(self, state: WriterState) -> WriterState:
        self._ports.state.write([(state.key(), state.to_json())])
        log.info("handover", extra={"step": state.step, "lsn": str(Lsn(state.lsn))})
        return state

    def _forget(self, state: WriterState) -> None:
        self._ports.state.write([(state.key(), None)])


def _topics(documents: Mapping[bytes, bytes]) -> TopicsState:
    topics = TopicsState.find(documents)
    assert topics is not None
    return topics
