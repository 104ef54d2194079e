"""Clock, crash points and SQL loading."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.clock import ManualClock, SystemClock
from cdc.process.crash_points import CRASH_EXIT
from cdc.process.errors import CdcError, Exit, Retry
from cdc.process.sql_files import quote_identifier, quote_literal


def test_a_manual_clock_moves_when_told() -> None:
    clock = ManualClock(now_ns=0)
    clock.sleep(1.5)
    assert (clock.now_ns(), clock.monotonic()) == (1_500_000_000, 1.5)


def test_the_system_clock_does_not_run_backwards() -> None:
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
    assert clock.now_ns() > 1_600_000_000 * 10**9


@pytest.mark.parametrize(("at", "passes"), [("here", 0), ("here:3", 2), ("there", 3)])
def test_a_crash_point_ends_the_process_at_the_nth_pass(at: str, passes: int) -> None:
    code = (
        "from cdc.process.crash_points import crash_point\n"
        "for n in range(3):\n    crash_point('here')\n    print(n, flush=True)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], env={"CDC_CRASH_AT": at}, capture_output=True, text=True, check=False
    )
    assert run.stdout.split() == [str(n) for n in range(passes)]
    assert run.returncode == (0 if at == "there" else CRASH_EXIT)


@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1))
def test_quoting_doubles_what_would_end_it(name: str) -> None:
    assert quote_identifier(name)[1:-1].replace('""', '"') == name
    assert quote_literal(name)[1:-1].replace("''", "'") == name


def test_what_postgres_cannot_hold_is_refused() -> None:
    for bad in ("", "a\0b"):
        with pytest.raises(ValueError):
            quote_identifier(bad)
    with pytest.raises(ValueError):
        quote_literal("\0")


def test_every_error_has_an_exit_code_of_its_kind() -> None:
    def leaves(kind: type[CdcError]) -> list[type[CdcError]]:
        return [kind, *(leaf for sub in kind.__subclasses__() for leaf in leaves(sub))]

    for kind in leaves(CdcError):
        assert isinstance(kind("x").exit, Exit)
        assert kind.__doc__
    assert CdcError("x", retry=Retry.NOW, exit=Exit.POISON).exit is Exit.POISON
