"""Secrets of a Kafka client, read where it is opened. Executors import this module: it knows no settings."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cdc.process.clock import SYSTEM_CLOCK
from cdc.settings.client_options import TOKEN
from cdc.settings.secret_reference import reveal

_LIFETIME_S = 300.0
"""Of a token that does not say when it ends. The client asks for the next one after four fifths of it."""


@dataclass(frozen=True)
class OAuthToken:
    """A token of OAUTHBEARER by reference, as librdkafka asks for one: again and again, each before the last one ends.

    As plain data it travels to executors.
    """

    reference: str

    def __call__(self, _config: str = "") -> tuple[str, float]:
        """The token, and when it ends, in seconds since 1970. ConfigError where it cannot be had."""
        token = reveal(self.reference)
        return token, _ends_s(token) or SYSTEM_CLOCK.now_ns() / 1e9 + _LIFETIME_S


def with_secrets(config: Mapping[str, Any], references: Mapping[str, str]) -> dict[str, Any]:
    """A client's options with their secrets, never to be logged. ``references``: by librdkafka's names, and
    :data:`cdc.settings.client_options.TOKEN`. ConfigError where one cannot be read."""
    revealed: dict[str, Any] = {name: reveal(one) for name, one in references.items() if name != TOKEN}
    if TOKEN in references:
        revealed["oauth_cb"] = OAuthToken(references[TOKEN])
    return {**config, **revealed}


def _ends_s(token: str) -> float | None:
    """When a JSON Web Token ends. None for a token of another kind, as that of MSK's IAM."""
    claims = token.split(".")[1:2]
    try:
        padded = claims[0] + "=" * (-len(claims[0]) % 4)
        return float(json.loads(urlsafe_b64decode(padded))["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        return None
