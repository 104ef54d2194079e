"""The demo, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from cdc.cli.pipeline_processes import Child, Children
from cdc.cli.status import fitted, view
from cdc.demo.shop import EVENTS, KINDS, ShopSize, Workload, make_shop
from cdc.demo.shop_events import last_lines, stream_text, write_streams
from cdc.demo.shop_views import (
    ORDER_SEARCH,
    TAKEN,
    look_around,
    order_search_text,
    paid_order,
    renamed_customer,
    same_order,
    write_views,
)
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, DifferenceFound
from cdc.record.position import Lsn
from cdc.settings.model import Settings
from cdc.stack.local import DEFAULT_PORTS, LocalStack, free_ports
from cdc.stack.servers import own_ports
from cdc.stack.start import make_database, start_watched, write_settings
from cdc.stack.supervised_server import refuse_taken_port
from cdc.status.pace import LiveLook, LiveLooks
from cdc.status.rules import status_of
from cdc.status.run import StatusReader
from cdc.status.view_lines import age, size
from cdc.wiring.pipeline import open_status
from sinks.contract.kinds import load_settings

PARTS = ("postgres", "kafka", "redis", "opensearch")
WATCH_S = 1.0
PLAIN_WATCH_S = 3.0
"""Lines that nobody watches come less often."""
CATCH_UP_S = 600.0


@dataclass(slots=True)
class Story:
    """One telling. ``folder``: of the stack. ``keep``: leave everything running at the end."""

    folder: Path
    console: Console
    size: ShopSize
    duration_s: float
    keep: bool
    clock: Clock = SYSTEM_CLOCK
    _stack: LocalStack = field(init=False)
    _began: float = field(init=False, default=0.0)
    _paid: int = field(init=False, default=0)

    def tell(self) -> None:
        """Everything, from the first server to the last comparison. CdcError when a step fails.

        However it ends, no process is left, except where ``keep`` asked for it and all went well.
        """
        self._began = self.clock.monotonic()
        self._stack = LocalStack(self.folder)
        if self._stack.running():
            raise CdcError(f"a demo runs in {self.folder} already", hint="cdc demo --stop ends it")
        self._stack.wipe()
        kept = False
        try:
            dsn = self._servers()
            with Children(self._config, self._stack.folder / "logs", {}, clock=self.clock) as children:
                self._pipeline(dsn, children)
            if self.keep:
                kept = self._leave_running()
        finally:
            if not kept:
                self._stack.wipe()
        if not self.keep:
            self.console.print("everything is stopped and removed; cdc demo --keep leaves it running", style="dim")

    def _servers(self) -> str:
        self._step("a local stack: PostgreSQL, Kafka, Valkey, OpenSearch")
        connections = start_watched(self._stack, PARTS, self.console, ports=self._ports())
        dsn = make_database(connections["postgres"]["dsn"])
        config = write_settings(connections, self._stack.folder, TAKEN)
        with config.open("a", encoding="utf-8") as file:
            file.write(f'[capture]\nhttp_address = "127.0.0.1:{free_ports()["kafka"]}"\n')
            file.write(write_views(self._stack.folder))
            file.write(write_streams(self._stack.folder))
        self._step("a shop with customers, products, stock, orders, their lines and payments")
        rows = make_shop(dsn, self.size)
        listed = ", ".join(f"{count:,} {table}" for table, count in rows.items())
        self._say(f"{sum(rows.values()):,} rows: {listed}")
        return dsn

    def _ports(self) -> Mapping[str, int]:
        """The usual ports, or free ones where one of them is taken."""
        try:
            for part in PARTS:
                for port in own_ports(part):
                    refuse_taken_port(part, DEFAULT_PORTS[port])
        except CdcError as taken:
            self._say(f"{taken.message}: choosing free ports")
            return free_ports()
        return DEFAULT_PORTS

    def _pipeline(self, dsn: str, children: Children) -> None:
        settings = load_settings(self._config, {})
        self._step("what would stop this from working?", "check")
        self._must(children, "check")
        self._step("publication and topics", "init")
        self._must(children, "init")
        self._step("the stores begin to read: one Spark application, three queries", "sink &")
        sink = children.start("sink")
        self._step("the rows that are there", "snapshot")
        self._must(children, "snapshot")
        self._step("and from here on every change", "run &")
        capture = children.start("run")
        self._step("documents over several tables: a SELECT each, kept true from the log", "view run &")
        self._say(order_search_text())
        views = children.start("view", "run")
        running = [sink, capture, views]
        with ExitStack() as stack:
            reader = stack.enter_context(open_status(settings, self.clock))
            self._watch(reader, settings, running, "the stores take the snapshot in", until="consistent")
            self._one_change(dsn, children)
            self._live(dsn, reader, settings, running)
        self._step("a customer is renamed, and so he is in the documents of his orders")
        for line in renamed_customer(dsn, settings, self.clock):
            self._print(line)
        self._events(children)
        self._step("the view's own text on Postgres, against the index", f"verify {ORDER_SEARCH}")
        self._must(children, "verify", str(ORDER_SEARCH))
        self._step("source and stores, row by row, at a fence", "verify")
        self._must(children, "verify")
        self._step("the same order, read from each store")
        for line in same_order(dsn, settings):
            self._print(line)

    def _one_change(self, dsn: str, children: Children) -> None:
        self._step("one change, from the table to the log", "events orders")
        for line in paid_order(dsn, children.start("events", "orders"), self.clock):
            self._print(line)

    def _live(self, dsn: str, reader: StatusReader, settings: Settings, running: list[Child]) -> None:
        life = f"{self.duration_s:g} seconds of life: orders, payments, cancellations, renumbered lines"
        self._step(life, "status --watch")
        workload = Workload(dsn, self.size, self.duration_s, clock=self.clock)
        workload.start()
        try:
            self._watch(reader, settings, running, "", until=workload)
        finally:
            workload.stop()
            workload.join()
        if workload.error is not None:
            raise CdcError(f"the workload broke off: {str(workload.error).splitlines()[0]}")
        counts = workload.counts
        done = ", ".join(f"{counts[what]:,} {what}" for what in KINDS)
        self._say(f"{counts['transactions']:,} transactions: {done}")
        self._paid = counts[EVENTS]

    def _events(self, children: Children) -> None:
        paid = ("events", "outbox", "--from-beginning", "--until-caught-up")
        self._step("each payment told others of itself, in its own transaction", " ".join(paid))
        for line in last_lines(children.start(*paid, output="outbox"), self._paid):
            self._print(line)
        self._step("Spark SQL over these events: a window, late ones set apart", "stream run --until-caught-up")
        self._say(stream_text())
        self._must(children, "stream", "run", "--until-caught-up")
        counted = ("events", "stream.payments", "--from-beginning", "--until-caught-up")
        self._step("its rows are a table as any other", " ".join(counted))
        for line in last_lines(children.start(*counted, output="payments")):
            self._print(line)

    def _watch(
        self, reader: StatusReader, settings: Settings, running: list[Child], title: str, *, until: str | Workload
    ) -> None:
        """Show the stores until all are in the state ``until``, or the workload is done."""
        if title:
            self._step(title)
        deadline = self.clock.monotonic() + CATCH_UP_S
        looks = LiveLooks()
        with Live(console=self.console, auto_refresh=False, transient=not self.console.is_terminal) as live:
            while True:
                for child in running:
                    child.require_running()
                at_s, at_ms = self.clock.monotonic(), self.clock.now_ns() // 1_000_000
                shown = status_of(reader.read(), settings.limits)
                self._show(live, looks.add(shown, at_s, at_ms))
                if isinstance(until, Workload):
                    if not until.is_alive():
                        return
                elif all(sink.state == until for sink in shown.sinks):
                    return
                elif self.clock.monotonic() > deadline:
                    late = ", ".join(f"{sink.name} is {sink.state}" for sink in shown.sinks if sink.state != until)
                    raise DifferenceFound(f"the stores are not there after {CATCH_UP_S:g} s: {late}")
                self._pause(until)

    def _pause(self, until: str | Workload) -> None:
        """Until the next look. Not past the workload's end."""
        pause_s = WATCH_S if self.console.is_terminal else PLAIN_WATCH_S
        if isinstance(until, Workload):
            until.join(pause_s)
        else:
            self.clock.sleep(pause_s)

    def _show(self, live: Live, look: LiveLook) -> None:
        shown = look.shown
        if self.console.is_terminal:
            live.update(fitted(lambda room: view(shown, look, room), self.console), refresh=True)
            return
        stores = "  ".join(
            f"{sink.name} {Lsn(sink.lsn) if sink.lsn else '-'} {age(sink.lag_s)}" for sink in shown.sinks
        )
        self._say(f"log {size(shown.lag_bytes)} behind  {stores}")

    def _leave_running(self) -> bool:
        """Start capture and sinks anew, detached, and leave the stack running."""
        children = Children(self._config, self._stack.folder / "logs", {}, clock=self.clock)
        left = [children.start(*words, tied=False).process.pid for words in (("run",), ("view", "run"), ("sink",))]
        (self._stack.folder / "demo.pids").write_text("".join(f"{pid}\n" for pid in left), encoding="utf-8")
        self._stack.detach()
        self._step("left running; to look around")
        for line in look_around(self._config):
            self._print(line)
        return True

    def _must(self, children: Children, *command: str) -> None:
        code = children.run(*command)
        if code:
            raise CdcError(f"cdc {' '.join(command)} ended with exit code {code}", hint="its words are above")

    def _step(self, what: str, command: str | None = None) -> None:
        passed = self.clock.monotonic() - self._began
        self.console.print()
        self.console.print(Text.assemble((f"{passed:4.0f} s  ", "dim"), (what, "bold")), soft_wrap=True)
        if command is not None:
            self.console.print(Text(f"$ cdc {command}", style="cyan"))

    def _say(self, words: str) -> None:
        self._print(words)

    def _print(self, words: str | Text) -> None:
        self.console.print(words, highlight=False, soft_wrap=True)

    @property
    def _config(self) -> Path:
        return self._stack.folder / "cdc.toml"
