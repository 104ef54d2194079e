"""How ``cdc connect compare`` shows what it found."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cdc.cli.terminal import TerminalConsole
from cdc.comparison.verdict import Comparison
from cdc.errors import DifferenceFound
from cdc.lsn import Lsn


def show_comparison(found: Comparison, console: Console | None = None) -> None:
    """A line per table, then each rule that was needed, then what none explains."""
    console = console or TerminalConsole()
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("table", overflow="fold")
    for title in ("debezium", "native", "equal", "undecided", "unexplained"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("explained", overflow="fold")
    for verdict in found.verdicts:
        rules = ", ".join(f"{rule} {count:,}" for rule, count in sorted(verdict.by_rule.items(), key=_number))
        counts = (verdict.theirs, verdict.ours, verdict.equal, verdict.undecided, verdict.unexplained)
        table.add_row(verdict.table, *(f"{count:,}" for count in counts), rules)
    console.print(table)
    for rule, count in found.reasons():
        console.print(Text(f"{rule.name:<4} {count:>9,}  {rule.reason}"), soft_wrap=True)
    if found.undecided:
        words = "undecided: Debezium's value does not say what ours has to be, and the source's row has changed since"
        console.print(Text(f"     {found.undecided:>9,}  {words}"), soft_wrap=True)
    for verdict in found.verdicts:
        for words in verdict.words:
            console.print(Text(f"unexplained: {words}", style="bold red"), soft_wrap=True)
    where = f"between {Lsn(found.begin)} and {Lsn(found.end)}"
    console.print(Text(f"{found.records:,} records compared {where}: {_verdict(found)}"), soft_wrap=True)


def conclude_comparison(found: Comparison) -> None:
    """Return where every difference is explained.

    Raises DifferenceFound when one is explained by no rule, and when no record was compared.
    """
    if found.unexplained:
        raise DifferenceFound(
            f"{found.unexplained:,} differences are explained by no rule",
            hint="connectors/debezium/README.md lists the rules; cdc connect compare --keep leaves the topics",
        )
    if not found.records and not any(verdict.theirs for verdict in found.verdicts):
        raise DifferenceFound(
            "nothing changed meanwhile, so nothing was compared", hint="--for SECONDS, --snapshot, or -- COMMAND"
        )


def _number(item: tuple[str, int]) -> int:
    return int(item[0].removeprefix("D"))


def _verdict(found: Comparison) -> str:
    return f"{found.unexplained:,} unexplained differences" if found.unexplained else "every difference is explained"
