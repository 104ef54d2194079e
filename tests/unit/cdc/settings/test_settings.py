"""The settings file: typed, frozen, strict, and silent about secrets."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc.process.errors import ConfigError, Exit
from cdc.settings.model import Settings, load, overlay
from cdc.settings.setting_types import Secret
from sinks.contract.kinds import parse_settings as parse


def document(**more: Any) -> dict[str, Any]:
    return {
        "name": "shop",
        "source": {"dsn": "host=127.0.0.1 dbname=shop", "tables": ["public.*"]},
        "log": {"bootstrap_servers": "127.0.0.1:9092"},
        **more,
    }


def test_defaults_name_slot_and_publication_after_the_pipeline() -> None:
    settings = parse(document(name="My-Shop"))
    assert (settings.slot, settings.publication) == ("cdc_my_shop", "cdc_my_shop")
    assert settings.log.replay_window == timedelta(days=7)


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError):
        parse(document()).name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("more", "where", "hint"),
    [
        ({"souce": {}}, "souce", "source"),
        ({"spark": {"mastr": "x"}}, "spark.mastr", "master"),
        ({"sinks": {"cache": {"kind": "redis", "ulr": "redis://x", "url": "redis://x"}}}, "sinks.cache.ulr", "url"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_likely_one(more: dict[str, Any], where: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(document(**more))
    assert refused.value.message.endswith(f"unknown setting {where}")
    assert refused.value.hint == f'did you mean "{hint}"?'
    assert refused.value.exit is Exit.CONFIG


def test_durations_and_sizes_have_units() -> None:
    settings = parse(document(log={"bootstrap_servers": "k:1", "replay_window": "12h", "max_message_bytes": "2MB"}))
    assert settings.log.replay_window == timedelta(hours=12)
    assert settings.log.max_message_bytes == 2 * 1024**2
    with pytest.raises(ConfigError, match="a duration is a number and a unit"):
        parse(document(log={"bootstrap_servers": "k:1", "replay_window": "soon"}))


def test_a_secret_in_the_clear_is_refused_without_being_shown() -> None:
    source = {"dsn": "host=h", "tables": ["a.b"], "password": "canary-word"}
    with pytest.raises(ConfigError) as refused:
        parse(document(source=source))
    assert "canary-word" not in str(refused.value) + refused.value.hint


def test_a_secret_is_read_when_asked_for_and_never_printed(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("canary-word\n")
    secret = Secret(f"file:{path}")
    assert secret.reveal() == "canary-word"
    settings = parse(document(source={"dsn": "host=h", "tables": ["a.b"], "password": f"file:{path}"}))
    assert "canary-word" not in f"{secret!r}{secret}{settings!r}{settings}{settings.model_dump_json()}"


def test_a_missing_secret_names_the_variable() -> None:
    with pytest.raises(ConfigError, match="CDC_NO_SUCH_VARIABLE is not set"):
        Secret("env:CDC_NO_SUCH_VARIABLE").reveal()


def test_the_environment_lies_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cdc.toml"
    path.write_text('name = "shop"\n[source]\ndsn = "host=a"\ntables = ["a.b"]\n[log]\nbootstrap_servers = "k:1"\n')
    environment = {"CDC_SOURCE__DSN": "host=b", "CDC_LOG__PARTITIONS": "9", "CDC_CRASH_AT": "x", "OTHER": "y"}
    settings = load(path, environment)
    assert (settings.source.dsn, settings.log.partitions) == ("host=b", 9)


def test_the_environment_can_make_a_section() -> None:
    laid: dict[str, Any] = {}
    overlay(laid, {"CDC_SINKS__CACHE__KIND": "redis"})
    assert laid == {"sinks": {"cache": {"kind": "redis"}}}


@pytest.mark.parametrize("text", [None, "name = ", 'name = "1bad"'])
def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "cdc.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(path, {})
    assert "\n" not in refused.value.message


def test_every_section_has_a_sentence_for_the_manual() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description or field.annotation is not None, name


def test_pages_are_on_loopback_unless_a_setting_says_otherwise() -> None:
    settings = parse(document())
    own = (settings.capture, settings.spark, settings.view_runner, settings.stream_runner)
    addresses = [one.http_address for one in own]
    assert all(one == "" or one.startswith("127.0.0.1:") for one in addresses)


@pytest.mark.parametrize("value", [-1, "30s", True, 604_800, float("nan"), float("inf")])
def test_h446_a_rest_that_makes_no_sense_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(document(sinks={"warehouse": {"kind": "delta", "path": "/srv/lake", "every_s": value}}))
    assert "sinks.warehouse.every_s" in refused.value.message and "\n" not in refused.value.message


def test_h446_a_rest_is_a_setting_of_ours_and_none_of_the_store() -> None:
    settings = parse(document(sinks={"warehouse": {"kind": "delta", "path": "/srv/lake", "every_s": 30}}))
    sink = settings.sinks["warehouse"]
    assert sink.every_s == 30.0 and "every_s" not in sink.options()


def test_views_over_debeziums_topics_are_refused() -> None:
    debezium = {**document(), "source": {**document()["source"], "kind": "debezium"}}
    parse(debezium)
    with pytest.raises(ConfigError, match="no view is kept over Debezium's topics: they do not say which") as refused:
        parse({**debezium, "views": {"v": {"sql": "v.sql"}}})
    assert "over tables that cdc run captures" in refused.value.hint
    events = {"e": {"topic": "t", "time": "at", "schema": "at timestamp"}}
    with pytest.raises(ConfigError, match="no stream is kept over Debezium's topics"):
        parse({**debezium, "streams": {"s": {"sql": "s.sql", "key": ["k"], "events": events}}})


def test_two_sinks_of_one_store_are_refused() -> None:
    """Under one prefix each would overwrite the other's rows and watermarks."""
    cache = {"kind": "redis", "url": "redis://127.0.0.1/0"}
    with pytest.raises(ConfigError, match="the sinks one and two write to one store under one prefix") as refused:
        parse(document(sinks={"one": cache, "two": {**cache, "tables": ["public.a"]}}))
    assert refused.value.hint == 'give one another prefix: [sinks.two] prefix = "two"'
    assert set(parse(document(sinks={"one": cache, "two": {**cache, "prefix": "b"}})).sinks) == {"one", "two"}
    reports = {"kind": "sql", "url": "postgresql+psycopg://cdc@h/reports"}
    apart = {"one": {**reports, "db_schema": "a"}, "two": {**reports, "db_schema": "b"}}
    assert set(parse(document(sinks=apart)).sinks) == {"one", "two"}
