"""How each figure behaves while a part is dead, from how it is declared: no list is kept by hand."""

from __future__ import annotations

from collections.abc import Mapping

from cdc.figures.http_server import Figure

AGE = "_age_seconds"
KNOWN = "_known"


def bound_to(figures: Mapping[str, Figure], known: str) -> tuple[str, ...]:
    """Figures that are absent while the gauge ``known`` is 0."""
    found = tuple(name for name, one in figures.items() if one.known == known)
    assert found, known
    return found


def ages(figures: Mapping[str, Figure]) -> tuple[str, ...]:
    """Figures that grow while what they count from is not heard again."""
    return tuple(name for name in figures if name.endswith(AGE))


def left_over(figures: Mapping[str, Figure]) -> set[str]:
    """Gauges that nothing of the kind tells of: each says what its own process does."""
    return {
        name
        for name, one in figures.items()
        if one.kind == "gauge" and not one.known and not name.endswith((AGE, KNOWN))
    }
