"""A store whose connection goes silent without an end, as behind a firewall that forgot it. New ones are served."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc.process.errors import SinkError
from cdc.read import Freshness, Token
from cdc.record.position import Lsn
from cdc.record.progress import Watermark
from cdc.record.source_lineage import SourceLineage
from sinks.contract.attempt_limits import looking
from sinks.contract.kinds import spec_for
from sinks.contract.sink_spec import open_sink
from sinks.sql.sql_client import connect_args
from tests.waiting import TIME_SCALE

MARK = Watermark(epoch=1, lsn=100, lineage=SourceLineage("7", 1))
TOKEN = Token("7", 1, Lsn(100))


class Forgetful:
    """Passes bytes on, until the connections that are open are forgotten."""

    def __init__(self, host: str, port: int) -> None:
        self._to = host, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._forgotten: list[threading.Event] = []
        self._ended = threading.Event()
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def connections(self) -> int:
        return len(self._forgotten)

    def forget(self) -> None:
        """Connections that are open say nothing from now on, and stay open."""
        for one in self._forgotten:
            one.set()

    def close(self) -> None:
        self._ended.set()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far, forgotten = socket.create_connection(self._to), threading.Event()
                self._forgotten.append(forgotten)
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(one, other, forgotten), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket, forgotten: threading.Event) -> None:
        with one, other, contextlib.suppress(OSError):
            while data := one.recv(65536):
                if forgotten.is_set():
                    self._ended.wait()
                    return
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
            if forgotten.is_set():
                self._ended.wait()


@pytest.fixture
def way(database: str) -> Iterator[Forgetful]:
    made = Forgetful("127.0.0.1", int(str(conninfo_to_dict(database)["port"])))
    yield made
    made.close()


def _url(database: str, port: int) -> str:
    parts = {name: str(value) for name, value in conninfo_to_dict(database).items()}
    kept = {name: parts[name] for name in ("passfile",) if name in parts}
    url = sa.URL.create(
        "postgresql+psycopg", parts["user"], host="127.0.0.1", port=port, database=parts["dbname"], query=kept
    )
    return url.render_as_string(hide_password=False)


def test_h266_a_connection_that_is_forgotten_is_replaced(database: str, way: Forgetful) -> None:
    direct = _url(database, int(str(conninfo_to_dict(database)["port"])))
    with contextlib.closing(open_sink(spec_for("sql", prefix="shop", options={"url": direct}))) as store:
        store.commit(MARK)
    with Freshness("sql", "shop", url=_url(database, way.port)) as freshness:
        assert freshness.wait(TOKEN, timeout_s=30 * TIME_SCALE) == MARK
        before = way.connections
        way.forget()
        with pytest.raises(SinkError, match="a look at it takes longer than 1 s"):
            freshness.wait(TOKEN, timeout_s=30 * TIME_SCALE)
        assert freshness.wait(TOKEN, timeout_s=30 * TIME_SCALE) == MARK
        assert way.connections > before


def test_a_real_connection_takes_the_options(database: str) -> None:
    """libpq knows each of them."""
    with looking():
        told = connect_args(sa.make_url("postgresql+psycopg://db/x"))
    with psycopg.connect(make_conninfo(database, **told)) as connection:
        assert connection.info.get_parameters().items() >= {name: str(value) for name, value in told.items()}.items()
