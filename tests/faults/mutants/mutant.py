"""What one of them is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """``old`` becomes ``new`` everywhere in ``file``; ``tests``: arguments of pytest, the smallest that should fail."""

    name: str
    file: str
    old: str
    new: str
    tests: str

    def applied(self, text: str) -> str:
        """The file's text with the rule broken. ValueError when there is nothing to break any more."""
        if self.old not in text:
            raise ValueError(f"{self.name}: {self.file} has no {self.old!r} any more")
        return text.replace(self.old, self.new)
