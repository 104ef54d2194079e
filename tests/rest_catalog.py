"""A REST catalog: the reference server of Iceberg's own tests, over a JDBC catalog in Postgres, behind a door that asks
for a token.

Its jars are those of ``tests/fixtures/iceberg_rest/jars.lock``, which ``python -m tests.rest_catalog`` writes anew. The
project itself has no use for them.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import requests

from cdc.jvm.jars import Coordinate, parse_lock, resolve
from cdc.jvm.java import java_executable
from cdc.stack.local import free_ports
from tests import lock_jars
from tests.lakes import lake_catalog
from tests.programs import Spawned
from tests.waiting import wait_until

LOCK = Path(__file__).parent / "fixtures" / "iceberg_rest" / "jars.lock"
JETTY = "12.1.5"
_NAME = "iceberg-rest"
_PASSED = ("Content-Type", "X-Client-Version")
ROOTS = {
    _NAME: (
        [
            Coordinate("org.apache.iceberg", "iceberg-core", lock_jars.ICEBERG),
            Coordinate("org.apache.iceberg", "iceberg-core", lock_jars.ICEBERG, "tests"),
            Coordinate("org.apache.iceberg", "iceberg-open-api", lock_jars.ICEBERG, "test-fixtures"),
            Coordinate("org.eclipse.jetty.ee10", "jetty-ee10-servlet", JETTY),
            Coordinate("org.eclipse.jetty.compression", "jetty-compression-server", JETTY),
            Coordinate("org.eclipse.jetty.compression", "jetty-compression-gzip", JETTY),
            Coordinate("org.postgresql", "postgresql", lock_jars.POSTGRES_JDBC),
        ],
        '<exclude org="org.checkerframework"/>',
    )
}


@dataclass
class RestDoor:
    """Where the catalog is. ``token``: the only one that is let in. ``away``: no answer is given meanwhile."""

    url: str
    token: str = field(repr=False)
    away: bool = False
    asked: list[str] = field(default_factory=list)
    """Method and path of each request."""


@contextmanager
def rest_catalog(dsn: str, warehouse: str, folder: Path, token: str) -> Iterator[RestDoor]:
    """Started, and ended with the body. ``dsn``: the database of its tables. ``warehouse``: where tables are made."""
    port = free_ports(["rest"])["rest"]
    login = lake_catalog(dsn)
    _, _, place = str(login.options["catalog"]).partition("://")
    user, _, server = place.partition("@")
    backend = {
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_URI": f"jdbc:postgresql://{server}",
        "CATALOG_JDBC_USER": user,
        "CATALOG_JDBC_PASSWORD": login.secrets.get("password", ""),
        "CATALOG_WAREHOUSE": warehouse,
        "CATALOG_REST_PORT": str(port),
    }
    words = [str(java_executable()), "-Xmx256m", "-cp", _class_path(), "org.apache.iceberg.rest.RESTCatalogServer"]
    server_process = Spawned.cold(words, folder / "rest.out", folder / "rest.err", {**os.environ, **backend})
    try:
        wait_until(lambda: _answers(port), 60, lambda: server_process.stderr[-2000:])
        with _door(port, token) as door:
            yield door
    finally:
        server_process.kill()


def _class_path() -> str:
    jar_set = parse_lock(LOCK.read_text(encoding="utf-8"))[_NAME]
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    hadoop = sorted((Path(spark.origin).parent / "jars").glob("hadoop-client-*.jar"))
    return ":".join([f"{resolve([jar_set])[_NAME]}/*", *map(str, hadoop)])


def _answers(port: int) -> bool:
    try:
        return requests.get(f"http://127.0.0.1:{port}/v1/config", timeout=5).ok
    except requests.ConnectionError:
        return False


@contextmanager
def _door(port: int, token: str) -> Iterator[RestDoor]:
    """The reference server lets everybody in. This one passes on what has the token."""

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _passed_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            door.asked.append(f"{self.command} {self.path}")
            if door.away:
                self.close_connection = True
                return
            if self.headers.get("Authorization") != f"Bearer {token}":
                self._answer(HTTPStatus.UNAUTHORIZED, _refusal(), "application/json")
                return
            headers = {name: self.headers[name] for name in _PASSED if name in self.headers}
            url = f"http://127.0.0.1:{port}{self.path}"
            found = requests.request(self.command, url, data=body, headers=headers, timeout=60)
            self._answer(found.status_code, found.content, found.headers.get("Content-Type", "application/json"))

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing of it on stderr."""

        do_GET = do_POST = do_DELETE = do_HEAD = _passed_on

    class Threads(ThreadingHTTPServer):
        daemon_threads = True

    with Threads(("127.0.0.1", 0), Door) as server:
        door = RestDoor(f"http://127.0.0.1:{server.server_address[1]}", token)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield door
        finally:
            server.shutdown()
            thread.join()


def _refusal() -> bytes:
    return b'{"error": {"message": "this token is not known", "type": "NotAuthorizedException", "code": 401}}'


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        lock_jars.write(lock_jars.lock(Path(scratch), ROOTS), LOCK)
    sys.stderr.write(f"{LOCK} written\n")
