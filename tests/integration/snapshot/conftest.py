"""A pipeline of its own for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.snapshot.pipeline import Pipeline


@pytest.fixture
def pipeline(database: str, kafka: str, topic_prefix: str, tmp_path: Path) -> Pipeline:
    """Settings for an empty database; small chunks, so that few rows make many."""
    document = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.*"]},
        "log": {"bootstrap_servers": kafka, "partitions": 3},
        "snapshot": {"chunk_bytes": 32 * 1024, "lock_timeout": "5s"},
    }
    return Pipeline(database, document, tmp_path)
