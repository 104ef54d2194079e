"""Wrong settings, as people write them: one sentence that names the place, and a hint that mends it."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cdc.cli.terminal import report
from cdc.process.errors import ConfigError, Exit
from sinks.contract.kinds import load_settings as load

GOOD = """
name = "shop"
[source]
dsn = "host=h"
tables = ["public.orders"]
[log]
bootstrap_servers = "k:1"
"""
CACHE = '[sinks.cache]\nkind = "redis"\nurl = "redis://h"\n'

# What is replaced in the good file, by what; words of the sentence; words of the hint.
INPUTS = [
    ("[log]", "[logg]", "unknown setting logg", 'did you mean "log"?'),
    ("[log]", '[log]\npartitions = "many"', "log.partitions takes a whole number", "partitions = 4"),
    ('["public.orders"]', '"public.orders"', "source.tables takes a list", 'tables = ["..."]'),
    ('["public.orders"]', '["orders"]', "'orders' lacks its schema", ""),
    ('["public.orders"]', "[]", "no table is named", ""),
    ("[log]", "[log]\nreplay_window = 7", 'a duration has a unit: "7s"', ""),
    ("[log]", "[log]\nreplay_window = -7", "a duration is not below 0", ""),
    ("[log]", "replay_window = 7\n[log]", "unknown setting source.replay_window", "it is a setting of [log]"),
    ("[log]", CACHE + "replay_window = 7\n[log]", "setting sinks.cache.replay_window", "it is a setting of [log]"),
    ("[log]", '[log]\nreplay_window = "0s"', "log.replay_window: this has to be more than 0", ""),
    ("[log]", "[log]\nmax_message_bytes = -5", "log.max_message_bytes: a size is not below 0", ""),
    ("[log]", "[capture]\nmemory_limit = 0\n[log]", "capture.memory_limit: this has to be more than 0", ""),
    ('"shop"', '"my shop"', "name begins with a letter", "prefix of every topic"),
    ('"shop"', f'"{"x" * 60}"', "at most 51 letters", ""),
    ("[log]", 'slot = "CDC-Shop"\n[log]', "source.slot has 1 to 63 lower-case letters", "Postgres"),
    ("[log]", 'password = "hunter2secret"\n[log]', "never as itself", ""),
    ("[log]", CACHE.replace("url", "ulr") + "[log]", "unknown setting sinks.cache.ulr", 'did you mean "url"?'),
    ("[log]", CACHE.replace('kind = "redis"\n', "") + "[log]", "sinks.cache has no kind", 'kind = "redis", "open'),
    (
        "[log]",
        CACHE.replace('"redis"', '"elasticsearch"') + "[log]",
        "no kind of sink called elastics",
        '"opensearch"?',
    ),
    ("[log]", CACHE.replace(".cache]", "]") + "[log]", "sinks.kind", "[sinks.NAME]"),
    ("[log]", CACHE + "shards = 2\n[log]", "unknown setting sinks.cache.shards", 'a setting of kind = "opensearch"'),
    ("[log]", "[spark]\nconf = { x = 3 }\n[log]", "spark.conf.x takes text", 'x = "..."'),
    (GOOD, "", "name is missing", "cdc config example"),
]


@pytest.mark.parametrize(("old", "new", "sentence", "hint"), INPUTS, ids=[str(number) for number in range(len(INPUTS))])
def test_a_wrong_setting_is_named_and_mended(tmp_path: Path, old: str, new: str, sentence: str, hint: str) -> None:
    refused = refusal(tmp_path, GOOD.replace(old, new, 1).encode(), {})
    assert sentence in refused.message, refused.message
    assert hint in refused.hint, refused.hint
    assert "hunter2" not in refused.message + refused.hint


@pytest.mark.parametrize(
    ("variable", "value", "sentence", "hint"),
    [
        ("CDC_NAME", "1bad", "the environment variable CDC_NAME begins with a letter", ""),
        ("CDC_NAME__X", "1", "the environment variable CDC_NAME__X names a section, and name is none", ""),
        (
            "CDC_SOURCE__TABLES__0",
            "x",
            "TABLES__0 names a section, and tables is none",
            '["public.orders"]',
        ),
        ("CDC_SOURCE__TABELS", "x", "the environment variable CDC_SOURCE__TABELS: unknown setting", '"tables"?'),
        ("CDC_FOO__BAR", "x", "the environment variable CDC_FOO__BAR: unknown setting foo", ""),
        (
            "CDC_SINKS__FILES__KIND",
            "elastic",
            "the environment variable CDC_SINKS__FILES__KIND: there is no kind of sink called elastic",
            'kind = "opensearch"?',
        ),
        ("CDC_SOURCE__TABLES", "a.b,c.d", "the environment variable CDC_SOURCE__TABLES takes a list", "holds TOML"),
    ],
)
def test_a_variable_is_blamed_and_not_the_file(
    tmp_path: Path, variable: str, value: str, sentence: str, hint: str
) -> None:
    refused = refusal(tmp_path, GOOD.encode(), {variable: value})
    assert sentence in refused.message, refused.message
    assert "cdc.toml" not in refused.message
    assert hint in refused.hint


@pytest.mark.parametrize(
    ("content", "sentence", "hint"),
    [
        (GOOD.replace("shop", "caf\u00e9").encode("latin-1"), "is not UTF-8 text, as TOML has to be (line 2)", "UTF-8"),
        (b"\x7fELF\x02\x01\xff\xfe\x00", "is not UTF-8 text", "UTF-8"),
        (b"name: shop\n", "is not TOML", "cdc config example"),
        (b'name = "a"\nname = "b"\n', "is not TOML: Cannot overwrite a value", "cdc config example"),
    ],
)
def test_a_file_that_is_no_settings_file(tmp_path: Path, content: bytes, sentence: str, hint: str) -> None:
    refused = refusal(tmp_path, content, {})
    assert sentence in refused.message
    assert hint in refused.hint


def test_all_faults_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    both = GOOD.replace("[log]", '[log]\npartitions = "many"\nlagre = 1').replace('"shop"', '"my shop"')
    refused = refusal(tmp_path, both.encode(), {})
    said = [one.message.partition("cdc.toml: ")[2] for one in (refused, *refused.others)]
    assert said == [
        "unknown setting log.lagre",
        "name begins with a letter, and has at most 51 letters, digits, _ and -",
        "log.partitions takes a whole number",
    ]
    assert all(one.hint for one in refused.others)
    page = StringIO()
    assert report(refused, Console(file=page, width=200)) == Exit.CONFIG
    assert page.getvalue().count("error: ") == 3


def test_a_misspelled_setting_is_not_missing_as_well(tmp_path: Path) -> None:
    refused = refusal(tmp_path, GOOD.replace("bootstrap_servers", "bootstrap_server").encode(), {})
    assert refused.message.endswith("unknown setting log.bootstrap_server")
    assert not refused.others


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "cdc.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load(path, {}).name == "shop"
    assert load(path, {"CDC_NAME": "other", "CDC_TEST_TIME_SCALE": "3"}).name == "other"


def refusal(folder: Path, content: bytes, environment: dict[str, str]) -> ConfigError:
    path = folder / "cdc.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        load(path, environment)
    assert refused.value.exit is Exit.CONFIG
    assert "\n" not in refused.value.message
    return refused.value
