"""Sessions over TLS: who reads their stream, and what they refuse."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc.process.errors import ConfigError
from cdc.settings.model import SourceSettings
from connectors.postgres.server.connections import connect
from connectors.postgres.server.transport import LibpqLink, open_link
from tests.tls import encrypted, self_signed

LIMIT = 1 << 20


def open_(dsn: str) -> None:
    connect(SourceSettings(dsn=dsn, tables=("a.b",))).close()


def test_an_encrypted_line_is_read_by_libpq(database: str, tmp_path: Path) -> None:
    with encrypted(database, self_signed(tmp_path)) as dsn:
        session = connect(SourceSettings(dsn=dsn, tables=("a.b",)), replication=True)
        with closing(session), closing(open_link(session, LIMIT, print)) as link:
            assert session.pgconn.ssl_in_use
            assert isinstance(link, LibpqLink)


def test_another_authority_is_refused(database: str, tmp_path: Path) -> None:
    other = self_signed(tmp_path, "other")
    with encrypted(database, self_signed(tmp_path)) as dsn:
        with pytest.raises(ConfigError, match=r"is not trusted: .*certificate verify failed") as refusal:
            open_(make_conninfo(dsn, sslrootcert=str(other.made)))
        assert "sslrootcert=" in refusal.value.hint
        with pytest.raises(ConfigError, match=r"is not trusted: .*missing\.pem"):
            open_(make_conninfo(dsn, sslrootcert=str(tmp_path / "missing.pem")))


def test_another_hosts_certificate_is_refused(database: str, tmp_path: Path) -> None:
    with encrypted(database, self_signed(tmp_path)) as dsn:
        elsewhere = make_conninfo(dsn, host="db.example", hostaddr="127.0.0.1")
        with pytest.raises(ConfigError, match="is another host's") as refusal:
            open_(elsewhere)
        assert "host" in refusal.value.hint


def test_a_server_without_tls_is_refused_where_it_is_asked_for(database: str) -> None:
    where = f"127.0.0.1:{conninfo_to_dict(database)['port']}"
    with pytest.raises(ConfigError, match=rf"{where}.* takes no TLS") as refusal:
        open_(make_conninfo(database, sslmode="require"))
    assert "ssl = on" in refusal.value.hint
