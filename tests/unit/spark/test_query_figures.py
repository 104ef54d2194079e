"""What Spark says of a query becomes figures, and what it said too long ago does not."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.figures.declared_figures import SINKS
from cdc.figures.http_server import FigurePage
from spark.figures.query_listener import SILENCE_S, AllQueries, QueryFigures, offsets_behind, run_name


def said(end: int, latest: int, query: str = "cache-1") -> dict[str, Any]:
    """A progress, with the offsets as Spark has them: JSON in JSON."""
    return {
        "name": query,
        "sources": [{"endOffset": f'{{"t":{{"0":{end},"1":4}}}}', "latestOffset": f'{{"t":{{"0":{latest},"1":4}}}}'}],
    }


def shown(queries: AllQueries, now_s: float) -> dict[tuple[str, str], float]:
    """(figure, query) -> value."""
    page = FigurePage("shop", SINKS)
    queries.show(page, now_s)
    samples = [sample for family in page.families() for sample in family.samples]
    return {(one.name, one.labels["query"]): one.value for one in samples}


def test_batches_of_all_runs_of_a_query_are_counted() -> None:
    queries = AllQueries()
    for run in ("cache-1", "cache-7", "my-search-2"):
        queries.of(run).progress(said(9, 9, run), 1.0)
    found = shown(queries, 2.0)
    assert found["cdc_query_batches_total", "cache"] == 2
    assert found["cdc_query_batches_total", "my-search"] == 1


def test_offsets_behind_are_those_of_the_last_batch() -> None:
    figures = QueryFigures()
    figures.progress(said(5, 12), 1.0)
    assert figures.behind == 7
    figures.idle(2.0)
    assert figures.behind == 0
    assert figures.batches == 1


@pytest.mark.parametrize(("age_s", "known"), [(0.0, True), (SILENCE_S, True), (SILENCE_S + 0.1, False)])
def test_h110_a_query_of_which_spark_says_nothing_is_not_known(age_s: float, known: bool) -> None:
    queries = AllQueries()
    queries.of(run_name("cache", 1)).progress(said(5, 12), 100.0)
    found = shown(queries, 100.0 + age_s)
    assert found["cdc_query_known", "cache"] == known
    assert (("cdc_query_offsets_behind", "cache") in found) is known
    assert found["cdc_query_batches_total", "cache"] == 1, "a counter stays"


@pytest.mark.parametrize(
    "sources",
    [
        [{"endOffset": None, "latestOffset": '{"t":{"0":5}}'}],
        [{"endOffset": '{"t":{"0":5}}', "latestOffset": None}],
        [{"endOffset": '"x"', "latestOffset": '"y"'}],
        [{}],
    ],
)
def test_a_source_without_its_ends_is_not_taken_for_level(sources: list[dict[str, Any]]) -> None:
    assert offsets_behind(sources) is None


def test_an_end_ahead_of_what_spark_saw_is_not_behind() -> None:
    assert offsets_behind([{"endOffset": {"t": {"0": 9}}, "latestOffset": {"t": {"0": 5, "1": 3}}}]) == 0
