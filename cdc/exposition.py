"""Figures as Prometheus reads them: each declared once, each with the label of its pipeline, absent where not known.

A figure that can be unknown names a gauge ``..._known``. Where that is 0 the figure has no sample: a last value would
look well for ever, and a NaN is no number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from cdc.measures import BucketCounts

PIPELINE = "pipeline"
"""The label that every figure of ours has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A metric. ``labels``: besides the pipeline. ``known``: the gauge that says whether it is known, empty where it
    always is. ``absent``: when there is no sample though it is known, in words."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    text: str
    labels: tuple[str, ...] = ()
    known: str = ""
    absent: str = ""

    @property
    def unit(self) -> str:
        """Its unit, which its name ends with.

        >>> Figure(name="a_bytes_total", kind="counter", text="").unit
        'bytes'
        """
        last = self.name.removesuffix("_total").rsplit("_", 1)[-1]
        return last if last in UNITS else ""


UNITS = ("seconds", "bytes", "ratio", "records", "rows", "transactions", "keys", "tables", "events", "requests", "info")


class FigurePage:
    """The figures at one moment. ``declared``: name -> figure. A figure that is not declared is a KeyError."""

    def __init__(self, pipeline: str, declared: Mapping[str, Figure]) -> None:
        self._pipeline = pipeline
        self._declared = declared
        self._families: dict[str, Metric] = {}
        self._unknown: set[tuple[str, tuple[str, ...]]] = set()

    def known(self, name: str, known: bool, **labels: str) -> bool:
        """Set a gauge that says whether others are known. To be called before these are set. Returns ``known``."""
        self.set(name, float(known), **labels)
        if not known:
            self._unknown.add((name, tuple(sorted(labels.values()))))
        return known

    def set(self, name: str, value: float | None, **labels: str) -> None:
        """A gauge's or a counter's value. None, and one that is not known, is left out."""
        figure = self._declared[name]
        if value is None or self._is_unknown(figure, labels):
            return
        family = self._family(figure)
        assert isinstance(family, GaugeMetricFamily | CounterMetricFamily)
        family.add_metric([self._pipeline, *(labels[label] for label in figure.labels)], float(value))

    def tally(self, name: str, tally: BucketCounts, **labels: str) -> None:
        """A histogram."""
        figure = self._declared[name]
        family = self._family(figure)
        assert isinstance(family, HistogramMetricFamily)
        values = [self._pipeline, *(labels[label] for label in figure.labels)]
        family.add_metric(values, tally.buckets(), sum_value=tally.total)

    def families(self) -> Iterator[Metric]:
        """In the order in which they were first set."""
        yield from self._families.values()

    def _is_unknown(self, figure: Figure, labels: Mapping[str, str]) -> bool:
        """A gauge of knowledge has some of the labels of those that it speaks of."""
        if not figure.known:
            return False
        own = self._declared[figure.known].labels
        return (figure.known, tuple(sorted(labels[label] for label in own))) in self._unknown

    def _family(self, figure: Figure) -> Metric:
        found = self._families.get(figure.name)
        if found is None:
            made = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}
            found = made[figure.kind](figure.name, figure.text, labels=[PIPELINE, *figure.labels])
            self._families[figure.name] = found
        return found


def declared(*figures: Figure) -> dict[str, Figure]:
    """Figures by name."""
    return {figure.name: figure for figure in figures}
