"""One thread per store and process that looks at a watermark while somebody waits for it, and rests otherwise."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext

from cdc.errors import CdcError, SinkError
from cdc.freshness.opened_stores import KeptStores, OpenedStore
from cdc.freshness.rules import FIRST_PAUSE_S, LONGEST_PAUSE_S
from cdc.freshness.wanted import TokenWaits, Wanted
from cdc.progress import Watermark

_SLOWER = 1.5
_END_S = 5.0
_STORE = ""


class WatermarkPoller:
    """Looks at one store for all threads and loops of the process.

    ``briefly``: within, a store that does not answer is given up soon. Looks are 10 ms apart at first, and up to 200 ms
    while nobody new comes.
    """

    def __init__(
        self,
        open_store: Callable[[], OpenedStore],
        briefly: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._open_store = open_store
        self._briefly = briefly
        self._users = 0
        self._begin()

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._waiting = TokenWaits()
        self._thread: threading.Thread | None = None
        self._ended = False
        self._pause_s = FIRST_PAUSE_S
        self.seen: Watermark | None = None
        """The watermark of the newest look. None before one, and for a store without."""
        self.looked = False
        """Whether any look was answered."""

    def ask(self, wanted: Wanted) -> Future[Watermark]:
        """The watermark that shows a token, once there is one. Cancel it to wait no longer.

        It fails with NotShown where waiting is of no use, and with SinkError where the store does not answer.
        """
        with self._changed:
            answer = self._waiting.add(wanted)
            self._pause_s = FIRST_PAUSE_S
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="freshness", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return answer

    def join(self) -> None:
        """One user more."""
        self._users += 1

    def leave(self) -> bool:
        """One user less. Whether none is left."""
        self._users -= 1
        return self._users == 0

    def end(self) -> None:
        """Look no more, and close the store. A look that is under way and does not end within 5 s is left behind."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(_END_S)

    def forked(self) -> None:
        """This process is a fork: the thread stayed with the parent, and so do its connections."""
        users = self._users
        self._begin()
        self._users = users

    def _run(self) -> None:
        stores = KeptStores(lambda _: self._open_store())
        try:
            while self._await_somebody():
                self._look(stores)
        finally:
            stores.close()

    def _await_somebody(self) -> bool:
        """Return when it is time for a look. False at the end."""
        with self._changed:
            while not self._ended and not len(self._waiting):
                self._changed.wait()
            return not self._ended

    def _look(self, stores: KeptStores) -> None:
        try:
            with self._briefly():
                watermark = stores.watermarks(_STORE).read()
        except CdcError as failure:
            with self._changed:
                self._waiting.fail(failure)
            return
        except Exception as failure:
            # Left alone it would end the thread, and everybody would wait for nothing.
            with self._changed:
                self._waiting.fail(SinkError(f"the store cannot be asked: {type(failure).__name__}"))
            return
        with self._changed:
            self.seen, self.looked = watermark, True
            self._waiting.settle(watermark)
            if len(self._waiting) and not self._ended:
                self._changed.wait(self._pause_s)
                self._pause_s = min(self._pause_s * _SLOWER, LONGEST_PAUSE_S)


class Pollers:
    """The pollers of a process, one for each store. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pollers: dict[Hashable, WatermarkPoller] = {}
        os.register_at_fork(after_in_child=self._forked)

    def __len__(self) -> int:
        return len(self._pollers)

    def join(self, store: Hashable, make: Callable[[], WatermarkPoller]) -> WatermarkPoller:
        """The poller of a store, made for its first user. :meth:`leave` it at the end."""
        with self._lock:
            found = self._pollers.get(store)
            if found is None:
                found = self._pollers[store] = make()
            found.join()
            return found

    def leave(self, store: Hashable) -> None:
        """One user of the store's poller less. The last one closes the store."""
        with self._lock:
            poller = self._pollers[store]
            if not poller.leave():
                return
            del self._pollers[store]
        poller.end()

    def _forked(self) -> None:
        self._lock = threading.Lock()
        for poller in self._pollers.values():
            poller.forked()


POLLERS = Pollers()
"""Those of this process."""
