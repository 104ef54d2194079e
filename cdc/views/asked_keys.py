"""Documents of a view that somebody asks its runner to compute and publish once more: ``cdc verify --repair``.

The wish is a record of the state topic, so it outlives both sides. The runner takes it up with its next cut, so that
what it publishes is newer than anything a store can hold from before, and answers in the views topic when none of the
keys waits any more. Killed between the two it answers once more. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cdc.record.documents import dumped
from cdc.record.state import Document
from cdc.views.lookups import Row
from cdc.views.view_plan import ViewPlan
from cdc.views.view_ports import RunnerAnswer, ViewInput, ViewOutput
from cdc.views.view_records import key_row

REASON_CHARACTERS = 100
"""Of each reason in an answer, which has to fit into a record with all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedKeys(Document):
    """The keys of records, as JSON, whose documents are wanted once more. ``topic``: the view's. ``id``: of the wish.

    A view has one wish at a time. ``asked_ms``: since 1970, 0 for one that nobody waits for any more.
    """

    WHAT = "asked_keys"
    topic: str
    id: str
    keys: list[str] = field(default_factory=list)
    asked_ms: int = 0

    def key(self) -> bytes:
        """The key of its record, one for each topic of a view."""
        return dumped({"what": self.WHAT, "topic": self.topic})


def asked_of(documents: Mapping[bytes, bytes], topic: str) -> AskedKeys | None:
    """The wish to the runner that fills ``topic``, by the state topic's records. None where there is none."""
    value = documents.get(AskedKeys(topic=topic, id="").key())
    return None if value is None else AskedKeys.from_json(value)


def rows_asked(plan: ViewPlan, keys: Iterable[str]) -> list[Row]:
    """The keys of documents. One that is none of the view's keys is passed over: nothing stands under it."""
    found = []
    for key in keys:
        try:
            found.append(key_row(plan, key.encode()))
        except (ValueError, KeyError, TypeError):
            continue
    return list(dict.fromkeys(found))


def in_lots(keys: Sequence[str], most: int, most_bytes: int) -> list[list[str]]:
    """The keys in wishes of a size that a record may have, in UTF-8, as its answer may with a reason for each.

    >>> in_lots(["a", "bb", "c"], 2, 3)
    [['a', 'bb'], ['c']]
    """
    lots: list[list[str]] = []
    size = 0
    for key in keys:
        key_bytes = len(key.encode())
        if not lots or len(lots[-1]) >= most or size + key_bytes > most_bytes:
            lots.append([])
            size = 0
        lots[-1].append(key)
        size += key_bytes
    return lots


class AskedOnce:
    """The wish that a runner has to do with. ``topic``: the view's. ``taken`` is the id of the wish that the state has
    taken up, as it notes it."""

    def __init__(self, log_input: ViewInput, output: ViewOutput, topic: str) -> None:
        self._input = log_input
        self._output = output
        self._topic = topic
        self._open: AskedKeys | None = None

    def begin(self, taken: str) -> None:
        """Take up a wish of a run before that was not answered. LogError when no broker answers."""
        found = asked_of(self._input.documents(), self._topic)
        if found is not None and found.id == taken and self._output.answered() != found.id:
            self._open = found

    def new(self, documents: Mapping[bytes, bytes], taken: str) -> AskedKeys | None:
        """A wish that is not taken up yet. ``documents``: the state topic's records."""
        found = asked_of(documents, self._topic)
        if found is None or found.id == taken:
            return None
        self._open = found
        return found

    def taken(self, taken: str) -> AskedKeys | None:
        """The wish that is taken up and not answered."""
        return self._open if self._open is not None and self._open.id == taken else None

    def answer(self, parked: Mapping[str, str]) -> None:
        """All its keys are published, but those of ``parked``: key of a record -> why, cut short where it is long."""
        assert self._open is not None
        short = {key: why[:REASON_CHARACTERS] for key, why in parked.items()}
        self._output.answer(RunnerAnswer(id=self._open.id, parked=short))
        self._open = None
