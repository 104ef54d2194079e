"""A driver that was submitted: the submitter's settings beside ours, and the jars that it was given."""

from __future__ import annotations

import pytest

from cdc.process.errors import ConfigError, Exit
from sinks.contract.stores import needed_classes
from sinks.delta.delta_kind import SPARK_PARTS
from spark.session.spark_session import require_brought, settings_beside

LOCAL = {"spark.driver.host": "127.0.0.1", "spark.python.daemon.module": "spark.session.python_daemon"}


def test_h458_missing_jars_are_one_sentence_with_a_way_out() -> None:
    needs = needed_classes([SPARK_PARTS])
    require_brought(needs, lambda _: True)
    with pytest.raises(ConfigError) as refused:
        require_brought(needs, lambda name: "delta" not in name)
    assert refused.value.message == (
        "spark-submit was not given the jars that these sinks need: io.delta:delta-spark_4.1_2.13:4.3.1"
    )
    assert refused.value.hint == (
        '--jars "$(cdc sink --jars)" has them all, and so has --packages io.delta:delta-spark_4.1_2.13:4.3.1'
    )
    assert refused.value.exit == Exit.CONFIG
    with pytest.raises(ConfigError, match=r"spark-sql-kafka\S+, io\.delta"):
        require_brought(needs, lambda _: False)


def test_the_submitters_word_goes_first() -> None:
    ours = {"spark.master": "local[2]", "spark.jars": "ours.jar", "spark.locality.wait": "0s", "spark.ui.enabled": "x"}
    given = {"spark.master": "spark://h:7077", "spark.locality.wait": "3s"}
    assert settings_beside(given, ours, own_python=True) == {"spark.ui.enabled": "x"}


def test_of_a_cluster_the_settings_may_say_nothing() -> None:
    assert settings_beside({"spark.master": "k8s://h"}, LOCAL, own_python=True) == {}
    assert settings_beside({"spark.master": "local[2]"}, LOCAL, own_python=True) == LOCAL
    other = settings_beside({"spark.master": "local[2]"}, LOCAL, own_python=False)
    assert other == {"spark.driver.host": "127.0.0.1"}


@pytest.mark.parametrize(
    ("given", "ours", "both"),
    [("a.X", "b.Y", "a.X,b.Y"), ("b.Y,a.X", "b.Y", "b.Y,a.X"), ("", "b.Y", "b.Y"), ("a.X", "", "a.X")],
)
def test_h458_extensions_of_both_are_had_together(given: str, ours: str, both: str) -> None:
    name = "spark.sql.extensions"
    assert settings_beside({name: given}, {name: ours}, own_python=True) == {name: both}
