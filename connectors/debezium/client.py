"""Kafka Connect's REST API: https, basic authentication, retries, and its errors as ours.

Format: https://kafka.apache.org/documentation/#connect_rest (4.x), errors as ``{"error_code", "message"}``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import requests

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, ConfigError, Exit, Retry
from cdc.process.untrusted_text import hide, without_urls
from cdc.settings.model import DebeziumSettings

_TIMEOUT_S = 30.0
_NO_PLUGIN = "Failed to find any class"


class ConnectError(CdcError):
    """Kafka Connect cannot be reached, does not answer as it should, or a task has failed."""

    exit = Exit.UNAVAILABLE
    retry = Retry.LATER


class MissingConnector(ConfigError):
    """There is no connector by this name."""


class _Exists(ConfigError):
    """There is a connector by this name already."""


class _Passing(ConnectError):
    """An answer that passes, or none: a rebalance, a server's trouble, a worker that starts. ``attempts``: how many are
    worth it."""

    def __init__(self, message: str, *, hint: str = "", attempts: int = 8) -> None:
        super().__init__(message, hint=hint)
        self.attempts = attempts


class ConnectClient:
    """One Kafka Connect cluster. Every call raises ConnectError or ConfigError, with a hint, and never the password."""

    def __init__(self, settings: DebeziumSettings, *, clock: Clock = SYSTEM_CLOCK) -> None:
        parts = urlsplit(settings.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"[debezium] url is not the address of a REST API: {without_urls(settings.url)}",
                hint='write it as url = "https://connect.example.com:8083"',
            )
        if parts.username or parts.password:
            raise ConfigError("[debezium] url holds a login", hint="use [debezium] user and password")
        self.url = settings.url.rstrip("/")
        self._settings = settings
        self._clock = clock
        self._session = requests.Session()
        # A proxy or a login from the environment is not for this server.
        self._session.trust_env = False
        if settings.ca_certs is not None:
            if not Path(settings.ca_certs).exists():
                raise ConfigError(f"[debezium] ca_certs: there is no file {settings.ca_certs}")
            self._session.verify = settings.ca_certs

    def cluster(self) -> dict[str, Any]:
        """``version``, ``commit`` and ``kafka_cluster_id``."""
        return self._object("GET", "/")

    def plugins(self) -> list[dict[str, Any]]:
        """The worker's plugins: ``class``, ``type``, ``version``."""
        answer = self._call("GET", "/connector-plugins?connectorsOnly=false")
        if not isinstance(answer, list):
            raise self._not_connect()
        return answer

    def validate(self, config: Mapping[str, str]) -> dict[str, list[str]]:
        """The server's own validation: option -> what is wrong with it. ConfigError for an unknown plugin."""
        plugin = config["connector.class"]
        try:
            answer = self._object("PUT", f"/connector-plugins/{quote(plugin)}/config/validate", dict(config))
        except MissingConnector:
            raise self._unknown_plugin(plugin) from None
        except ConnectError as error:
            if _NO_PLUGIN in error.message:
                raise self._unknown_plugin(plugin) from None
            raise
        with answering("the verdict on the configuration"):
            values = [entry(one["value"]) for one in answer.get("configs", [])]
            return {text(value["name"]): list(map(hide, value["errors"])) for value in values if value.get("errors")}

    def running_config(self, name: str) -> dict[str, str]:
        """The configuration in force. MissingConnector where there is none."""
        return {option: str(value) for option, value in self._object("GET", _path(name, "config")).items()}

    def put_config(self, name: str, config: Mapping[str, str]) -> None:
        """Create the connector or replace its configuration. ConfigError with the server's words."""
        self._object("PUT", _path(name, "config"), {**config, "name": name})

    def create_stopped(self, name: str, config: Mapping[str, str]) -> None:
        """Create the connector without starting it. ConfigError where another of the name exists already."""
        wanted = {**config, "name": name}
        try:
            self._call("POST", "/connectors", {"name": name, "config": wanted, "initial_state": "STOPPED"})
        except _Exists:
            # Made by an attempt whose answer did not arrive, unless it is another one.
            if self.running_config(name) != wanted:
                raise

    def status(self, name: str) -> dict[str, Any]:
        """``connector`` and ``tasks`` with their ``state``, ``worker_id`` and ``trace``."""
        return self._object("GET", _path(name, "status"))

    def restart(self, name: str, *, failed_only: bool = True) -> None:
        """Restart the connector and its tasks. By default those that failed."""
        only = str(failed_only).lower()
        self._call("POST", _path(name, f"restart?includeTasks=true&onlyFailed={only}"))

    def resume(self, name: str) -> None:
        """Go on after :meth:`stop`."""
        self._call("PUT", _path(name, "resume"))

    def stop(self, name: str) -> None:
        """End the tasks. The connector and its offsets stay."""
        self._call("PUT", _path(name, "stop"))

    def offsets(self, name: str) -> list[dict[str, Any]]:
        """``partition`` and ``offset`` of each source partition, as the connector stored them."""
        with answering("the connector's stored offsets"):
            return [entry(one) for one in self._object("GET", _path(name, "offsets")).get("offsets", [])]

    def put_offsets(self, name: str, offsets: Sequence[Mapping[str, Any]]) -> None:
        """Replace the offsets of a stopped connector, of these source partitions. See :meth:`offsets` for the form."""
        self._call("PATCH", _path(name, "offsets"), {"offsets": [*offsets]})

    def reset_offsets(self, name: str) -> None:
        """Forget the offsets of a stopped connector."""
        self._call("DELETE", _path(name, "offsets"))

    def delete(self, name: str) -> None:
        """Remove the connector. Its slot, topics and offsets stay."""
        self._call("DELETE", _path(name))

    def _object(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        answer = self._call(method, path, body)
        if not isinstance(answer, dict):
            raise self._not_connect()
        return answer

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._once(method, path, body)
            except MissingConnector:
                # Removed by an attempt whose answer did not arrive.
                if method == "DELETE" and attempt > 1:
                    return {}
                raise
            except _Passing as passing:
                if attempt >= passing.attempts:
                    raise
            self._clock.sleep(min(4.0, 0.125 * 2**attempt))

    def _once(self, method: str, path: str, body: Any) -> Any:
        user, password = self._settings.user, self._settings.password
        login = None if user is None else (user, password.reveal() if password is not None else "")
        try:
            answer = self._session.request(
                method,
                self.url + path,
                json=body,
                auth=login,
                timeout=_TIMEOUT_S,
                headers={"Accept": "application/json"},
                allow_redirects=False,
            )
        except requests.exceptions.SSLError as error:
            raise ConfigError(
                f"Kafka Connect at {self.url} shows a certificate that is not trusted: {_reason(error)}",
                hint="[debezium] ca_certs names the file of its certificate authority",
            ) from None
        except (OSError, requests.RequestException) as error:
            raise _Passing(
                f"Kafka Connect at {self.url} cannot be reached: {_reason(error)}",
                hint="check [debezium] url, and that the worker runs (cdc stack up --with connect)",
                attempts=3,
            ) from None
        if answer.status_code in (401, 403):
            raise ConfigError(
                f"Kafka Connect at {self.url} refuses the login ({answer.status_code})",
                hint='set [debezium] user and password = "env:NAME" or "file:PATH"',
            )
        document = _json(answer)
        if answer.ok and answer.status_code < 300:
            if document is None:
                # A proxy's page. Where no answer is waited for, nothing else would show it.
                raise self._not_connect()
            return document
        raise self._refusal(answer.status_code, document, answer.reason)

    def _refusal(self, status: int, document: Any, reason: str) -> CdcError:
        words = _words(document) or reason
        if status == 409 and words.endswith("already exists"):
            return _Exists(
                f"Kafka Connect refuses: {words}", hint="cdc connect deploy brings the one that exists to the settings"
            )
        if status == 404 and isinstance(document, dict) and "error_code" in document:
            return MissingConnector(
                f"Kafka Connect at {self.url} says: {words}", hint="cdc connect deploy makes the connector"
            )
        if status >= 500 and _NO_PLUGIN in words:
            return ConnectError(words)
        if status in (404, 409) or status >= 500:
            return self._passing(status, words)
        return ConfigError(
            f"Kafka Connect refuses: {words}", hint="cdc connect validate names each option that does not fit"
        )

    def _passing(self, status: int, words: str) -> _Passing:
        if status == 409:
            return _Passing(f"Kafka Connect at {self.url} is still rebalancing: {words}", hint="try again in a moment")
        if status == 404:
            # A worker that starts knows no path yet: the answer is not about the connector.
            return _Passing(
                f"what answers at {self.url} is not Kafka Connect, or not yet: 404 {words}",
                hint="a worker that starts answers so for some seconds; else check [debezium] url: host and path",
            )
        return _Passing(f"Kafka Connect at {self.url} answers {status}: {words}", hint="its log says why")

    def _not_connect(self) -> ConfigError:
        return ConfigError(
            f"what answers at {self.url} is not Kafka Connect", hint="check [debezium] url: host, port and path"
        )

    def _unknown_plugin(self, plugin: str) -> ConfigError:
        with answering("the list of plugins"):
            sources = sorted(text(p["class"]) for p in map(entry, self.plugins()) if p.get("type") == "source")
        known = ", ".join(sources) or "none"
        return ConfigError(
            f"Kafka Connect at {self.url} has no plugin {plugin}",
            hint=f"put its jars into a folder of the worker's plugin.path and restart it; it has {known}",
        )


def _path(name: str, deed: str = "") -> str:
    return f"/connectors/{quote(name, safe='')}" + (f"/{deed}" if deed else "")


def _json(answer: requests.Response) -> Any:
    if not answer.content:
        return {}
    try:
        return answer.json()
    except requests.exceptions.JSONDecodeError:
        return None


def _words(document: Any) -> str:
    """The first line of the server's message, without secrets: the rest is a list of options, or a trace."""
    if not isinstance(document, dict):
        return ""
    lines = [line.strip() for line in str(document.get("message", "")).splitlines() if line.strip()]
    if lines and lines[0].startswith("Connector configuration is invalid") and len(lines) > 1:
        return hide("; ".join(line for line in lines[1:] if not line.startswith("You can also")))
    return hide(lines[0]) if lines else ""


def _reason(error: BaseException) -> str:
    """The innermost words of a library's nested errors, without its object addresses."""
    text = str(error)
    if isinstance(error, requests.exceptions.Timeout):
        return "no answer in time"
    for known in ("Connection refused", "Name or service not known", "No route to host", "Connection reset"):
        if known in text:
            return known.lower()
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return text.partition("CERTIFICATE_VERIFY_FAILED] ")[2].split("(_ssl")[0].strip() or "verification failed"
    if "Temporary failure in name resolution" in text:
        return "the host name is not known"
    return type(error).__name__


@contextmanager
def answering(what: str) -> Iterator[None]:
    """Turn what an answer of another form raises while it is read into a ConfigError. ``what``: what was asked for."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        raise ConfigError(
            f"{what} is not of the form that Kafka Connect gives it",
            hint="check [debezium] url: is it Kafka Connect's own REST API, of version 3.6 or later?",
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
