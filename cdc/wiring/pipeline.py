"""A pipeline's beginning and end: what ``cdc init`` makes and ``cdc drop`` removes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from cdc.checks.ownership import Owner, owner_of
from cdc.errors import Exit, SlotError, TopicError
from cdc.found import Unknown, look
from cdc.state import SlotIntent, SlotState, TopicsState
from cdc.topic import state_topic
from cdc.wiring import open_source, open_state, require_broker

__all__ = ["PreparedPipeline", "begin_epoch", "drop_pipeline", "prepare_pipeline", "slot_owner"]

if TYPE_CHECKING:
    from cdc.clock import Clock
    from cdc.settings import Settings
    from connectors.kafka.admin import TopicAdmin
    from connectors.postgres.session import Connection
    from connectors.prepare import Prepared as PreparedPipeline


def prepare_pipeline(settings: Settings) -> PreparedPipeline:
    """Make or check publication, topics and shapes; see :func:`connectors.prepare.prepare`."""
    from connectors.kafka.admin import TopicAdmin
    from connectors.prepare import prepare

    with closing(open_source(settings, application_name="cdc init")) as connection:
        require_broker(settings)
        admin = TopicAdmin(settings.log)
        return prepare(connection, settings, admin, open_state(settings))


def begin_epoch(settings: Settings, clock: Clock) -> tuple[int, PreparedPipeline]:
    """End the present epoch and prepare the next one; see :mod:`connectors.epoch`. Its number, and what was made."""
    from connectors.epoch import begin_epoch as begin
    from connectors.kafka.admin import TopicAdmin
    from connectors.prepare import check_ready, prepare

    with closing(open_source(settings, application_name="cdc init")) as connection:
        require_broker(settings)
        # First, because nothing may be given up that cannot be begun again.
        check_ready(connection, settings, None, besides=("publication", "slot", "free_slots"))
        state, admin = open_state(settings), TopicAdmin(settings.log)
        epoch = begin(connection, settings, admin, state, clock)
        return epoch, prepare(connection, settings, admin, state)


def slot_owner(settings: Settings) -> Owner | None:
    """Whose the slot of the pipeline's name is; None where the server has none. SourceError without a server."""
    with closing(open_source(settings, application_name="cdc drop")) as connection:
        return _owner(connection, settings)


def drop_pipeline(settings: Settings, *, topics: bool, sure: bool = False) -> Iterator[str]:
    """Drop slot and publication (and topics), a sentence at a time; of slot and publication both or none.

    ActiveError while something reads the slot. SlotError, or the error of the look, when the state does not name the
    slot as the pipeline's own, unless ``sure``: somebody has typed its name, knowing that.
    """
    from connectors.kafka.admin import TopicAdmin
    from connectors.postgres.facts import read_slot
    from connectors.postgres.publication import drop_publication
    from connectors.postgres.slot import drop_slot

    if topics:
        require_broker(settings)
    with closing(open_source(settings, application_name="cdc drop")) as connection:
        slot = read_slot(connection, settings.slot)
        if slot is not None and slot.active_pid is None and not sure:
            _require_own(settings, _owner(connection, settings))
        # A slot in use and a right that is missing both undo the publication's end: nothing is half done.
        with connection.transaction():
            published = drop_publication(connection, settings.publication)
            there = slot is not None and drop_slot(connection, settings.slot)
    yield f"slot {settings.slot}: {'dropped' if there else 'was not there'}"
    yield f"publication {settings.publication}: {'dropped' if published else 'was not there'}"
    if topics:
        yield _drop_topics(settings, TopicAdmin(settings.log))


def _owner(connection: Connection, settings: Settings) -> Owner | None:
    from connectors.postgres.facts import read_server, read_slot

    slot = read_slot(connection, settings.slot)
    if slot is None:
        return None
    state = look(lambda: _read_state(settings))
    if isinstance(state, Unknown):
        return Owner.UNKNOWN
    if settings.source.kind == "debezium":
        # The connector makes its slot and notes it nowhere.
        return Owner.OURS
    return owner_of(slot, read_server(connection), SlotState.find(state), SlotIntent.find(state))


def _read_state(settings: Settings) -> Mapping[bytes, bytes]:
    require_broker(settings)
    try:
        return open_state(settings).read()
    except TopicError:
        return {}


def _require_own(settings: Settings, owner: Owner | None) -> None:
    if owner is None or owner is Owner.OURS:
        return
    raise SlotError(
        f"the slot {settings.slot} was not dropped: {owner.value}",
        hint="cdc drop without --yes asks for the slot's name, and drops it all the same",
        exit=Exit.UNAVAILABLE if owner is Owner.UNKNOWN else Exit.SLOT,
    )


def _drop_topics(settings: Settings, admin: TopicAdmin) -> str:
    state = state_topic(settings.name)
    try:
        known = TopicsState.find(open_state(settings).read())
    except TopicError:
        left = [topic for topic in admin.names() if topic.startswith(f"{settings.name}.") and topic != state]
        if left:
            return f"topics: {state} is not there, so these are left to be deleted by hand: {', '.join(left)}"
        return f"topics: the pipeline {settings.name} has none"
    names = set(known.topics) if known is not None else set()
    admin.delete(sorted(names - {state}))
    # Last, because it names the others: a drop that was cut short can be run again.
    admin.delete([state])
    return f"topics: {len(names | {state})} deleted"
