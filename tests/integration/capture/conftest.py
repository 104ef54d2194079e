"""A pipeline of its own for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.capture.pipeline import Pipeline
from tests.programs import Spawn


@pytest.fixture
def pipeline(database: str, kafka: str, topic_prefix: str, tmp_path: Path, spawn: Spawn) -> Pipeline:
    """Settings for an empty database; no metrics server unless a test asks for it."""
    document = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.*"]},
        "log": {"bootstrap_servers": kafka, "partitions": 3},
        "capture": {"http_address": ""},
        # A TRUNCATE or an ALTER makes the watch read a table again, which is for the tests of the watch alone.
        "snapshot": {"watch": "0s"},
    }
    return Pipeline(database, document, tmp_path, spawn)
