"""Every link through a proxy that cuts, stalls, half-opens, delays and truncates it, under load.

One seed is one pipeline with one capture and the followers of three stores that live through all of it: eight faults
in an order of its own on the links to Postgres, Kafka, Redis and OpenSearch. Nobody is restarted; when the last fault
is over the log must give the source's rows, and so must the stores.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc.process.clock import SYSTEM_CLOCK
from tests.faults import oracle
from tests.faults.experiments.crash_sinks import PARTS, follow, forget, stores
from tests.faults.lab import Found, Lab
from tests.faults.lives import Life
from tests.faults.proxy import Fault, Proxy
from tests.faults.rig import Rig, fresh_rig
from tests.faults.workload import Load
from tests.waiting import wait_until

FAULTS = 8
STORES = ("cache", "search")
_SETTLE_S = 120.0


def run(lab: Lab) -> None:
    """Seeds until the time is over."""
    for seed in lab.seeds():
        one(lab, seed, FAULTS)


def one(lab: Lab, seed: int, faults: int) -> None:
    """One pipeline, so many faults."""
    pick = random.Random(seed)
    with fresh_rig(lab, PARTS, log={"min_compaction_lag": "1h"}) as rig, ExitStack() as exits:
        links = through_proxies(lab, rig, exits)
        rig.document["sinks"] |= stores(lab, rig.folder, rig.settings.name, ["delta"])
        exits.callback(forget, rig.document["sinks"], rig.settings.name)
        rig.prepare()
        lives = [rig.stream(), *(follow(rig, store) for store in (*STORES, "delta"))]
        for life in lives:
            exits.callback(life.kill)
        # What only starts ends at a cut link, and systemd starts it again. Here nobody does.
        for life in lives[1:]:
            wait_until(lambda life=life: life.said("following"), 60, lambda life=life: life.stderr[-500:])  # type: ignore[misc]
        with Load(rig.dsn, seed, clients=2, pause_s=0.05) as load:
            for _ in range(faults):
                link, kind = pick.choice(list(links)), pick.choice(list(KINDS))
                KINDS[kind](links[link], pick)
                links[link].heal()
                lab.count(faults=1, **{f"{link}_{kind}": 1})
                SYSTEM_CLOCK.sleep(pick.uniform(0, 1))
        _settle(rig, lives)
        rig.judge(lab)
        oracle.judge_stores(lab, rig.settings, list(rig.settings.sinks), rig.dsn, _SETTLE_S)
        for life in lives:
            if life.stop() != 0:
                raise Found(f"exit {life.exit}: {life.stderr[-2000:]}")
        lab.count(transactions=load.transactions)


def through_proxies(lab: Lab, rig: Rig, exits: ExitStack) -> Mapping[str, Proxy]:
    """A proxy before each server, and the settings of a pipeline that goes through them."""
    at = lab.stack.connections()
    ports = {
        "postgres": int(str(conninfo_to_dict(rig.dsn)["port"])),
        "kafka": int(at["kafka"]["bootstrap_servers"].rsplit(":", 1)[1]),
        "redis": urlsplit(at["redis"]["url"]).port or 0,
        "opensearch": urlsplit(at["opensearch"]["url"]).port or 0,
    }
    links = {name: exits.enter_context(Proxy(port, kafka=name == "kafka")) for name, port in ports.items()}
    password = _password(rig.dsn)
    secret = rig.folder / "password"
    secret.write_text(password, encoding="utf-8")
    secret.chmod(0o600)
    dsn = {name: value for name, value in conninfo_to_dict(rig.dsn).items() if name != "passfile"}
    rig.document["source"] |= {
        "dsn": make_conninfo("", **{**dsn, "port": links["postgres"].port}),
        "password": f"file:{secret}",
    }
    rig.document["log"]["bootstrap_servers"] = f"127.0.0.1:{links['kafka'].port}"
    rig.document["sinks"] = stores(lab, rig.folder, rig.settings.name, STORES)
    rig.document["sinks"]["cache"]["url"] = f"redis://127.0.0.1:{links['redis'].port}/0"
    rig.document["sinks"]["search"]["url"] = f"http://127.0.0.1:{links['opensearch'].port}"
    return links


def _password(dsn: str) -> str:
    """The one in the passfile: its port is not the proxy's."""
    with open(str(conninfo_to_dict(dsn)["passfile"]), encoding="utf-8") as file:
        return file.read().strip().rsplit(":", 1)[1]


def _settle(rig: Rig, lives: list[Life]) -> None:
    for life in lives:
        if life.exit is not None:
            raise Found(f"it ended with {life.exit}, {life.reason}: {life.stderr[-2000:]}")
    rig.settle(_SETTLE_S)


def _cut(link: Proxy, _pick: random.Random) -> None:
    link.cut()


def _closed(link: Proxy, _pick: random.Random) -> None:
    link.cut(reset=False)


def _refused(link: Proxy, pick: random.Random) -> None:
    link.set(Fault(refuse=True))
    link.cut()
    SYSTEM_CLOCK.sleep(pick.uniform(0.5, 3))


def _stalled(link: Proxy, pick: random.Random) -> None:
    link.set(Fault(stall=True, one_way=pick.choice((None, "up", "down"))))
    SYSTEM_CLOCK.sleep(pick.uniform(0.5, 4))


def _half_open(link: Proxy, _pick: random.Random) -> None:
    link.half_open()
    SYSTEM_CLOCK.sleep(0.5)
    # A firewall that has forgotten a connection resets it at the next word; silence for good has a test of its own.
    link.cut()


def _slow(link: Proxy, pick: random.Random) -> None:
    link.set(Fault(delay_s=pick.uniform(0.02, 0.2)))
    SYSTEM_CLOCK.sleep(pick.uniform(0.5, 2))


def _truncated(link: Proxy, pick: random.Random) -> None:
    link.set(Fault(cut_after=pick.choice((1, 7, 100, 3_000, 70_000, 400_000))))
    link.cut()
    SYSTEM_CLOCK.sleep(pick.uniform(0.5, 3))


def _crumbled(link: Proxy, pick: random.Random) -> None:
    link.set(Fault(block=pick.randint(1, 50)))
    SYSTEM_CLOCK.sleep(pick.uniform(0.2, 1))


KINDS: Mapping[str, Callable[[Proxy, random.Random], None]] = {
    "cut": _cut,
    "closed": _closed,
    "refused": _refused,
    "stalled": _stalled,
    "half_open": _half_open,
    "slow": _slow,
    "truncated": _truncated,
    "crumbled": _crumbled,
}
