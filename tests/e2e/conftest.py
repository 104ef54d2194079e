"""The whole path as a user walks it."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def nursery() -> None:
    """Here each command is started from cold."""
