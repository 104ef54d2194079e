"""A state that cannot be opened: away, forbidden, or in a place that is none."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cdc.process.errors import ConfigError, Exit
from cdc.views.state_reach import StateAway, StateForbidden, is_there, opening_fault
from cdc.views.view_plan import planned
from cdc.views.view_state import ViewState
from tests.unit.cdc.views.oracles import DOCUMENTS
from tests.unit.cdc.views.view_histories import SHAPES


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EIO, StateAway),
        (errno.ENOENT, StateAway),
        (errno.ESTALE, StateAway),
        (errno.ENOTCONN, StateAway),
        (errno.ENOSPC, StateAway),
        (errno.EDQUOT, StateAway),
        (errno.EROFS, StateAway),
        (errno.EACCES, StateForbidden),
        (errno.EPERM, StateForbidden),
        (errno.ENOTDIR, ConfigError),
        (errno.EEXIST, ConfigError),
    ],
)
def test_h259_what_may_pass_is_tried_again(number: int, kind: type[Exception], tmp_path: Path) -> None:
    found = opening_fault(tmp_path, OSError(number, os.strerror(number), str(tmp_path)))
    assert type(found) is kind
    assert found.exit is (Exit.UNAVAILABLE if kind is StateAway else Exit.CONFIG)
    assert "cannot be kept in" in found.message


def test_h259_an_error_without_a_number_may_pass(tmp_path: Path) -> None:
    assert type(opening_fault(tmp_path, OSError("some words"))) is StateAway


def test_h259_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"x" * 8_192)
    with pytest.raises(ConfigError, match="is not a database") as refused:
        ViewState(tmp_path / "state", planned(DOCUMENTS, SHAPES), 1)
    assert "cdc view rebuild" in refused.value.hint


def test_h259_a_database_that_somebody_holds_is_away(tmp_path: Path) -> None:
    plan = planned(DOCUMENTS, SHAPES)
    ViewState(tmp_path / "state", plan, 1).close()
    with closing(sqlite3.connect(tmp_path / "state", isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = delete")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StateAway, match="database is locked"):
            ViewState(tmp_path / "state", plan, 1)


def test_h551_a_place_that_cannot_be_looked_at_is_named(tmp_path: Path) -> None:
    """As a folder that others may not search, or a mount that is away: the system says so instead of yes or no."""
    with pytest.raises(ConfigError, match=r"cannot be kept in .*File name too long") as refused:
        is_there(tmp_path / ("v" * 300))
    assert "names another folder" in refused.value.hint


def test_h551_a_state_is_damaged_within_a_turn_as_well(tmp_path: Path) -> None:
    """Trying again does not mend it, and no disk is full."""
    with (
        closing(ViewState(tmp_path / "state", planned(DOCUMENTS, SHAPES), 1)) as state,
        pytest.raises(ConfigError, match="malformed") as refused,
        state.guarded(),
    ):
        raise damaged()
    assert "cdc view rebuild throws a damaged state away" in refused.value.hint


def test_h551_a_state_of_another_text_is_refused(tmp_path: Path) -> None:
    """Its tables have the same names, and other columns: it is not away."""
    other = planned("select id, name from customers", SHAPES)
    with closing(ViewState(tmp_path / "state", other, 1)) as state, state.transaction():
        pass
    with pytest.raises(ConfigError, match="was made by another text of the view") as refused:
        ViewState(tmp_path / "state", planned(DOCUMENTS, SHAPES), 1)
    assert "cdc view rebuild" in refused.value.hint


def test_h551_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "state")) as session:
        session.execute("CREATE TABLE kept (a)")
    with pytest.raises(ConfigError, match="no such column") as refused:
        ViewState(tmp_path / "state", planned(DOCUMENTS, SHAPES), 1)
    assert "cdc view rebuild" in refused.value.hint


def damaged() -> sqlite3.Error:
    """SQLite's own words on a page that holds something else."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as session:
        session.execute("CREATE TABLE a (b)")
        session.execute("PRAGMA writable_schema = on")
        session.execute("UPDATE sqlite_schema SET rootpage = 99")
        session.execute("PRAGMA writable_schema = reset")
        try:
            session.execute("SELECT * FROM a")
        except sqlite3.Error as failure:
            return failure
    raise AssertionError("SQLite reads a page that is not there")
