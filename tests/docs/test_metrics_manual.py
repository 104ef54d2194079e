"""The manual of figures has each that is declared, by name, type, unit, labels and meaning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from cdc.figures.declared_figures import CAPTURE, SINKS, STREAMS, VIEWS
from cdc.figures.http_server import PIPELINE, Figure, FigurePage
from cdc.figures.measures import BucketCounts
from tests.docs.test_manuals import marked
from tests.promtool import run_promtool

MANUAL = Path(__file__).parents[2] / "cdc" / "METRICS.md"


def table(figures: Mapping[str, Figure]) -> str:
    lines = ["| figure | type | unit | labels | meaning | absent |", "| --- | --- | --- | --- | --- | --- |"]
    for figure in figures.values():
        absent = [f"`{figure.known}` is 0"] if figure.known else []
        absent += [figure.absent] if figure.absent else []
        labels = ", ".join(f"`{label}`" for label in figure.labels)
        cells = (f"`{figure.name}`", figure.kind, figure.unit, labels, figure.text, ", or ".join(absent))
        lines.append("| " + " | ".join(cell or "-" for cell in cells) + " |")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("figures of capture", CAPTURE),
        ("figures of sinks", SINKS),
        ("figures of views", VIEWS),
        ("figures of streams", STREAMS),
    ],
)
def test_the_manual_has_every_figure(name: str, figures: Mapping[str, Figure], rewrite: bool) -> None:
    text = MANUAL.read_text(encoding="utf-8")
    if rewrite:
        text = marked(name).sub(lambda found: found[1] + table(figures) + found[3], text)
        MANUAL.write_text(text, encoding="utf-8")
    found = marked(name).search(text)
    assert found is not None
    assert found[2] == table(figures), "run pytest tests/docs --rewrite"


@pytest.mark.parametrize("figures", [CAPTURE, SINKS, VIEWS, STREAMS], ids=["capture", "sinks", "views", "streams"])
def test_promtool_finds_nothing_to_say_of_a_page(figures: Mapping[str, Figure]) -> None:
    """With a sample of every figure that is declared."""
    page, registry = FigurePage("shop", figures), CollectorRegistry()
    for figure in figures.values():
        labels = dict.fromkeys(figure.labels, "some")
        if figure.kind == "histogram":
            page.tally(figure.name, BucketCounts((1.0, 2.0)), **labels)
        else:
            page.set(figure.name, 1.0, **labels)
    registry.register(Families(list(page.families())))
    text = generate_latest(registry).decode()
    assert set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE)) == figures.keys()
    done = run_promtool("check", "metrics", page=text)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_promtool_would_say_what_is_wrong_with_a_page() -> None:
    wrong = "# HELP cdc_lagMs Lag\n# TYPE cdc_lagMs counter\ncdc_lagMs 1\n"
    assert run_promtool("check", "metrics", page=wrong).returncode != 0


class Families(Collector):
    """Families as they are."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


@pytest.mark.parametrize(
    "figure", [*CAPTURE.values(), *SINKS.values(), *VIEWS.values(), *STREAMS.values()], ids=lambda figure: figure.name
)
def test_names_follow_the_conventions(figure: Figure) -> None:
    assert re.fullmatch(r"cdc_[a-z0-9_]+", figure.name)
    assert (figure.kind == "counter") == figure.name.endswith("_total")
    assert figure.text and not figure.text.endswith(".")
    for label in figure.labels:
        assert re.fullmatch(r"[a-z]+", label) and label != PIPELINE
    if figure.known:
        [gauge] = [one[figure.known] for one in (CAPTURE, SINKS, VIEWS, STREAMS) if figure.known in one]
        assert figure.known.endswith("_known") and set(gauge.labels) <= set(figure.labels)
