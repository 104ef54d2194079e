"""Words of others are cleaned where they come in, and ours are left alone (H112)."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cdc.cli.terminal import report
from cdc.process import untrusted_text as foreign
from cdc.process.errors import ConfigError, SourceError
from cdc.process.untrusted_text import hide, quoted, remember, without_urls
from sinks.contract.kinds import parse_settings as parse


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    before = dict(foreign._secrets)
    foreign._secrets.clear()
    yield
    foreign._secrets.clear()
    foreign._secrets.update(before)


def shown(failure: BaseException) -> str:
    text = StringIO()
    report(failure, Console(file=text, width=200))
    return text.getvalue()


def test_h112_our_words_stay_whatever_the_password_is() -> None:
    """The password ``cdc`` made ``grant ... to "***_noread"``, and ``p`` replaced every p."""
    remember(["cdc", "p", "app"])
    hint = 'grant select on "public"."app" to "cdc_noread"; then cdc check'
    assert shown(SourceError("the role cdc may not read public.app", hint=hint)) == (
        f"error: the role cdc may not read public.app\nhint: {hint}\n"
    )


@pytest.mark.parametrize(
    ("secret", "words", "clean"),
    [
        ("p", "pipes p p4 'p' p.", "pipes *** p4 '***' ***."),
        ("p", "app top", "app top"),
        ("cdc", 'role "cdc_noread" of cdc', 'role "cdc_noread" of ***'),
        ("a/b", "a/b a%2Fb xa/by", "*** *** xa/by"),
        ("p@ss", "p@ss p%40ss", "*** ***"),
        ('q"x', 'q"x {"text": "q\\"x"}', '*** {"text": "***"}'),
        ("-$-", "x-$-y", "x***y"),
    ],
)
def test_h112_a_secret_is_hidden_as_a_whole_word(secret: str, words: str, clean: str) -> None:
    remember([secret])
    assert hide(words) == clean


@given(st.text(min_size=1), st.text(alphabet=" ,;'()", min_size=1), st.text(alphabet=" ,;'()", min_size=1))
def test_h112_a_secret_between_other_words_is_never_left(secret: str, before: str, behind: str) -> None:
    foreign._secrets.clear()
    remember([secret])
    assert secret not in hide(f"said{before}{secret}{behind}said").removeprefix("said").removesuffix("said") or (
        secret in before + behind + foreign.HIDDEN
    )


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://cdc:p@ss/w@h/db",
        "redis://:p@ss/w@h",
        "https://u:p%40ss@h/x",
        "postgresql+psycopg://u:p:q@r@h/x",
    ],
)
def test_h112_no_part_of_a_password_in_a_url_is_left(url: str) -> None:
    for words in (without_urls(f"cannot reach {url}: refused"), quoted(f"cannot reach '{url}': refused")):
        assert "@h" in words
        assert all(part not in words for part in ("p@", "ss", "p%40", "p:q", "q@r", "/w"))


@pytest.mark.parametrize("place", ["source", "sink"])
def test_h112_a_url_that_parses_otherwise_than_meant_is_refused(place: str) -> None:
    url = "://cdc:p@ss/w@h/db"
    document = {
        "name": "shop",
        "source": {"dsn": f"postgresql{url}" if place == "source" else "host=h", "tables": ["a.b"]},
        "log": {"bootstrap_servers": "k:1"},
        "sinks": {"cache": {"kind": "redis", "url": f"redis{url}" if place == "sink" else "redis://h"}},
    }
    with pytest.raises(ConfigError, match="more than one @") as refused:
        parse(document)
    assert "p@ss" not in refused.value.message + refused.value.hint
    assert "ss/w" not in refused.value.message + refused.value.hint


def test_h112_passwords_within_settings_are_known_once_read() -> None:
    parse(
        {
            "name": "shop",
            "source": {"dsn": "host=h dbname=d password = 'canary one'", "tables": ["a.b"]},
            "log": {"bootstrap_servers": "k:1"},
            "sinks": {"cache": {"kind": "redis", "url": "redis://:canary%2Furl@h"}},
        }
    )
    assert hide("canary one, canary/url, canary%2Furl") == "***, ***, ***"
