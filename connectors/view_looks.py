"""Each view of the settings as ``cdc status`` shows it: from the views topic, and from its state where that is here."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from cdc.errors import ConfigError
from cdc.settings import Settings
from cdc.status.view_lines import RunnerState, ViewFacts
from cdc.views.fences import fence_of
from cdc.views.state_faults import ELSEWHERE
from cdc.views.view_state import SIZES
from connectors.view_topics import known_views, unfed_views

_FILES = ("", "-wal")


def state_path(settings: Settings, name: str, generation: int) -> Path:
    """The file of the state of a view's runner. ConfigError for a folder that is none."""
    folder = settings.views[name].state
    if "\0" in folder:
        raise ConfigError(f"the state of the view {name} lies in no folder: its name has a NUL", hint=ELSEWHERE)
    return Path(folder) / f"{settings.name}.{name}.{generation}.sqlite"


def state_bytes(path: Path) -> int:
    """The size of a state's files. OSError where they cannot be seen."""
    return sum(file.stat().st_size for end in _FILES if (file := Path(f"{path}{end}")).exists())


def look_at_views(settings: Settings) -> Sequence[ViewFacts]:
    """The views of the settings, in their order. LogError when no broker answers."""
    if not settings.views:
        return ()
    found, unfed = known_views(settings), unfed_views(settings)
    views = []
    for name in settings.views:
        known, progress = found.known.get(name), found.progress.get(name)
        if known is None:
            views.append(ViewFacts(name=name, fed=name not in unfed))
            continue
        fence = fence_of(progress) if progress is not None else None
        views.append(
            ViewFacts(
                name=name,
                generation=known.generation,
                epoch=fence.epoch if fence is not None else None,
                # 0 stands for none, where the view is held before its first build is whole.
                lsn=(fence.lsn or None) if fence is not None else None,
                state=_state(state_path(settings, name, known.generation)),
                held=progress.aside.get(known.topic, "") if progress is not None else "",
                fed=name not in unfed,
            )
        )
    return views


def _state(path: Path) -> RunnerState | None:
    """None where there is no such file here, or none that can be read now."""
    try:
        size_bytes = state_bytes(path)
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as session:
            waiting, parked = session.execute(SIZES).fetchone()
    except (OSError, sqlite3.Error):
        return None
    return RunnerState(waiting=waiting, parked=parked, size_bytes=size_bytes)
