"""What the experiments counted, over all their runs: one small file each, which the README's table quotes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent / "results"


@dataclass(slots=True)
class Figures:
    """``sums`` add up over the runs, ``peaks`` keep the greatest, ``notes`` the newest per name.

    ``next_seed``: where the next run goes on; every lower seed has been tried.
    """

    next_seed: int = 0
    seconds: float = 0.0
    sums: dict[str, int] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def add(self, sums: Mapping[str, int]) -> None:
        for name, count in sums.items():
            self.sums[name] = self.sums.get(name, 0) + count

    def peak(self, peaks: Mapping[str, float]) -> None:
        for name, value in peaks.items():
            self.peaks[name] = max(value, self.peaks.get(name, value))


def load(experiment: str, folder: Path = FOLDER) -> Figures:
    """The figures so far; empty before the first run."""
    file = folder / f"{experiment}.json"
    return Figures(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else Figures()


def save(experiment: str, figures: Figures, folder: Path = FOLDER) -> None:
    """Replace the experiment's file, whole or not at all."""
    document = {
        "next_seed": figures.next_seed,
        "seconds": round(figures.seconds, 1),
        "sums": figures.sums,
        "peaks": figures.peaks,
        "notes": figures.notes,
    }
    folder.mkdir(exist_ok=True, parents=True)
    file = folder / f"{experiment}.json"
    new = file.with_suffix(".new")
    new.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    new.replace(file)


def notes_table(experiment: str, heads: tuple[str, str], folder: Path = FOLDER) -> str:
    """The notes of one experiment as Markdown."""
    lines = [f"| {heads[0]} | {heads[1]} |", "| --- | --- |"]
    lines += [f"| {name} | {text} |" for name, text in load(experiment, folder).notes.items()]
    return "\n".join(lines) + "\n"


def table(folder: Path = FOLDER) -> str:
    """All figures as Markdown, as tests/faults/README.md has them."""
    lines = ["| experiment | seeds | time | counted |", "| --- | --- | --- | --- |"]
    for file in sorted(folder.glob("*.json")):
        figures = load(file.stem, folder)
        counted = [f"{count:,} {name}" for name, count in figures.sums.items()]
        counted += [f"at most {value:,g} {name}" for name, value in figures.peaks.items()]
        lines.append(f"| {file.stem} | {figures.next_seed:,} | {figures.seconds:,.0f} s | {'; '.join(counted)} |")
    return "\n".join(lines) + "\n"
