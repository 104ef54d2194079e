"""A broker that takes tokens: OAUTHBEARER by the keys of a provider on this machine, beside SASL/PLAIN."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cdc.stack.supervised_server import LOOPBACK
from tests.secured import ADMIN, SecuredKafka
from tests.waiting import wait_until

CLIENT, SECRET = "cdc-client", "s3cret of the client"
_BEARER = "org.apache.kafka.common.security.oauthbearer"


def _encoded(value: bytes | dict[str, Any]) -> str:
    held = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(held).rstrip(b"=").decode()


def _openssl(*words: str, given: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *words], input=given, capture_output=True, check=True).stdout


class Provider:
    """Gives out tokens, by client credentials, and shows its key. ``asked``: how often a token was given."""

    def __init__(self, folder: Path) -> None:
        self.asked = 0
        self._key = str(folder / "provider.pem")
        _openssl("genrsa", "-out", self._key, "2048")
        self._server = ThreadingHTTPServer((LOOPBACK, 0), self._handler())
        self.url = f"http://{LOOPBACK}:{self._server.server_port}"

    def token(self, lifetime_s: int = 600) -> str:
        now_s = int(time.time())
        claims = {"sub": ADMIN, "iss": "tests", "aud": "kafka", "iat": now_s, "exp": now_s + lifetime_s, "scope": "all"}
        signed = f"{_encoded({'alg': 'RS256', 'kid': 'one', 'typ': 'JWT'})}.{_encoded(claims)}"
        return f"{signed}.{_encoded(_openssl('dgst', '-sha256', '-sign', self._key, given=signed.encode()))}"

    @contextmanager
    def running(self) -> Iterator[Provider]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self
        modulus = _openssl("rsa", "-in", self._key, "-noout", "-modulus").decode().strip().partition("=")[2]
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "one", "e": "AQAB"}
        keys = {"keys": [{**key, "n": _encoded(bytes.fromhex(modulus))}]}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, keys)

            def do_POST(self) -> None:
                body = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                basic = "Basic " + _padded(f"{CLIENT}:{SECRET}")
                allowed = self.headers.get("Authorization") == basic and body["grant_type"] == ["client_credentials"]
                provider.asked += allowed
                token = {"access_token": provider.token(), "token_type": "Bearer", "expires_in": 600}
                self._answer(200, token) if allowed else self._answer(401, {"error": "invalid_client"})

            def _answer(self, status: int, document: dict[str, Any]) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(document).encode())

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: a request's line is no news."""

        return Handler


def _padded(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode().replace("-", "+").replace("_", "/")


class BearerKafka(SecuredKafka):
    """The same broker, for tokens of a provider too."""

    def __init__(self, folder: Path, provider: Provider) -> None:
        super().__init__(folder, ())
        self._provider = provider

    def _java(self) -> list[str]:
        java, *rest = super()._java()
        return [java, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._provider.url}/keys", *rest]

    def _properties(self) -> str:
        listener = "listener.name.broker.oauthbearer."
        more = {
            "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            f"{listener}sasl.jaas.config": f"{_BEARER}.OAuthBearerLoginModule required;",
            f"{listener}sasl.server.callback.handler.class": f"{_BEARER}.OAuthBearerValidatorCallbackHandler",
            f"{listener}sasl.oauthbearer.jwks.endpoint.url": f"{self._provider.url}/keys",
            f"{listener}sasl.oauthbearer.expected.audience": "kafka",
        }
        return super()._properties() + "".join(f"{name}={value}\n" for name, value in more.items())


@contextmanager
def bearer_kafka(folder: Path) -> Iterator[tuple[BearerKafka, Provider]]:
    """Both, ended with the body."""
    with Provider(folder).running() as provider:
        broker = BearerKafka(folder, provider)
        command = broker.prepare()
        argv = command.account.ending_with_parent(command.argv, death_signal=command.death_signal, parent=os.getpid())
        with broker.place.log.open("ab") as log:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
        try:
            wait_until(broker.ready, 120, describe=lambda: broker.place.log.read_text()[-2000:])
            yield broker, provider
        finally:
            process.kill()
            process.wait(30)
