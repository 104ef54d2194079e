"""The end of a pipeline: slot and publication, and its topics where that is asked for: ``cdc drop``.

It may be killed at any step and run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from cdc.process.errors import ConfigError, Exit, LogError, SlotError, TopicError
from cdc.record.ports import CompactedTopic, Unknown, look
from cdc.record.server_facts import Owner, ServerFacts, SlotFacts, owner_of
from cdc.record.state import SlotIntent, SlotState, TopicsState
from cdc.record.topic_names import state_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPlan:
    """The pipeline. ``by_debezium``: a connector captures, so the slot is one that it made."""

    name: str
    slot: str
    publication: str
    by_debezium: bool = False


class Drop:
    """Drops one pipeline. SourceError when Postgres does not answer."""

    def __init__(self, plan: DropPlan, ports: DropPorts) -> None:
        self._plan = plan
        self._ports = ports
        self._own = state_topic(plan.name)
        self._gone = False

    def owner(self) -> Owner | None:
        """Whose the slot of the pipeline's name is. None where the server has none."""
        with self._ports.source() as source:
            return self._owner(source)

    def run(self, *, topics: bool, sure: bool = False) -> Iterator[str]:
        """Drop slot and publication (and ``topics``), a sentence at a time. Of slot and publication both or none, but
        for a publication that is not ours: it is left, and named by the ConfigError in the end.

        ActiveError while something reads the slot. SlotError when the state does not name the slot as the pipeline's
        own or cannot be read, unless ``sure``: somebody has typed its name, knowing that. LogError, before anything is
        dropped, when topics are to go and no broker takes a connection.
        """
        left: ConfigError | None = None
        if topics:
            # Before anything is dropped: it names the topics that go.
            self._state()
        with self._ports.source() as source:
            slot = source.slot()
            if slot is not None and slot.active_pid is None and not sure:
                self._require_own(source)
            # A slot in use undoes the publication's end: nothing is half done.
            with source.transaction():
                try:
                    published = source.drop_publication()
                except ConfigError as of_another_role:
                    left = of_another_role
                dropped = slot is not None and source.drop_slot()
        yield f"slot {self._plan.slot}: {_outcome(dropped)}"
        yield f"publication {self._plan.publication}: {'left' if left is not None else _outcome(published)}"
        if topics:
            yield from self._drop_topics()
        if left is not None:
            raise left

    def _owner(self, source: DropSource) -> Owner | None:
        slot = source.slot()
        if slot is None:
            return None
        return owner_by(look(self._state), slot, source.server(), by_debezium=self._plan.by_debezium)

    def _require_own(self, source: DropSource) -> None:
        owner = self._owner(source)
        if owner is not None:
            require_own(self._plan.slot, owner)

    def _state(self) -> Mapping[bytes, bytes]:
        self._ports.reach()
        return self._read() or {}

    def _read(self) -> Mapping[bytes, bytes] | None:
        """The state topic. None where there is none. LogError where one broker says so, and its word is not known to be
        true: it lags behind, and topics of others would go on the ground of that."""
        try:
            return self._ports.state.read()
        except TopicError:
            # Asked for once: it takes seconds.
            if not self._gone and not self._ports.gone(self._own):
                raise LogError(
                    f"a broker did not know the topic {self._own} for a moment, so it is not known which topics go",
                    hint="run cdc drop again: a broker that lags behind comes to know its topics by itself",
                ) from None
        self._gone = True
        return None

    def _drop_topics(self) -> Iterator[str]:
        own, topics = self._own, self._ports.topics()
        state = self._read()
        if state is None:
            yield stateless(self._plan.name, own, topics.names())
            return
        others, last = topics_of(state, own)
        # The record that names them goes last, so that a drop which was cut short finds the rest.
        views = self._ports.views()
        if folders := checkpoints_of(self._plan.name, views):
            # While their topics still name them.
            yield f"checkpoints of streams: left, so delete below [spark] checkpoint: {', '.join(folders)}"
        if views[:-1]:
            topics.delete(views[:-1])
        topics.delete([*others, *views[-1:]])
        topics.delete(last)
        yield f"topics: {len(views) + len(others) + len(last)} deleted"


def _outcome(dropped: bool) -> str:
    return "dropped" if dropped else "was not there"


def owner_by(
    state: Mapping[bytes, bytes] | Unknown, slot: SlotFacts, server: ServerFacts, *, by_debezium: bool
) -> Owner:
    """Whose a slot is, by the pipeline's state. ``by_debezium``: a connector made it."""
    if isinstance(state, Unknown):
        return Owner.UNKNOWN
    if by_debezium:
        # The connector makes its slot and notes it nowhere.
        return Owner.OURS
    return owner_of(slot, server, SlotState.find(state), SlotIntent.find(state))


def require_own(slot: str, owner: Owner) -> None:
    """SlotError unless the pipeline's state names the slot as its own."""
    if owner is Owner.OURS:
        return
    raise SlotError(
        f"the slot {slot} was not dropped: {owner.value}",
        hint="cdc drop without --yes asks for the slot's name, and drops it all the same",
        exit=Exit.UNAVAILABLE if owner is Owner.UNKNOWN else Exit.SLOT,
    )


def topics_of(state: Mapping[bytes, bytes], own: str) -> tuple[list[str], list[str]]:
    """The topics to delete, in two lots. ``own``: the state topic, which is the second lot.

    It names the others, so a drop that was cut short can be run again.
    """
    known = TopicsState.find(state)
    return sorted((set(known.topics) if known is not None else set()) - {own}), [own]


def checkpoints_of(name: str, topics: Iterable[str]) -> list[str]:
    """The folders of the streams whose topics these are: of each generation one, as a checkpoint's is called.

    >>> checkpoints_of("shop", ["shop.stream.traffic.2", "shop.stream.traffic.late", "shop.view.orders.1"])
    ['stream.traffic.2']
    """
    found = [topic.removeprefix(f"{name}.") for topic in topics if topic.startswith(f"{name}.stream.")]
    return [folder for folder in found if folder.rpartition(".")[2].isdecimal()]


def stateless(name: str, own: str, topics: Iterable[str]) -> str:
    """The sentence where the state topic does not exist, so that nothing names the others."""
    left = [topic for topic in topics if topic.startswith(f"{name}.") and topic != own]
    if left:
        return f"topics: {own} is not there, so these are left to be deleted by hand: {', '.join(left)}"
    return f"topics: the pipeline {name} has none"


class DropSource(Protocol):
    """A session with the Postgres server, for one pipeline. SourceError when it does not answer."""

    def server(self) -> ServerFacts:
        """The server and our role on it."""

    def slot(self) -> SlotFacts | None:
        """The pipeline's slot. None where the server has none."""

    def transaction(self) -> AbstractContextManager[object]:
        """Drops within take effect when it ends, and the publication goes only then. An error undoes its end."""

    def drop_publication(self) -> bool:
        """False when there is none. ConfigError when it is not ours to drop."""

    def drop_slot(self) -> bool:
        """False when there is none. ActiveError when something reads it. The server drops it at once."""


class DropTopics(Protocol):
    """The log's topics. LogError when no broker answers."""

    def names(self) -> Sequence[str]:
        """Every topic of the cluster."""

    def delete(self, topics: Iterable[str]) -> None:
        """Delete these. One that does not exist is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPorts:
    """Everything that a drop uses.

    ``reach`` raises LogError, at once, when no broker takes a connection. ``source`` opens a session. ``state``: the
    pipeline's topic. TopicError when a broker does not know it. ``gone``: whether no broker has named a topic for some
    seconds on end. ``topics`` opens the administration of the log. ``views``: the topics of documents, and last the one
    that names them. Nothing before the first view.
    """

    reach: Callable[[], None]
    source: Callable[[], AbstractContextManager[DropSource]]
    state: CompactedTopic
    topics: Callable[[], DropTopics]
    gone: Callable[[str], bool]
    views: Callable[[], Sequence[str]] = tuple
