"""A secret by reference: read anew each time, and shown by nothing."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from cdc.process.errors import ConfigError, Exit, Retry
from cdc.process.untrusted_text import hide
from cdc.settings.setting_types import Secret

PYTHON = shlex.quote(sys.executable)


def command(code: str) -> Secret:
    return Secret(f"command:{PYTHON} -c {shlex.quote(code)}")


def test_x4_a_command_is_run_for_each_secret(tmp_path: Path) -> None:
    count = tmp_path / "count"
    secret = command(f"open({str(count)!r}, 'a').write('x'); print('token', len(open({str(count)!r}).read()))")
    assert [secret.reveal(), secret.reveal()] == ["token 1", "token 2"]


def test_x4_no_shell_reads_a_command(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    secret = Secret(f"command:echo $HOME ; touch {touched}")
    assert (secret.reveal(), touched.exists()) == (f"$HOME ; touch {touched}", False)


def test_x4_a_failed_command_shows_why_and_no_secret() -> None:
    secret = command("import sys; print('canary-word'); sys.exit('canary-word is not allowed')")
    with pytest.raises(ConfigError, match=r"ends with exit code 1: \*\*\* is not allowed") as refused:
        secret.reveal()
    assert (refused.value.exit, refused.value.retry) == (Exit.CONFIG, Retry.SECRET)


@pytest.mark.parametrize(
    ("reference", "why", "retry"),
    [
        ("command:/no/such/program", "cannot be run: No such file or directory", Retry.NEVER),
        ("command:", "cannot be run", Retry.NEVER),
        ("command:echo 'x", "cannot be run: No closing quotation", Retry.NEVER),
        ("command:true", "prints nothing", Retry.SECRET),
        ("file:/no/such/file", "cannot be read", Retry.SECRET),
        ("env:CDC_NO_SUCH_VARIABLE", "is not set", Retry.NEVER),
    ],
)
def test_x4_what_gives_no_secret_is_named(reference: str, why: str, retry: Retry) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        Secret(reference).reveal()
    assert refused.value.retry is retry and refused.value.hint


def test_x4_the_three_newest_secrets_are_hidden(tmp_path: Path) -> None:
    path = tmp_path / "token"
    for number in range(5):
        path.write_text(f"wagtail-{number}{os.linesep}")
        Secret(f"file:{path}").reveal()
    assert hide("wagtail-1 wagtail-2 wagtail-3 wagtail-4") == "wagtail-1 *** *** ***"
