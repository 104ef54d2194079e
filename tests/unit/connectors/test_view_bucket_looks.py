"""Documents out of a state in Delta tables, beside its runner."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cdc.errors import ConfigError
from connectors.view_bucket_looks import shown_document
from tests.unit.cdc.views.oracles import DOCUMENTS
from tests.unit.cdc.views.view_histories import History
from tests.unit.spark.bucket_histories import BucketRunner


def test_h239_a_state_of_other_buckets_is_not_looked_into(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = BucketRunner(DOCUMENTS, history, tmp_path)
    history.write("orders", 1, {"id": 1, "customer_id": None})
    history.progress_now()
    runner.until_level()
    runner.end()
    found = shown_document(runner.root, runner.shipped, 1, (1,))
    assert found == '{"id":1,"name":null,"lines":null}'
    runner.buckets = 5
    with pytest.raises(ConfigError, match="was made with 3 buckets"):
        shown_document(runner.root, runner.shipped, 1, (1,))
