"""Rules of those who wait for a store."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "call a token shown though its table is held",
        "cdc/freshness/rules.py",
        "if not self.tables or topic in counts or hold.table in self.tables:",
        "if False:",
        "tests/unit/cdc/freshness tests/unit/sinks/contract/test_store_freshness.py",
    ),
    Mutant(
        "let a forked process wait on its parent's connections",
        "cdc/freshness/run.py",
        "            poller.forked()\n",
        "            pass\n",
        "tests/unit/cdc/freshness tests/unit/sinks/contract/test_forked_readers.py",
    ),
    Mutant(
        "call a token shown though the store does not read the table (H265)",
        "cdc/freshness/rules.py",
        "return not self._unread(watermark)",
        "return True",
        "tests/unit/cdc/freshness",
    ),
    Mutant(
        "look on at a connection that is silent (H266)",
        "cdc/freshness/bounded_ports.py",
        "            self._leave()\n            raise _silent",
        "            raise _silent",
        "tests/unit/cdc/freshness",
    ),
    Mutant(
        "leave any number of silent connections behind (H266)",
        "cdc/freshness/bounded_ports.py",
        "if len(self._left) >= MOST_LEFT:",
        "if False:",
        "tests/unit/cdc/freshness",
    ),
    Mutant(
        "look at a store that is away as often as a sink does",
        "cdc/freshness/bounded_ports.py",
        "            with self._briefly():\n                watermark = stores.watermarks(_STORE).read()",
        "            watermark = stores.watermarks(_STORE).read()",
        "tests/unit/cdc/freshness",
    ),
    Mutant(
        "wait for all tables of the store though some are named",
        "sinks/contract/store_freshness.py",
        "                self.wait(token, timeout_s=timeout_s, tables=tables)",
        "                self.wait(token, timeout_s=timeout_s)",
        "tests/unit/sinks/contract/test_store_freshness.py",
    ),
    Mutant(
        "wait for all tables of the store though some are named, on a loop",
        "sinks/contract/store_freshness.py",
        "await self.wait(token, timeout_s=timeout_s, tables=tables)",
        "await self.wait(token, timeout_s=timeout_s)",
        "tests/unit/sinks/contract/test_store_freshness.py",
    ),
    Mutant(
        "take two pipelines in one database for one store",
        "sinks/contract/store_freshness.py",
        "self._key = spec.kind, spec.prefix, *sorted",
        "self._key = spec.kind, *sorted",
        "tests/unit/sinks/contract/test_store_freshness.py",
    ),
    Mutant(
        "take an LSN of another epoch for shown",
        "cdc/freshness/rules.py",
        "shows(watermark, self.token.lsn, self.token.epoch)",
        "shows(watermark, self.token.lsn, None)",
        "tests/unit/cdc/freshness tests/unit/spark/test_wait_page.py",
    ),
    Mutant(
        "wait for a store or a log for as long as it takes (H562)",
        "cdc/freshness/bounded_ports.py",
        "wait([answer], limit_s)",
        "wait([answer])",
        "tests/unit/cdc/freshness/test_silent_servers.py",
    ),
    Mutant(
        "ask a store again on the connection that says nothing (H562)",
        "cdc/freshness/bounded_ports.py",
        "return not self._silent and self._ask",
        "return self._ask",
        "tests/unit/cdc/freshness/test_silent_servers.py",
    ),
)
