"""Answers of a REST API are data: what is not of Kafka Connect's form is refused in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cdc.errors import ConfigError


@contextmanager
def answering(what: str) -> Iterator[None]:
    """Turn what an answer of another form raises while it is read into a ConfigError. ``what``: what was asked for."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        raise ConfigError(
            f"{what} is not of the form that Kafka Connect gives it",
            hint="check [debezium] url: is it Kafka Connect's own REST API, of version 3.0 or later?",
        ) from None


def text(value: Any) -> str:
    """A text. TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError("a text was expected")
    return value


def entry(value: Any) -> dict[str, Any]:
    """An object. TypeError for anything else."""
    if not isinstance(value, dict):
        raise TypeError("an object was expected")
    return value
