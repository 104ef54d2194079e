"""A store as ``cdc diff`` asks about it: it takes no table, or that is not known."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from cdc.process.errors import CdcError, ConfigError, LogError
from cdc.record.ports import Unknown
from cdc.record.progress import Watermark
from connectors.operate.check import followed
from connectors.spark_log.sink_log import NoTables


class Store:
    """A store that shows nothing yet."""

    @property
    def watermarks(self) -> Store:
        return self

    def read(self) -> Watermark | None:
        return None

    def current(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing is open."""


def raising(error: CdcError) -> Iterable[str]:
    raise error


def test_a_sink_that_takes_no_table_wants_none() -> None:
    found = followed(lambda: raising(NoTables("none of them")), Store)
    assert (found.watermark, found.wanted) == (None, frozenset())


@pytest.mark.parametrize("error", [ConfigError("a pattern that is none"), LogError("no broker answers")])
def test_h109_what_cannot_be_told_is_no_absence(error: CdcError) -> None:
    """Any refusal was once taken for a sink that takes no table: a diff without a difference."""
    found = followed(lambda: raising(error), Store)
    assert isinstance(found.watermark, Unknown)
    assert found.watermark.because is error
