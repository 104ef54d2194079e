"""A view's state thrown away, a generation's end and a view's: the ends that ``cdc view rebuild`` and ``cdc view drop``
bring."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from cdc.process.errors import ActiveError, UsageError
from cdc.record.topic_names import views_topic
from cdc.settings.model import Settings
from cdc.views.known_views import KnownView, claim_key, coming_key, identity_key, known_key
from cdc.views.log_cut import BEFORE_ALL, Fence
from cdc.views.state_reach import is_there, opening_fault
from cdc.views.view_ports import ViewOutput, answer_key
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.broker_answers import require_broker
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.feed import newest_progress
from connectors.views.view_log import KafkaViewOutput
from connectors.views.view_topics import generation_topics, known_views, state_path

_FILES = ("", "-wal", "-shm")
_OF_A_GENERATION = (claim_key, answer_key, identity_key)
"""The keys of what the views topic says of one."""


@contextmanager
def sole_keeper(path: Path) -> Iterator[None]:
    """Within, nobody else keeps the state at ``path``. It ends with the process, however that ends.

    ActiveError where somebody does. ConfigError where its folder is wrong by itself, StateAway where it cannot be used
    now.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = Path(f"{path}.lock").open("ab")  # noqa: SIM115 - closed below
    except OSError as failure:
        raise opening_fault(path, failure) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ActiveError(f"another runner keeps the state in {path}", hint="one runner per view: end it") from None
        except OSError as failure:
            raise opening_fault(path, failure) from None
        yield
    finally:
        with suppress(OSError):
            lock.close()


def throw_state_away(settings: Settings, name: str, generation: int) -> str:
    """Throw the state of a generation away, so that its next runner builds it anew. Returns what was done, in a
    sentence. ActiveError while a runner keeps it here.
    """
    there = _remove_state(settings, name, generation)
    said = "its state is thrown away" if there else "it has no state on this machine"
    return f"{name}: {said}; cdc view run {name} builds it anew from the topics, and what stores show stays meanwhile"


def _remove_state(settings: Settings, name: str, generation: int) -> bool:
    """Remove the state of a generation on this machine. Returns whether there was one. ActiveError while a runner
    keeps it."""
    path = state_path(settings, name, generation)
    with sole_keeper(path):
        there = is_there(path)
        remove_state(path)
    return there


def fence_above_earlier(settings: Settings, known: KnownView, published: Fence, output: ViewOutput) -> Fence:
    """End the runners of the generations before this one. Returns a fence above all that they have published:
    BEFORE_ALL where this one has published already, by its state or by its claim, or is the first.

    Nothing can be published at a fence that no progress record had by then. LogError when no broker answers.
    """
    claimed = output.claimed()
    if known.generation == 1 or published > BEFORE_ALL or (claimed is not None and claimed.lsn):
        return BEFORE_ALL
    for number, topic in generation_topics(settings, known.view).items():
        if number < known.generation:
            KafkaViewOutput(settings, known.view, number, topic, 1)
    newest = newest_progress(settings)
    return BEFORE_ALL if newest is None else Fence(newest.epoch, newest.lsn + 1)


def end_state(settings: Settings, name: str, generation: int) -> Iterator[str]:
    """Remove a generation's state on this machine, in a sentence. One that a runner still keeps is left."""
    try:
        if _remove_state(settings, name, generation):
            yield f"{name}: the state of generation {generation} removed"
    except ActiveError as kept:
        yield f"{name}: the state of generation {generation} stays: {kept.message}"


def end_generation(settings: Settings, name: str, generation: int, topic: str) -> Iterator[str]:
    """Remove a generation that nobody is to see any more: its state here, its topic and what is known of it. A sentence
    for each. A state that a runner still keeps is left."""
    yield from end_state(settings, name, generation)
    keys = [of(name, generation) for of in _OF_A_GENERATION]
    KafkaCompactedTopic(settings.log, views_topic(settings.name)).write([(key, None) for key in keys])
    admin = TopicAdmin(settings.log)
    if topic in admin.describe([topic]):
        admin.delete([topic])
        yield f"{name}: topic {topic} deleted"


def end_former_generations(settings: Settings, name: str) -> Iterator[str]:
    """End the generations of a view before the published one, whose topic stays behind a rebuild. A sentence for each.
    UsageError where there is none."""
    known = known_views(settings).known.get(name)
    topics = {} if known is None else generation_topics(settings, name)
    former = [number for number in topics if known is not None and number < known.generation]
    if not former:
        raise UsageError(f"the view {name} has no former generation", hint="cdc view list shows the published ones")
    for number in former:
        yield from end_generation(settings, name, number, topics[number])


def drop_view(settings: Settings, name: str) -> Iterator[str]:
    """End a view: its state here, its documents' topic, and what is known of it. A sentence for each.

    It may be killed at any step and run again. UsageError where there is no such view, or a sink of the settings names
    it. ActiveError while a runner keeps it here; one elsewhere ends with that.
    """
    require_broker(settings.log)
    found = known_views(settings).known
    topics = generation_topics(settings, name)
    if name not in found and not topics:
        raise UsageError(f"no view {name} was published", hint=f"published views: {', '.join(found) or 'none'}")
    numbers = sorted({1, *topics, *([found[name].generation] if name in found else [])})
    with ExitStack() as stack:
        paths = [state_path(settings, name, number) for number in numbers if name in settings.views]
        for path in paths:
            stack.enter_context(sole_keeper(path))
        for path in paths:
            # First: a view that is made again would go on from one that stayed.
            there_was = is_there(path)
            remove_state(path)
            if there_was or path == paths[0]:
                yield f"state: {path} removed"
        yield from _drop(settings, name, numbers, topics)


def _drop(settings: Settings, name: str, numbers: Sequence[int], topics: Mapping[int, str]) -> Iterator[str]:
    admin = TopicAdmin(settings.log)
    for number, topic in topics.items():
        # A runner on another machine cannot write any more.
        KafkaViewOutput(settings, name, number, topic, 1)
    known = [known_key(name), coming_key(name)]
    keys = [*known, *(of(name, number) for number in numbers for of in _OF_A_GENERATION)]
    if views_topic(settings.name) in admin.describe([views_topic(settings.name)]):
        KafkaCompactedTopic(settings.log, views_topic(settings.name)).write([(key, None) for key in keys])
    yield f"view {name}: forgotten; sinks name it no more"
    # Last: they say what there is to drop once nothing else knows the view.
    for topic in topics.values():
        admin.delete([topic])
        yield f"topic {topic}: deleted"


def remove_state(path: Path) -> None:
    """Remove a state. Killed in between, it is run again. Raises as :func:`cdc.views.state_reach.opening_fault` where
    the place does not let it go."""
    try:
        for end in _FILES:
            Path(f"{path}{end}").unlink(missing_ok=True)
    except OSError as failure:
        raise opening_fault(path, failure) from None
