"""What the experiments counted: one small file each, which the README's table quotes.

Figures belong to the code that they were taken on: a file names the commit, the digest of the code that the experiment
reached (:mod:`tests.faults.reach`) and the seeds. They add up over the runs on one code. The first run on another one
begins them anew. Only a run writes a file: a seal over its contents shows when something else did.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"
ROOT = Path(__file__).parents[2]
_COMMIT_DIGITS = 10


class NotOfARun(ValueError):
    """A file of results that no run has written as it is."""


@dataclass(slots=True)
class Failure:
    """A seed at which a promise did not hold. ``held_at``: the commit at which it held again; empty until then.

    ``mended``: what was wrong, in a sentence (``--mended``).
    """

    seed: int
    commit: str
    error: str
    held_at: str = ""
    mended: str = ""


@dataclass(slots=True)
class Part:
    """One of an experiment that is made of parts, each with code of its own. ``code``: empty where it did not hold."""

    code: str
    commit: str
    sums: dict[str, int] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Figures:
    """``sums`` add up over the runs, ``peaks`` keep the greatest, ``notes`` the newest per name.

    ``next_seed``: where the next run goes on; every lower seed has been tried. ``first_seed``: where the figures begin.
    ``failures``: every seed that ever failed, whatever the code. ``parts``: in place of seeds, by name.
    """

    next_seed: int = 0
    first_seed: int = 0
    seconds: float = 0.0
    commit: str = ""
    code: str = ""
    sums: dict[str, int] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    parts: dict[str, Part] = field(default_factory=dict)

    def add(self, sums: Mapping[str, int]) -> None:
        for name, count in sums.items():
            self.sums[name] = self.sums.get(name, 0) + count

    def peak(self, peaks: Mapping[str, float]) -> None:
        for name, value in peaks.items():
            self.peaks[name] = max(value, self.peaks.get(name, value))

    @property
    def seeds(self) -> int:
        """How many were tried on this code."""
        return self.next_seed - self.first_seed

    @property
    def open_failures(self) -> list[Failure]:
        """Those that have not held since."""
        return [one for one in self.failures if not one.held_at]

    def begin(self, commit: str, code: str) -> None:
        """What follows is taken on this code; figures of another one go, seeds and failures stay."""
        if code != self.code:
            self.first_seed, self.seconds = self.next_seed, 0.0
            self.sums, self.peaks, self.notes = {}, {}, {}
        self.commit, self.code = commit, code

    def begin_parts(self, commit: str, codes: Mapping[str, str]) -> None:
        """What follows is taken on this commit. Parts that are no more go."""
        self.commit = commit
        self.parts = {name: self.parts[name] for name in codes if name in self.parts}
        self._add_up()

    def part(self, name: str, part: Part) -> None:
        """Keep what came of a part, in place of what came of it before."""
        self.parts[name] = part
        self._add_up()

    def _add_up(self) -> None:
        self.sums = {}
        for part in self.parts.values():
            self.add(part.sums)

    def due(self, codes: Mapping[str, str]) -> list[str]:
        """The parts that did not hold on the code that they have now. ``codes``: every part's digest."""
        return [name for name, code in codes.items() if name not in self.parts or self.parts[name].code != code]

    def failed(self, seed: int, error: str) -> None:
        """Keep a seed that failed. It is tried again by every run until it holds."""
        if any(one.seed == seed for one in self.open_failures):
            return
        self.failures.append(Failure(seed=seed, commit=self.commit, error=error))
        self.add({"failed": 1})

    def held(self, seed: int, mended: str = "") -> None:
        """The seed holds now: its failures end here."""
        for one in self.open_failures:
            if one.seed == seed:
                one.held_at, one.mended = self.commit, mended


def load(experiment: str, folder: Path = FOLDER) -> Figures:
    """The figures so far; empty before the first run. NotOfARun where the file was changed by anything else."""
    file = folder / f"{experiment}.json"
    if not file.exists():
        return Figures()
    document = json.loads(file.read_text(encoding="utf-8"))
    seal = document.pop("seal", "")
    parts = {name: Part(**part) for name, part in document.get("parts", {}).items()}
    failures = [Failure(**one) for one in document.get("failures", ())]
    figures = Figures(**{**document, "failures": failures, "parts": parts})
    if (figures.code or parts) and seal != _seal(experiment, document):
        raise NotOfARun(f"{file.name} was changed by something else than a run; make faults ARGS={experiment}")
    return figures


def save(experiment: str, figures: Figures, folder: Path = FOLDER) -> None:
    """Replace the experiment's file, whole or not at all."""
    document = {**asdict(figures), "seconds": round(figures.seconds, 1)}
    document["seal"] = _seal(experiment, document)
    folder.mkdir(exist_ok=True, parents=True)
    file = folder / f"{experiment}.json"
    new = file.with_suffix(".new")
    new.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    new.replace(file)


def _seal(experiment: str, document: Mapping[str, Any]) -> str:
    whole = json.dumps([experiment, document], sort_keys=True, ensure_ascii=False)
    return sha256(whole.encode()).hexdigest()[:16]


def commit_now(root: Path = ROOT) -> str:
    """The commit that is checked out, ``+`` behind it when files differ from it; empty where there is no git."""
    found = _git(root, "rev-parse", f"--short={_COMMIT_DIGITS}", "HEAD")
    return found + ("+" if found and _git(root, "status", "--porcelain", "--untracked-files=no", "--", "*.py") else "")


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def why_due(figures: Figures, code: str) -> str:
    """Why the experiment is to be run again before a release; empty where its figures are those of this code.

    ``code``: the digest now.
    """
    if not figures.code:
        return "its figures name no code" if figures.next_seed else "it has not been run"
    if figures.code != code:
        return f"its figures are of {figures.commit or 'another code'}, and the code has changed"
    if figures.open_failures:
        seeds = ", ".join(str(one.seed) for one in figures.open_failures)
        return f"it fails at seed {seeds}"
    return "" if figures.seeds else "no seed was tried on this code"


def why_parts_due(figures: Figures, codes: Mapping[str, str]) -> str:
    """The same of an experiment that is made of parts."""
    due = len(figures.due(codes))
    return f"{due} of its {len(codes)} parts were not tried on this code, or failed" if due else ""


def notes_table(experiment: str, heads: tuple[str, str], folder: Path = FOLDER) -> str:
    """The notes of one experiment as Markdown."""
    lines = [f"| {heads[0]} | {heads[1]} |", "| --- | --- |"]
    parts = load(experiment, folder).parts.values()
    lines += [f"| {name} | {text} |" for part in parts for name, text in part.notes.items()]
    return "\n".join(lines) + "\n"


def table(folder: Path = FOLDER) -> str:
    """All figures as Markdown, as tests/faults/README.md has them."""
    lines = ["| experiment | commit | seeds | time | counted |", "| --- | --- | --- | --- | --- |"]
    for file in sorted(folder.glob("*.json")):
        figures = load(file.stem, folder)
        counted = [f"{count:,} {name}" for name, count in figures.sums.items()]
        counted += [f"at most {value:,g} {name}" for name, value in figures.peaks.items()]
        of = figures.commit or "not kept"
        seeds = f"{len(figures.parts):,} parts" if figures.parts else f"{figures.seeds:,}"
        shown = f"{seeds} | {figures.seconds:,.0f} s | {'; '.join(counted)}"
        lines.append(f"| {file.stem} | {of} | {shown} |")
    return "\n".join(lines) + "\n"


def failures_table(folder: Path = FOLDER) -> str:
    """Every seed that failed, as Markdown."""
    lines = [
        "| experiment | seed | failed at | with | held again at | mended |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for file in sorted(folder.glob("*.json")):
        for one in load(file.stem, folder).failures:
            error = one.error.replace("|", "\\|").replace("\n", " ")
            lines.append(
                f"| {file.stem} | {one.seed} | {one.commit} | {error} | {one.held_at or 'not yet'} | {one.mended} |"
            )
    return "\n".join(lines) + "\n"
