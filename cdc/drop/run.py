"""The drop of one pipeline, over its ports. It may be killed at any step and run again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cdc.checks.ownership import Owner
from cdc.drop.ports import DropPorts, DropSource
from cdc.drop.rules import owner_by, require_own, stateless, topics_of
from cdc.errors import ConfigError, LogError, TopicError
from cdc.found import look
from cdc.topic import state_topic


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
            yield self._drop_topics()
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

    def _drop_topics(self) -> str:
        own, topics = self._own, self._ports.topics()
        state = self._read()
        if state is None:
            return stateless(self._plan.name, own, topics.names())
        others, last = topics_of(state, own)
        # The record that names them goes last, so that a drop which was cut short finds the rest.
        views = self._ports.views()
        if views[:-1]:
            topics.delete(views[:-1])
        topics.delete([*others, *views[-1:]])
        topics.delete(last)
        return f"topics: {len(views) + len(others) + len(last)} deleted"


def _outcome(dropped: bool) -> str:
    return "dropped" if dropped else "was not there"
