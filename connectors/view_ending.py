"""A view's state thrown away, and a view's end: what ``cdc view rebuild`` and ``cdc view drop`` do."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from cdc.errors import ActiveError, UsageError
from cdc.settings import Settings
from cdc.topic import view_topic, views_topic
from cdc.views.known_views import KnownView, claim_key, closed_key, known_key, late_topic
from cdc.views.state_faults import opening_fault
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import KafkaCompactedTopic
from connectors.kafka.reach import require_broker
from connectors.view_log import KafkaViewOutput
from connectors.view_looks import other_state_path, state_path
from connectors.view_topics import known_views

_FILES = ("", "-wal", "-shm")


@contextmanager
def sole_keeper(path: Path) -> Iterator[None]:
    """Within, nobody else keeps the state at ``path``. It ends with the process, however that ends (H171).

    ActiveError where somebody does. ConfigError where its folder is wrong by itself, StateAway where it cannot be used
    now.
    """
    hint = "[views.NAME] state names another folder"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = Path(f"{path}.lock").open("ab")  # noqa: SIM115 - closed below
    except OSError as failure:
        raise opening_fault(path, failure, hint) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ActiveError(f"another runner keeps the state in {path}", hint="one runner per view: end it") from None
        except OSError as failure:
            raise opening_fault(path, failure, hint) from None
        yield
    finally:
        with suppress(OSError):
            lock.close()


def rebuild_view(settings: Settings, name: str) -> str:
    """Throw the state of a view away, so that its next runner builds it anew. Returns what was done, in a sentence.

    UsageError where the settings have no such view, or it was never published. ActiveError while a runner keeps it
    here.
    """
    if name not in settings.views:
        raise UsageError(f"the settings name no view {name}", hint=f"views: {', '.join(settings.views) or 'none yet'}")
    require_broker(settings.log)
    known = known_views(settings).known.get(name)
    if known is None:
        raise UsageError(f"the view {name} was never published", hint=f"cdc view run {name} builds it")
    paths = state_path(settings, name, known.generation), other_state_path(settings, name, known.generation)
    with ExitStack() as stack:
        for path in paths:
            stack.enter_context(sole_keeper(path))
        there = any(path.exists() for path in paths)
        for path in paths:
            remove_state(path)
    said = "its state is thrown away" if there else "it has no state on this machine"
    return f"{name}: {said}; cdc view run {name} builds it anew from the topics, and what stores show stays meanwhile"


def drop_view(settings: Settings, name: str) -> Iterator[str]:
    """End a view: its state here, its documents' topic, and what is known of it. A sentence for each.

    It may be killed at any step and run again. UsageError where there is no such view, or a sink of the settings names
    it. ActiveError while a runner keeps it here; one elsewhere ends with that.
    """
    with ExitStack() as stack:
        paths: tuple[Path, ...] = ()
        if name in settings.views:
            paths = state_path(settings, name, 1), other_state_path(settings, name, 1)
            for path in paths:
                stack.enter_context(sole_keeper(path))
        yield from _drop(settings, name, paths)


def _drop(settings: Settings, name: str, states: Sequence[Path]) -> Iterator[str]:
    require_broker(settings.log)
    admin, found = TopicAdmin(settings.log), known_views(settings)
    known = found.known.get(name)
    topic = known.topic if known is not None else view_topic(settings.name, name, 1)
    there = topic in admin.describe([topic])
    if known is None and not there:
        others = ", ".join(found.known) or "none"
        raise UsageError(f"no view {name} was published", hint=f"published views: {others}")
    for state in states:
        # First: a view that is made again would go on from one that stayed.
        there_was = state.exists()
        remove_state(state)
        if there_was or state == states[0]:
            yield f"state: {state} removed"
    if known is not None and there:
        # A runner on another machine cannot write any more.
        KafkaViewOutput(settings, name, known.generation, topic, known.partitions)
    if known is not None:
        _forget(settings, known)
    yield f"view {name}: forgotten; sinks name it no more"
    late = late_topic(settings.name, name)
    if late in admin.describe([late]):
        admin.delete([late])
        yield f"topic {late}: deleted"
    # Last: it says what there is to drop once nothing else knows the view.
    admin.delete([topic])
    yield f"topic {topic}: deleted"


def _forget(settings: Settings, known: KnownView) -> None:
    place = known.view, known.generation
    records = [(known_key(known.view), None), (claim_key(*place), None), (closed_key(*place), None)]
    KafkaCompactedTopic(settings.log, views_topic(settings.name)).write(records)


def remove_state(path: Path, delete: Callable[[Path], object] = shutil.rmtree) -> None:
    """Remove a state. Killed in between, it is run again. ``delete``: takes a folder with all that it holds away.

    A folder gets another name first: half of one would be taken for a state (H240).
    """
    gone = path.with_name(f"{path.name}.gone")
    if gone.exists():
        delete(gone)
    if path.is_dir():
        path.rename(gone)
        delete(gone)
        return
    for end in _FILES:
        Path(f"{path}{end}").unlink(missing_ok=True)
