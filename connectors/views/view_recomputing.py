"""Runners of views that are asked for documents once more, through the state topic, and what their topics hold now."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from cdc.process.clock import Clock
from cdc.record.topic_names import TableName, state_topic, views_topic
from cdc.settings.model import Settings
from cdc.verification.ports import PublishedDocument
from cdc.verification.repair import RunnerSilent
from cdc.views.known_views import KnownView
from cdc.views.view_ports import AskedKeys, RunnerAnswer, answer_key, asked_of, in_lots, read_answer
from cdc.views.view_records import row_of
from cdc.wire.format import POS
from connectors.kafka.compacted_topic import KafkaCompactedTopic, read_range
from connectors.kafka.feed import CompactedFeed
from connectors.views.view_topics import known_views

LOT_KEYS = 2_000
LOT_BYTES = 200_000
_LEFT_MS = 600_000
"""A wish that is older was left by a process that is gone."""
_POLL_S = 0.2


class KafkaRunners:
    """Implements :class:`cdc.verification.ports.AsksRunners`. ``fence``: writes a mark to the source's log, so that the
    runners take up a cut behind what they are asked."""

    def __init__(self, settings: Settings, fence: Callable[[], object], clock: Clock) -> None:
        self._settings = settings
        self._fence = fence
        self._clock = clock
        self._state = KafkaCompactedTopic(settings.log, state_topic(settings.name))

    def recompute(self, view: TableName, keys: Sequence[bytes], timeout_s: float) -> Mapping[bytes, str]:
        """See the protocol. A wish that nobody answers stays, and the next runner publishes what it names."""
        known = self._known(view)
        parked: dict[bytes, str] = {}
        with closing(CompactedFeed(self._settings.log, views_topic(self._settings.name))) as feed:
            for lot in in_lots([key.decode() for key in keys], LOT_KEYS, LOT_BYTES):
                now_ms = self._clock.now_ns() // 1_000_000
                wish = AskedKeys(topic=known.topic, id=secrets.token_hex(8), keys=lot, asked_ms=now_ms)
                self._require_alone(wish, known)
                self._state.write([(wish.key(), wish.to_json())])
                try:
                    self._fence()
                    answer = self._answer(feed, known, wish, timeout_s)
                except RunnerSilent:
                    # A version that was in the way is gone from the store already.
                    self._end(wish, replace(wish, asked_ms=0))
                    raise
                self._end(wish, None)
                parked |= {key.encode(): why for key, why in answer.parked.items()}
        return parked

    def _known(self, view: TableName) -> KnownView:
        known = known_views(self._settings).known.get(view.table)
        if known is None:
            raise RunnerSilent(
                f"the view {view.table} is not published", hint=f"cdc view run {view.table} publishes it"
            )
        return known

    def _require_alone(self, wish: AskedKeys, known: KnownView) -> None:
        """RunnerSilent where somebody else waits for the same runner. One that was killed left its wish, and once that
        is answered it stands in nobody's way."""
        newest = asked_of(self._state.read(), wish.topic)
        if newest is None or newest.id == wish.id or wish.asked_ms - newest.asked_ms >= _LEFT_MS:
            return
        answers = KafkaCompactedTopic(self._settings.log, views_topic(self._settings.name)).read()
        answer = read_answer(answers.get(answer_key(known.view, known.generation)))
        if answer is None or answer.id != newest.id:
            raise RunnerSilent(
                "another cdc verify --repair waits for the runner of this view",
                hint="repeat when that one has ended, or behind a killed one when the runner has answered it",
            )

    def _answer(self, feed: CompactedFeed, known: KnownView, wish: AskedKeys, timeout_s: float) -> RunnerAnswer:
        key = answer_key(known.view, known.generation)
        deadline_s = self._clock.monotonic() + timeout_s
        while True:
            for found, value in feed.poll(_POLL_S):
                answer = read_answer(value) if found == key else None
                if answer is not None and answer.id == wish.id:
                    return answer
            if self._clock.monotonic() >= deadline_s:
                self._require_alone(wish, known)
                raise RunnerSilent(
                    f"no runner of the view {known.view} has answered within {timeout_s:g} s",
                    hint=f"start cdc view run {known.view} and repeat; cdc status says what holds one that runs",
                )

    def _end(self, wish: AskedKeys, left: AskedKeys | None) -> None:
        """Nobody waits for it any more. Another one that has taken its place stays."""
        newest = asked_of(self._state.read(), wish.topic)
        if newest is not None and newest.id == wish.id:
            self._state.write([(wish.key(), None if left is None else left.to_json())])

    def published(self, view: TableName, keys: Collection[bytes]) -> Mapping[bytes, PublishedDocument]:
        """See the protocol. The view's topic is read whole."""
        known = self._known(view)
        found: dict[bytes, PublishedDocument] = {}
        for partition in range(known.partitions):
            for message in read_range(self._settings.log, known.topic, partition, None):
                key, pos = message.key(), dict(message.headers() or ()).get(POS)
                if isinstance(key, bytes) and key in keys and isinstance(pos, bytes):
                    found[key] = PublishedDocument(pos.decode(), _row(message.value()))
        return found


def _row(value: object) -> bytes | None:
    try:
        return row_of(value) if isinstance(value, bytes) else None
    except ValueError:
        return None
