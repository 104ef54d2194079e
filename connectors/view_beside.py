"""The runner of views in a thread beside the stores of ``cdc sink``: one process fewer to look after."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cdc.errors import CdcError, ConfigError
from cdc.settings import Settings
from connectors.view_running import keep_views

log = logging.getLogger(__name__)

_END_S = 60.0
"""So long a turn may take to end."""


class ViewsBeside:
    """Views kept by a thread. ``keep`` keeps them until the event, and raises what stops all: it ends the thread
    alone."""

    def __init__(self, keep: Callable[[threading.Event], None]) -> None:
        self.fault: Exception | None = None
        """Why no view is kept any more. None while they are, and where they were asked to end."""
        self._keep = keep
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="views", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> bool:
        """Ask for an end and wait for it. Returns whether it came in time. The next start does the rest."""
        self._stopping.set()
        self._thread.join(_END_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._keep(self._stopping)
        except CdcError as failure:
            log.error("views_ended", extra={"reason": failure.message, "hint": failure.hint})
            self.fault = failure
        except Exception as failure:
            log.error("views_ended", extra={"reason": f"{type(failure).__name__}: a bug"})
            self.fault = failure


@contextmanager
def views_beside(settings: Settings) -> Iterator[ViewsBeside]:
    """All views of the settings, kept while the block runs. Behind it what had ended them is raised.

    ConfigError where the settings have none.
    """
    if not settings.views:
        raise ConfigError("the settings name no view", hint="leave --views out, or add a [views.NAME] section")
    beside = ViewsBeside(lambda stopping: keep_views(settings, (), stopping, begun=True))
    beside.start()
    try:
        yield beside
    finally:
        if not beside.end():
            log.warning("views_left_behind")
    if beside.fault is not None:
        raise beside.fault
