"""What tests of several stores share."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["embedded", "spark"])
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine of a Delta warehouse in turn. Spark runs for its own alone."""
    chosen: str = request.param
    if chosen == "spark":
        request.getfixturevalue("spark_session")
    return chosen
