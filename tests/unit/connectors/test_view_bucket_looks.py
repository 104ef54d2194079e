"""Documents out of a state in Delta tables, beside its runner."""

from __future__ import annotations

import random
from pathlib import Path

import orjson
import pytest

from cdc.errors import ConfigError, UsageError
from connectors.view_bucket_looks import look_at_state, shown_document
from spark.views.delta_tables import DeltaTables, stored_manifest
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
    assert found == ('{"id":1,"name":null,"lines":null}', ())
    runner.buckets = 5
    with pytest.raises(ConfigError, match="was made with 3 buckets"):
        shown_document(runner.root, runner.shipped, 1, (1,))


def test_h258_a_state_of_an_older_format_is_not_shown(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = BucketRunner(DOCUMENTS, history, tmp_path)
    history.write("orders", 1, {"id": 1, "customer_id": None})
    history.progress_now()
    runner.until_level()
    runner.end()
    older = orjson.loads(stored_manifest(runner.root)[0].to_json()) | {"format": 1}
    DeltaTables(runner.root, [], history.clock).note(orjson.dumps(older).decode())
    with pytest.raises(UsageError, match="was written by an older version"):
        shown_document(runner.root, runner.shipped, 1, (1,))
    found = look_at_state(runner.root)
    assert found is not None
    assert found.parked == 0
