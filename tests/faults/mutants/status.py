"""Rules of the watched status, of its page, and of what a terminal and a shell are given."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "show a silent part's figures as those of now", "cdc/status/board.py",
        "        if silent:\n", "        if False:\n",
        "tests/unit/cdc/status",
    ),
    Mutant(
        "show the login within a URL on the status page", "cdc/status/board.py",
        "return without_urls(value.translate(_HALVES))", "return value.translate(_HALVES)",
        "tests/unit/cdc/status",
    ),
    Mutant(
        "draw a plot's line over what is not known", "cdc/status/html.py",
        "            if stretch:\n                yield stretch\n            stretch = []\n            continue",
        "            continue",
        "tests/unit/cdc/status",
    ),
    Mutant(
        "put a table's name into the page as it is", "cdc/status/html.py",
        "else escape(child) for child", "else child for child",
        "tests/unit/cdc/status",
    ),
    Mutant(
        "show a look for ever though none has ended since", "cdc/status/page_server.py",
        "return self._clock.monotonic() - newest.begun_s > max(", "return False and max(",
        "tests/unit/cdc/status",
    ),
    Mutant(
        "reckon a rate over two epochs", "cdc/status/pace.py",
        "                self.forget()\n", "                pass\n",
        "tests/unit/cdc/status",
    ),
    Mutant(
        "reckon a rate from a store that is being filled", "cdc/status/pace.py",
        "next((one.lsn or None for", "next((one.lsn for",
        "tests/unit/cdc/status",
    ),
    Mutant(
        "offer a shell a name that it evaluates", "cdc/cli/completion.py",
        "if _WORD.fullmatch(name) and name not in taken", "if name not in taken",
        "tests/unit/cdc/cli/test_completion.py",
    ),
    Mutant(
        "print a table's name as it is", "cdc/cli/terminal.py",
        "            renderable = _cleaned(renderable)\n", "            pass\n",
        "tests/unit/cdc/cli/test_terminal.py",
    ),
    Mutant(
        "ask a part that hangs again and again", "cdc/status/run.py",
        "        if self.hangs(part):\n", "        if False:\n",
        "tests/unit/cdc/status/test_run.py",
    ),
    Mutant(
        "answer a browser that was led here by another site's name", "cdc/status/page_server.py",
        "        if host is None or host_of(host)", "        if True or host_of(host)",
        "tests/unit/cdc/status/test_page.py",
    ),
    Mutant(
        "say when a store is level without the source's rate", "cdc/status/pace.py",
        "    if behind is None or source is None:\n", "    source = source or 0.0\n    if behind is None:\n",
        "tests/unit/cdc/status/test_pace.py",
    ),
    Mutant(
        "draw an outage of some seconds as if all had been known", "cdc/status/pace.py",
        "None if value is None or (earlier := before.get(figure, value)) is None else max(value, earlier)",
        "value if value is None or (earlier := before.get(figure)) is None else max(value, earlier)",
        "tests/unit/cdc/status/test_hour.py",
    ),
    Mutant(
        "let slow readers hold the page for ever", "cdc/status/page_server.py",
        "if until_s < now_s]", "if False]",
        "tests/unit/cdc/status/test_page.py",
    ),
)  # fmt: skip
