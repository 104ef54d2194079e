"""The findings of a comparison, table by table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc.comparison.compared_record import ComparedRecord, Facts
from cdc.comparison.differences import RecordDifference, Rule, differences, explained_by, undecided
from cdc.comparison.own_faults import own_faults
from cdc.comparison.pairing import Told, out_of_order, paired
from cdc.comparison.rules import RULES
from cdc.comparison.witness import Context, Witness, witnessed

_SHOWN = 20
_ON_EVERY_RECORD = frozenset(("D14", "D15"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVerdict:
    """One table. ``equal``: pairs that differ in nothing but headers and our fields. ``by_rule``: rule -> how many
    differences it explains. ``undecided``: how many of these only the source could confirm, and its row has changed
    since. ``unexplained``: how many no rule explains, the first of them in words."""

    table: str
    theirs: int
    ours: int
    equal: int
    by_rule: Counter[str]
    unexplained: int
    undecided: int = 0
    words: tuple[str, ...] = field(default=())

    def document(self) -> dict[str, Any]:
        """The verdict as ``--json`` prints it."""
        return {
            "table": self.table,
            "debezium_records": self.theirs,
            "native_records": self.ours,
            "equal": self.equal,
            "explained": dict(sorted(self.by_rule.items())),
            "undecided": self.undecided,
            "unexplained": self.unexplained,
            "first": list(self.words),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All tables, and between which LSNs."""

    encoding: str
    begin: int
    end: int
    verdicts: tuple[TableVerdict, ...]

    @property
    def records(self) -> int:
        """How many of our records were compared."""
        return sum(v.ours for v in self.verdicts)

    @property
    def unexplained(self) -> int:
        """How many differences no rule explains. Nonzero means that the comparison failed."""
        return sum(v.unexplained for v in self.verdicts)

    @property
    def undecided(self) -> int:
        """How many differences only the source could confirm, whose rows have changed since."""
        return sum(v.undecided for v in self.verdicts)

    @property
    def by_rule(self) -> Counter[str]:
        """How many differences each rule explains, over all tables."""
        return sum((v.by_rule for v in self.verdicts), Counter())

    def reasons(self) -> Iterable[tuple[Rule, int]]:
        """Each rule that was needed, in the manual's order."""
        used = self.by_rule
        return ((rule, used[rule.name]) for rule in RULES if used[rule.name])

    def document(self) -> dict[str, Any]:
        """The comparison as ``--json`` prints it."""
        return {
            "encoding": self.encoding,
            "begin_lsn": self.begin,
            "end_lsn": self.end,
            "records": self.records,
            "undecided": self.undecided,
            "unexplained": self.unexplained,
            "rules": {rule.name: {"reason": rule.reason, "differences": n} for rule, n in self.reasons()},
            "tables": [verdict.document() for verdict in self.verdicts],
        }


def judge(
    table: str,
    encoding: str,
    theirs: Sequence[ComparedRecord],
    ours: Sequence[ComparedRecord],
    facts: Facts,
    witness: Witness | None = None,
    topic: Sequence[ComparedRecord] = (),
) -> TableVerdict:
    """Compare one table's records, both sides in the order of their partitions.

    Without a ``witness`` everything that only the source could confirm is undecided. ``topic``: all of our topic, also
    what is not compared, for what our records have to be, with any of Debezium's.
    """
    one, two = Told(theirs), Told(ours)
    pairs, context = list(paired(one, two)), Context(one, two)
    found = [[context.of(d) for d in differences(encoding, [pair], facts)] for pair in pairs]
    found.append(list(out_of_order(encoding, pairs, facts)))
    if witness is not None:
        decided = iter(witnessed([d for one_pair in found for d in one_pair], context, witness))
        found = [[next(decided) for _ in one_pair] for one_pair in found]
    tally = _Tally()
    for of_pair in found[:-1]:
        tally.pair(of_pair)
    tally.count(found[-1])
    tally.count(own_faults(encoding, topic, facts))
    return TableVerdict(
        table=table,
        theirs=len(theirs),
        ours=len(ours),
        equal=tally.equal,
        by_rule=tally.by_rule,
        unexplained=tally.unexplained,
        undecided=tally.undecided,
        words=tuple(tally.words),
    )


class _Tally:
    def __init__(self) -> None:
        self.equal = 0
        self.unexplained = 0
        self.undecided = 0
        self.by_rule: Counter[str] = Counter()
        self.words: list[str] = []

    def pair(self, found: Iterable[RecordDifference]) -> None:
        self.equal += self.count(found) <= _ON_EVERY_RECORD

    def count(self, found: Iterable[RecordDifference]) -> set[str]:
        """The rules that these needed. An empty name for none."""
        needed: set[str] = set()
        for difference in found:
            rule = next(iter(explained_by(RULES, difference)), "")
            needed.add(rule)
            if rule:
                self.by_rule[rule] += 1
                self.undecided += undecided(RULES, difference)
                continue
            self.unexplained += 1
            if len(self.words) < _SHOWN:
                self.words.append(str(difference))
        return needed
