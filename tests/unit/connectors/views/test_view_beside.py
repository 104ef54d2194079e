"""Views in a thread beside the stores: an end, and errors that end them."""

from __future__ import annotations

import threading

import pytest

from cdc.process.errors import ConfigError
from cdc.settings.model import Settings
from connectors.views.view_running import ViewsBeside, views_beside


def test_it_keeps_views_until_it_is_asked_to_end() -> None:
    begun = threading.Event()

    def keep(stopping: threading.Event) -> None:
        begun.set()
        stopping.wait(30)

    beside = ViewsBeside(keep)
    beside.start()
    assert begun.wait(30)
    assert beside.end()
    assert beside.fault is None


def test_an_error_that_no_try_can_help_ends_the_views_alone() -> None:
    ended = threading.Event()

    def keep(_stopping: threading.Event) -> None:
        ended.set()
        raise ConfigError("the text of the view is none", hint="write one")

    beside = ViewsBeside(keep)
    beside.start()
    assert ended.wait(30)
    assert beside.end()
    assert isinstance(beside.fault, ConfigError)


def test_a_bug_in_the_views_is_kept_for_the_end() -> None:
    def keep(_stopping: threading.Event) -> None:
        raise KeyError("no such thing")

    beside = ViewsBeside(keep)
    beside.start()
    assert beside.end()
    assert isinstance(beside.fault, KeyError)


def _settings(views: dict[str, dict[str, object]]) -> Settings:
    return Settings.model_validate(
        {
            "name": "shop",
            "source": {"dsn": "postgresql://u@h/d", "tables": ["public.*"]},
            "log": {"bootstrap_servers": "b:9092"},
            "views": views,
        }
    )


def test_it_refuses_settings_without_views() -> None:
    with pytest.raises(ConfigError, match="name no view"), views_beside(_settings({})):
        raise AssertionError("nothing is begun")
