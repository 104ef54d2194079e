"""Options of librdkafka's in Java's words."""

from pathlib import Path

import pytest

from cdc.process.errors import ConfigError
from cdc.settings.client_options import java_options


def test_client_options_speak_java(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("CERT", encoding="utf-8")
    options = java_options(
        {
            "bootstrap.servers": "a:1",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "me",
            "sasl.password": 'p"\\w',
            "ssl.ca.location": str(tmp_path / "ca.pem"),
            "socket.keepalive.enable": True,
        }
    )
    assert options == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CERT",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="p\\"\\\\w";',
    }


def test_an_option_without_a_counterpart_is_refused_not_left_out() -> None:
    with pytest.raises(ConfigError, match=r"ssl\.crl\.location cannot be carried over"):
        java_options({"ssl.crl.location": "x"})
    with pytest.raises(ConfigError, match="OAUTHBEARER"):
        java_options({"sasl.mechanism": "OAUTHBEARER", "sasl.username": "me"})


def test_words_that_differ_are_said_in_javas() -> None:
    # Java takes "none" for the name of an algorithm, and the system's certificates where it is given none.
    assert java_options({"ssl.endpoint.identification.algorithm": "none", "ssl.ca.location": "probe"}) == {
        "ssl.endpoint.identification.algorithm": ""
    }
