"""What benchmarks share: servers, a fresh pipeline, a running ``cdc`` and what it used."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cdc.settings.model import Settings, parse
from cdc.stack.local import LocalStack
from cdc.stack.supervised_server import ANYBODY
from connectors.kafka.admin import TopicAdmin

_TICKS = os.sysconf("SC_CLK_TCK")


class Bench:
    """Servers, a folder, the part of the full size that is wanted, and the commit to measure beside, if any."""

    def __init__(self, stack: LocalStack, folder: Path, scale: float, beside: str | None = None) -> None:
        self.stack = stack
        self.folder = folder
        self.scale = scale
        self.beside = beside

    def rows(self, full: int, multiple_of: int = 1000) -> int:
        """The scaled size, in whole multiples."""
        return max(multiple_of, round(full * self.scale / multiple_of) * multiple_of)

    @contextmanager
    def database(self) -> Iterator[str]:
        """Connection string of a new database, dropped afterwards with its slots."""
        postgres = self.stack.ensure("postgres")["postgres"]["dsn"]
        name = f"bench_{secrets.token_hex(4)}"
        with psycopg.connect(postgres, autocommit=True) as admin:
            admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            yield make_conninfo(postgres, dbname=name)
        finally:
            with psycopg.connect(postgres, autocommit=True) as admin:
                admin.execute(
                    "select pg_drop_replication_slot(slot_name) from pg_replication_slots"
                    " where database = %s and not active",
                    [name],
                )
                admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))

    @contextmanager
    def pipeline(self, dsn: str, tables: Sequence[str], **log: object) -> Iterator[Pipeline]:
        """A fresh pipeline on that database; its topics are deleted afterwards."""
        servers = self.stack.ensure("kafka")["kafka"]["bootstrap_servers"]
        name = f"b{secrets.token_hex(4)}"
        document: dict[str, Mapping[str, object] | str] = {
            "name": name,
            "source": {"dsn": dsn, "tables": list(tables)},
            "log": {"bootstrap_servers": servers, **log},
            "capture": {"http_address": ""},
        }
        pipeline = Pipeline(parse(document), self.folder / f"{name}.toml")
        pipeline.write(document)
        try:
            yield pipeline
        finally:
            admin = TopicAdmin(pipeline.settings.log)
            topics = [topic for topic in admin.names() if topic.startswith(f"{name}.")]
            admin.delete(topics)

    def say(self, line: str) -> None:
        print(f"  {line}", flush=True)


@dataclass(frozen=True)
class Pipeline:
    """A settings file and what it says."""

    settings: Settings
    config: Path

    def write(self, document: Mapping[str, Mapping[str, object] | str]) -> None:
        """The document as TOML; two levels are all that is needed."""
        lines = [f'name = "{document["name"]}"']
        for section, values in document.items():
            if isinstance(values, Mapping):
                lines.append(f"[{section}]")
                lines += [f"{key} = {_toml(value)}" for key, value in values.items()]
        self.config.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def cdc(self, *arguments: str) -> None:
        """Run one command to its end; CalledProcessError shows what it said."""
        argv = [sys.executable, "-m", "cdc", "--config", str(self.config), *arguments]
        subprocess.run(argv, check=True, capture_output=True, text=True)

    @contextmanager
    def running(self, *arguments: str) -> Iterator[Running]:
        """Run a command beside us, until the context ends; it dies with us."""
        argv = [sys.executable, "-m", "cdc", "--config", str(self.config), *arguments]
        log = self.config.with_suffix(f".{'-'.join(arguments)}.log")
        with log.open("wb") as err:
            process = subprocess.Popen(
                ANYBODY.ending_with_parent(argv, death_signal=9, parent=os.getpid()),
                stdin=subprocess.DEVNULL,
                stderr=err,
            )
        try:
            yield Running(process, log)
        finally:
            process.terminate()
            process.wait(60)


def _toml(value: object) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return f"[{', '.join(_toml(one) for one in value)}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{name} = {_toml(one)}' for name, one in value.items())} }}"
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass
class Running:
    """A process and its figures, read from the kernel."""

    process: subprocess.Popen[bytes]
    log: Path
    _start_cpu_s: float = field(default=0.0)

    def said(self, event: str) -> bool:
        """Whether it has logged this event; AssertionError when it has ended."""
        text = self.log.read_text(encoding="utf-8")
        assert self.process.poll() is None, text
        return f'"{event}"' in text

    def cpu_s(self) -> float:
        """User and system time so far, all threads."""
        return cpu_of(self.process.pid)

    def peak_mb(self) -> float:
        """The most memory it has had resident."""
        return peak_of(self.process.pid)


RUNS = 3
"""How often each side is measured, in turn."""


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Median and range: ``170,000 (165,000 to 172,000 in 3 runs)``.

    >>> spread([3.0, 1.0, 2.0])
    '2 (1 to 3 in 3 runs)'
    """
    low, high = min(values), max(values)
    return f"{median(values):,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f} in {len(values)} runs)"


def machine() -> str:
    """What the figures were taken on, and how busy it was: a figure of a busy machine is none."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    load = os.getloadavg()[0]
    busy = "; NOT IDLE: keep none of these figures" if load > 1 else ""
    return f"{os.cpu_count()} cores of {model}, {memory_gb:.0f} GB, load {load:.1f} before{busy}"


def cpu_of(pid: int) -> float:
    """User and system seconds of a process so far, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_of(pid: int) -> float:
    """The most memory, in MB, that a process has had resident."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0
