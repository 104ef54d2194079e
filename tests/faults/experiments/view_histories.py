"""Histories of tables made up by seed, and a view's runner over them that is killed and whose state falls back.

The rules of the runner are the real ones, over a state in a file. The log, the topic and the clock stand in memory:
partitions read unevenly, borders of cuts anywhere, records of strangers, compaction, windows read ahead of their place,
rows put aside and tables set aside, a damaged store that asks for documents once more. At each claim the topic is
compared with the view worked out by plain Python from the transactions below the fence.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from cdc.views.log_cut import Fence
from tests.faults.lab import Found
from tests.unit.cdc.views import ahead_histories
from tests.unit.cdc.views.ahead_histories import AheadHistory
from tests.unit.cdc.views.damaged_stores import DamagedStore
from tests.unit.cdc.views.oracles import VIEWS as PLAIN_VIEWS
from tests.unit.cdc.views.view_histories import History, Rows, Runner, interfere, shown, whole_at

VIEWS = True
"""It defines views, so what they reach counts."""
AT_ONCE = 20
"""Histories of one seed."""
_TOPIC = "t.view.v.1"
_KINDS = ("plain", "plain", "asked", "read again", "put aside", "set aside")
_MEMORY = Path("/dev/shm")

Oracle = Callable[[Rows], dict[bytes, object]]


def trial(seed: int) -> Mapping[str, int]:
    """Twenty histories."""
    counted: Counter[str] = Counter()
    place = str(_MEMORY) if _MEMORY.is_dir() else None
    for number in range(seed * AT_ONCE, (seed + 1) * AT_ONCE):
        with TemporaryDirectory(dir=place, prefix="cdc-view-") as folder:
            counted += history(number, Path(folder))
    return counted


def history(number: int, folder: Path) -> Counter[str]:
    """One history, by its number."""
    chance = random.Random(f"views {number}")
    kind = chance.choice(_KINDS)
    one = _Plain(chance, folder, asks=kind == "asked") if kind in ("plain", "asked") else _Ahead(chance, folder, kind)
    try:
        for _ in range(chance.randint(2, 6)):
            one.step()
        one.conclude()
    except Exception as error:
        raise Found(f"view history {number} ({kind}): {type(error).__name__}: {error}") from error
    finally:
        one.runner.end()
    return one.counted + Counter(histories=1, **{f"histories_{kind.replace(' ', '_')}": 1})


class _Beside:
    """A history, and the runner beside it."""

    def __init__(self, chance: random.Random, log: History, runner: Runner, oracle: Oracle) -> None:
        self.chance, self.log, self.runner, self.oracle = chance, log, runner, oracle
        self.counted: Counter[str] = Counter()

    def turns(self) -> None:
        """Some turns, each with its chance of a kill. Whatever shows a claim is compared."""
        self.runner.kill_chance = 0.2
        for _ in range(self.chance.randint(0, 5)):
            self.runner.turn()
            self.counted["kills"] += self.runner.keeper is None
            self.look()

    def look(self) -> None:
        """Compare, where a reader can know what it sees."""
        fence = whole_at(self.runner.topic)
        if fence is not None:
            self.compare(fence)

    def compare(self, fence: Fence) -> None:
        self.counted["claims"] += 1
        if shown(self.runner.topic) != self.oracle(self.log.at(fence.lsn)):
            raise Found(f"another view than that of the tables at {fence}")

    def disturb(self) -> None:
        """An end, a state that is copied, put back or deleted; time, and the cleaner."""
        self.counted["states_put_back_or_gone"] += interfere(self.runner, self.chance)
        self.log.clock.advance(self.chance.choice([1, 20, 70]))
        if self.chance.random() < 0.5:
            self.log.compact()
            self.counted["compactions"] += 1

    def level(self) -> None:
        claim = self.runner.until_level()
        newest = self.log.input.newest
        if newest is None or claim != Fence(1, newest.lsn):
            raise Found(f"it is level at {claim}, and the log at {newest}")
        self.compare(claim)


class _Plain(_Beside):
    """Transactions as capture writes them. ``asks``: a store is damaged, and somebody asks for its documents."""

    def __init__(self, chance: random.Random, folder: Path, *, asks: bool) -> None:
        sql, oracle = PLAIN_VIEWS[chance.choice(sorted(PLAIN_VIEWS))]
        log = History(chance)
        super().__init__(chance, log, Runner(sql, log, folder, bulk=chance.choice([3, 1000])), oracle)
        self._store = DamagedStore() if asks else None

    def step(self) -> None:
        """Changes, a progress record at times, turns and a disturbance."""
        chance, log = self.chance, self.log
        for _ in range(chance.randint(0, 3)):
            log.transaction()
        if chance.random() < 0.1:
            log.truncate()
        if chance.random() < 0.2 and self._store is None:
            log.foreign()
        if chance.random() < 0.7:
            log.progress()
        self.turns()
        self.disturb()
        if self._store is not None and log.input.newest is not None:
            self._ask(self._store)

    def _ask(self, store: DamagedStore) -> None:
        self.runner.until_level()
        store.follow(self.runner.topic)
        wish = self.log.ask(_TOPIC, store.damage(self.chance))
        self.log.lsn += 8
        self.log.progress()
        self.turns()
        self.level()
        store.follow(self.runner.topic)
        if store.shown() != shown(self.runner.topic) or self.runner.topic.answers[-1].id != wish.id:
            raise Found("a damaged store was not mended")
        self.counted["damaged_stores_mended"] += 1

    def conclude(self) -> None:
        """Everything is claimed, and true."""
        self.log.progress()
        self.level()


class _Ahead(_Beside):
    """Capture is behind its source, and its log holds what is newer than its place, or lacks rows for a while."""

    def __init__(self, chance: random.Random, folder: Path, kind: str) -> None:
        sql, oracle = ahead_histories.VIEWS[chance.choice(sorted(ahead_histories.VIEWS))]
        log = ahead_histories.history(
            chance.randrange(2**32), puts_aside=kind == "put aside", sets_aside=kind == "set aside"
        )
        bulk = log.chance.choice([3, 1000])
        super().__init__(log.chance, log, Runner(sql, log, folder, bulk=bulk, shapes=ahead_histories.SHAPES), oracle)
        self._ahead: AheadHistory = log

    def step(self) -> None:
        """Commits, some of them streamed, a reading or a table that is set aside, turns and a disturbance."""
        log, chance = self._ahead, self.chance
        for _ in range(chance.randint(0, 3)):
            log.transaction()
        log.stream(chance.randint(0, 3))
        match chance.randrange(6):
            case 0:
                log.read(chance.choice(("orders", "lines", "customers")))
            case 1:
                log.read(chance.choice(("orders", "lines", "customers")), chance.sample(range(1, 7), 2))
            case 2:
                log.set_aside()
            case 3:
                log.follow_again()
        if chance.random() < 0.7:
            log.progress()
        self.turns()
        self.disturb()

    def conclude(self) -> None:
        """Whatever lacked is mended, and everything is claimed."""
        self._ahead.mend()
        self.level()
