"""The REST client against a server that answers as it is told."""

from pathlib import Path
from typing import Any

import pytest

from cdc.process.clock import ManualClock
from cdc.process.errors import CdcError, ConfigError, Exit
from cdc.settings.model import DebeziumSettings
from connectors.debezium.client import ConnectClient, ConnectError, MissingConnector
from connectors.debezium.status import parse_status
from tests.tls import self_signed
from tests.unit.connectors.debezium.rest_server import Script, rest_server

REBALANCE = (409, {"error_code": 409, "message": "Cannot complete request because of a conflicting operation"})
STARTING = (503, {"error_code": 503, "message": "starting"})


def client(url: str, **more: Any) -> ConnectClient:
    return ConnectClient(DebeziumSettings(url=url, **more), clock=ManualClock())


def test_a_rebalance_and_a_server_error_are_waited_out() -> None:
    script = Script([REBALANCE, STARTING, (500, b"<html>"), (200, [{"class": "x.Y"}])])
    with rest_server(script) as url:
        assert client(url).plugins() == [{"class": "x.Y"}]
    assert len(script.asked) == 4


def test_a_rebalance_that_does_not_end_is_said() -> None:
    with rest_server(Script([REBALANCE])) as url, pytest.raises(ConnectError, match="still rebalancing") as refusal:
        client(url).plugins()
    assert refusal.value.exit is Exit.UNAVAILABLE


def test_a_server_error_that_stays_is_said_in_its_words() -> None:
    broken = (500, {"error_code": 500, "message": "Request timed out\n\tat org.apache"})
    with rest_server(Script([broken])) as url, pytest.raises(ConnectError, match=r"answers 500: Request timed out$"):
        client(url).plugins()


def test_nobody_there() -> None:
    with pytest.raises(ConnectError, match="cannot be reached: connection refused") as refusal:
        client("http://127.0.0.1:1").plugins()
    assert "url" in refusal.value.hint


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_login_names_the_settings_and_not_the_password(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECT_PASSWORD", "canary-secret")
    script = Script([(status, b"no")])
    with rest_server(script) as url, pytest.raises(ConfigError, match="refuses the login") as refusal:
        client(url, user="ann", password="env:CONNECT_PASSWORD").plugins()
    assert "canary" not in f"{refusal.value!r} {refusal.value.hint}"
    assert script.asked[0][2] == "Basic YW5uOmNhbmFyeS1zZWNyZXQ="
    assert len(script.asked) == 1


@pytest.mark.parametrize("deed", ["resume", "stop", "restart", "reset_offsets", "delete"])
def test_h154_a_page_of_a_proxy_is_no_deed(deed: str) -> None:
    """Where no answer is waited for, a page with status 200 would pass for one."""
    with (
        rest_server(Script([(200, b"<html>log in</html>")])) as url,
        pytest.raises(ConfigError, match="not Kafka Conn"),
    ):
        getattr(client(url), deed)("shop")


def test_a_missing_connector_is_told_from_a_wrong_address() -> None:
    missing = (404, {"error_code": 404, "message": "Connector shop not found"})
    with rest_server(Script([missing])) as url, pytest.raises(MissingConnector, match="Connector shop not found"):
        client(url).running_config("shop")
    page = Script([(404, b"<html>nginx</html>")])
    with rest_server(page) as url, pytest.raises(ConnectError, match="not Kafka Conn"):
        client(url).running_config("shop")
    with rest_server(Script([(200, b"<html>hello</html>")])) as url, pytest.raises(ConfigError, match="not Kafka Conn"):
        client(url).plugins()


def test_an_unknown_plugin_lists_those_that_are_there() -> None:
    words = "Failed to find any class that implements Connector and which name matches x.Y, available connectors are: …"
    plugins = [{"class": "io.debezium.connector.postgresql.PostgresConnector", "type": "source", "version": "3.7.0"}]
    script = Script([(500, {"error_code": 500, "message": words}), (200, plugins)])
    with rest_server(script) as url, pytest.raises(ConfigError, match=r"has no plugin x\.Y") as refusal:
        client(url).validate({"connector.class": "x.Y"})
    assert "PostgresConnector" in refusal.value.hint


def test_validation_gives_each_options_faults() -> None:
    configs = [
        {"definition": {}, "value": {"name": "topic.prefix", "errors": ["The 'topic.prefix' value is invalid"]}},
        {"definition": {}, "value": {"name": "slot.name", "errors": []}},
    ]
    with rest_server(Script([(200, {"error_count": 1, "configs": configs})])) as url:
        errors = client(url).validate({"connector.class": "x.Y"})
    assert errors == {"topic.prefix": ["The 'topic.prefix' value is invalid"]}


def test_an_invalid_configuration_is_refused_in_one_line() -> None:
    words = (
        "Connector configuration is invalid and contains the following 1 error(s):\nThe 'slot.name' is bad\n"
        "You can also find the above list of errors at the endpoint `/x`"
    )
    with (
        rest_server(Script([(400, {"error_code": 400, "message": words})])) as url,
        pytest.raises(ConfigError, match=r"refuses: The 'slot\.name' is bad$"),
    ):
        client(url).put_config("shop", {})


def test_a_name_is_one_part_of_the_path() -> None:
    script = Script([(200, {})])
    with rest_server(script) as url:
        client(url).running_config("a/b?c d")
    assert script.asked[0][1] == "/connectors/a%2Fb%3Fc%20d/config"


@pytest.mark.parametrize("url", ["connect:8083", "ftp://h", "http://", "http://ann:secret@h:1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"\[debezium\] url"):
        client(url)


def test_a_missing_authority_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.pem"):
        client("https://127.0.0.1:1", ca_certs=str(tmp_path / "none.pem"))


def test_https_trusts_the_named_authority_and_no_other(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    script = Script([(200, [{"class": "x.Y"}])])
    with rest_server(script, certificate) as url:
        assert client(url, ca_certs=str(certificate.made)).plugins() == [{"class": "x.Y"}]
        with pytest.raises(ConfigError, match="not trusted") as refusal:
            client(url).plugins()
        assert "ca_certs" in refusal.value.hint
        with pytest.raises(CdcError, match="certificate"):
            client(url.replace("127.0.0.1", "localhost"), ca_certs=str(certificate.made)).plugins()
    assert len(script.asked) == 1


UNHEARD = [(404, b""), (404, b"<html><title>Error 404 Not Found</title></html>")]


@pytest.mark.parametrize("answer", UNHEARD, ids=["to a deed", "to a question"])
@pytest.mark.parametrize("deed", ["stop", "delete", "reset_offsets", "running_config", "status", "offsets"])
def test_h179_a_worker_that_starts_says_nothing_of_a_connector(deed: str, answer: tuple[int, Any]) -> None:
    """It answers 404 to every path. Taken for a missing connector, a handover would go on beside one that runs."""
    found: tuple[int, Any] = (200, {"offsets": []})
    with rest_server(Script([answer, answer, found])) as url:
        getattr(client(url), deed)("shop")
    with rest_server(Script([answer])) as url, pytest.raises(ConnectError, match="not yet: 404") as refusal:
        getattr(client(url), deed)("shop")
    assert refusal.value.exit is Exit.UNAVAILABLE
    assert "deploy" not in refusal.value.hint


EXISTS = (409, {"error_code": 409, "message": "Connector shop already exists"})


def test_h128_a_connector_made_by_an_unanswered_attempt_is_ours() -> None:
    wanted = {"topic.prefix": "shop"}
    script = Script([STARTING, EXISTS, (200, {**wanted, "name": "shop"})])
    with rest_server(script) as url:
        client(url).create_stopped("shop", wanted)
    assert [method for method, _, _ in script.asked] == ["POST", "POST", "GET"]


def test_h128_another_connector_of_the_name_is_not_a_rebalance() -> None:
    script = Script([EXISTS, (200, {"topic.prefix": "another", "name": "shop"})])
    with rest_server(script) as url, pytest.raises(ConfigError, match="Connector shop already exists"):
        client(url).create_stopped("shop", {"topic.prefix": "shop"})
    assert len(script.asked) == 2


def test_h128_a_connector_removed_by_an_unanswered_call_is_gone() -> None:
    missing = (404, {"error_code": 404, "message": "Connector shop not found"})
    with rest_server(Script([STARTING, missing])) as url:
        client(url).delete("shop")
    with rest_server(Script([missing])) as url, pytest.raises(MissingConnector):
        client(url).delete("shop")


def test_h127_what_kafka_connect_says_is_shown_without_secrets() -> None:
    words = "Invalid value mongodb://cdc:hunter2@db for configuration mongodb.connection.string"
    answer = (400, {"error_code": 400, "message": words})
    with rest_server(Script([answer])) as url, pytest.raises(ConfigError, match="Invalid value mongodb://") as refusal:
        client(url).put_config("shop", {})
    assert "hunter2" not in refusal.value.message
    configs = [{"definition": {}, "value": {"name": "database.url", "errors": ["no jdbc:x://u:hunter2@h"]}}]
    with rest_server(Script([(200, {"configs": configs})])) as url:
        assert "hunter2" not in str(client(url).validate({"connector.class": "x.Y"}))
    trace = "a.B: password=hunter2\n\tat x\nCaused by: c.D: mongodb://cdc:hunter2@db\n\tat y\n"
    status = parse_status(
        {
            "name": "shop",
            "connector": {"state": "RUNNING"},
            "tasks": [{"id": 0, "state": "FAILED", "trace": trace}],
        }
    )
    assert status.fault.startswith("D: mongodb://")
    assert "hunter2" not in str(status.document())


def test_h127_an_address_with_a_login_is_refused_and_not_shown() -> None:
    for url in ("ftp://ann:hunter2@h", "http://ann:hunter2@h:1"):
        with pytest.raises(ConfigError) as refusal:
            client(url)
        assert "hunter2" not in f"{refusal.value.message} {refusal.value.hint}"
