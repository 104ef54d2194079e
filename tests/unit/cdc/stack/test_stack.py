"""The pure parts of the local stack: lock, ports, parts, settings file."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from cdc.jvm.jars import Coordinate, Jar, JarSet, hint_for, locked, parse_lock, pinned
from cdc.jvm.java import download_options
from cdc.process.errors import ConfigError, UsageError
from cdc.settings.model import load
from cdc.stack.local import DEFAULT_PORTS, free_ports
from cdc.stack.servers import checked_parts, jar_sets, own_ports
from cdc.stack.start import write_settings
from cdc.stack.supervised_server import ANYBODY, refuse_taken_port
from tests.lock_jars import ROOTS, write


def test_the_lock_is_read_as_it_is_written(tmp_path: Path) -> None:
    jars = (Jar(Coordinate("a.b", "c", "1"), 5, "ff"), Jar(Coordinate("a.b", "c", "1", "linux"), 6, "ee"))
    write([JarSet("one", jars), JarSet("none", ())], tmp_path / "lock")
    assert parse_lock((tmp_path / "lock").read_text(encoding="utf-8")) == {
        "one": JarSet("one", jars),
        "none": JarSet("none", ()),
    }


def test_the_committed_lock_has_every_set_with_its_roots() -> None:
    sets = locked()
    assert set(sets) == set(ROOTS)
    for name, (roots, _) in ROOTS.items():
        held = {jar.coordinate for jar in sets[name].jars}
        assert set(roots) <= held, name
        assert len({coordinate.file_name for coordinate in held}) == len(held), "each jar has a file of its own"
        assert all(len(jar.sha256) == 64 and jar.size_bytes > 0 for jar in sets[name].jars)


def test_another_jar_is_another_folder() -> None:
    one = JarSet("s", (Jar(Coordinate("a", "b", "1"), 5, "ff"),))
    other = JarSet("s", (Jar(Coordinate("a", "b", "1"), 5, "fe"),))
    assert one.digest != other.digest


def test_artifacts_of_one_module_stand_in_one_dependency() -> None:
    document = pinned("x", [Coordinate("a", "b", "1", "linux"), Coordinate("a", "b", "1")])
    assert document.count("<dependency ") == 1
    assert document.count("<artifact ") == 2


def test_parts_come_in_their_order_with_what_they_need() -> None:
    assert checked_parts((), ()) == ("postgres", "kafka", "redis", "opensearch")
    assert checked_parts(("redis",), ("connect",)) == ("kafka", "redis", "connect")
    with pytest.raises(UsageError, match='no part "pg"'):
        checked_parts(("pg",), ())


def test_only_needed_jars_are_fetched() -> None:
    assert jar_sets(("postgres", "redis")) == []
    assert [one.name for one in jar_sets(("kafka",))] == ["kafka"]
    assert {one.name for one in jar_sets(("connect", "kafka"))} >= {"kafka", "debezium"}
    assert "opensearch" not in {one.name for one in jar_sets(("connect", "kafka"))}


def test_a_part_listens_on_its_own_ports_only() -> None:
    assert own_ports("kafka") == ("kafka", "kafka_controller")
    assert own_ports("connect") == ("connect",)


def test_free_ports_differ_and_keep_off_outgoing_connections() -> None:
    ports = free_ports()
    assert set(ports) == set(DEFAULT_PORTS)
    assert len(set(ports.values())) == len(ports)
    assert 9200 < ports.pop("opensearch") < 9300
    assert all(20_000 <= port < 32_000 for port in ports.values())


def test_a_share_s_ports_stay_free_until_its_server_starts() -> None:
    """A stack of a test of its own took the port that a whole session's OpenSearch was to start on minutes later."""
    chosen = {number: set(free_ports(share=number).values()) for number in range(8)}
    slots = {number: {port % 9 for port in ports if port >= 20_000} for number, ports in chosen.items()}
    assert all(len(found) == 1 for found in slots.values())
    kept = {slot for found in slots.values() for slot in found}
    assert len(kept) == 8
    assert len({port for ports in chosen.values() for port in ports if port < 20_000}) == 8
    taken = [port for _ in range(4) for port in free_ports().values()]
    assert not {port % 9 for port in taken if port >= 20_000} & kept


def test_a_taken_port_is_refused_in_a_sentence() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} for kafka is taken by another program"):
            refuse_taken_port("kafka", port)
    refuse_taken_port("kafka", port)


def test_the_settings_file_is_private_and_can_be_used(tmp_path: Path) -> None:
    folder = tmp_path / 'a "quoted" folder'
    folder.mkdir()
    connections = {
        "postgres": {"dsn": f"host=127.0.0.1 port=1 dbname=postgres user=postgres passfile='{folder}/pgpass'"},
        "kafka": {"bootstrap_servers": "127.0.0.1:2"},
        "redis": {"url": "redis://127.0.0.1:3/0"},
        "opensearch": {"url": "http://127.0.0.1:4"},
        "warehouse": {"path": str(folder / "warehouse")},
    }
    path = write_settings(connections, folder)
    write_settings(connections, folder)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    settings = load(path, environment={})
    assert set(settings.sinks) == {"cache", "search", "warehouse"}
    dsn = conninfo_to_dict(settings.source.dsn)
    assert (dsn["dbname"], dsn["passfile"]) == ("shop", f"{folder}/pgpass")
    assert tomllib.loads(path.read_text(encoding="utf-8"))["spark"] == {"checkpoint": str(folder / "checkpoints")}


def test_a_download_uses_the_proxy_and_trusts_the_named_store(tmp_path: Path) -> None:
    store = tmp_path / "cacerts"
    store.touch()
    environment = {
        "CDC_JAVA_TRUST_STORE": str(store),
        "https_proxy": "http://proxy.example:3128",
        "no_proxy": "localhost, .example",
    }
    assert download_options(environment) == [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|.example",
    ]


@pytest.mark.parametrize(
    ("talk", "advice"),
    [
        ("Server access error: PKIX path building failed", "CDC_JAVA_TRUST_STORE"),
        ("Server access error: Connection refused", "CDC_IVY_SETTINGS"),
    ],
)
def test_a_failed_download_says_what_to_do(tmp_path: Path, talk: str, advice: str) -> None:
    (tmp_path / "ivy.log").write_text(talk, encoding="utf-8")
    assert advice in hint_for(tmp_path / "ivy.log")
    assert "CDC_IVY_SETTINGS" in hint_for(tmp_path / "none")


def test_a_bound_process_takes_a_ctrl_c_that_ours_ignores() -> None:
    """A background job of a shell starts with SIGINT ignored, and Postgres stops by it."""
    shown = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    command_line = ANYBODY.ending_with_parent([sys.executable, "-c", shown], death_signal=9, parent=os.getpid())
    held = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = subprocess.run(command_line, capture_output=True, text=True, check=True)
    finally:
        signal.signal(signal.SIGINT, held)
    assert done.stdout == "True\n"
