"""What answers at the broker's address is asked whether it is one."""

from __future__ import annotations

import pytest

from cdc.process.errors import ConfigError, Exit, LogError
from cdc.settings.model import LogSettings
from connectors.kafka.broker_answers import require_broker
from tests.strangers import Answer, closed, lines, stranger, web


def broker(request: bytes) -> bytes:
    """As Kafka: a length, the request's number, and the rest."""
    return b"\x00\x00\x00\x06" + request[8:12] + b"\x00\x00"


LOGIN = {"sasl_mechanism": "PLAIN", "sasl_username": "me", "sasl_password": "secret"}


def settings(port: int, **client: str) -> LogSettings:
    return LogSettings(
        bootstrap_servers=f"127.0.0.1:{port}", client={k.replace("_", "."): v for k, v in client.items()}
    )


@pytest.mark.parametrize("answer", [web, lines, closed], ids=["web", "lines", "closed"])
def test_h135_another_server_at_the_brokers_address(answer: Answer) -> None:
    with stranger(answer) as port, pytest.raises(LogError) as refused:
        require_broker(settings(port))
    assert f"127.0.0.1:{port}: what answers there does not speak Kafka" in refused.value.message
    assert refused.value.exit is Exit.UNAVAILABLE


def test_a_broker_is_let_through_and_so_is_one_of_several() -> None:
    with stranger(broker) as port, stranger(web) as other:
        require_broker(settings(port))
        require_broker(LogSettings(bootstrap_servers=f"127.0.0.1:1, 127.0.0.1:{other},127.0.0.1:{port}"))
        with pytest.raises(LogError, match="does not speak Kafka"):
            require_broker(settings(other, security_protocol="SASL_PLAINTEXT", **LOGIN))


def test_an_encrypted_line_is_left_to_the_client() -> None:
    with stranger(closed) as port:
        require_broker(settings(port, security_protocol="sasl_ssl", **LOGIN))
        with pytest.raises(LogError):
            require_broker(settings(port))


@pytest.mark.parametrize("servers", ["kafka", "kafka:", "127.0.0.1:99999999"])
def test_an_address_that_is_none(servers: str) -> None:
    with pytest.raises((ConfigError, LogError)) as refused:
        require_broker(LogSettings(bootstrap_servers=servers))
    assert servers in refused.value.message


def test_x8_an_option_that_nobody_knows_is_named() -> None:
    with pytest.raises(ConfigError, match=r'No such configuration property: "linger\.msec"'):
        require_broker(settings(1, linger_msec="5"))
