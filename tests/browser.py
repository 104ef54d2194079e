"""A page in a real browser, spoken to by its DevTools protocol over two pipes: no port, and no library."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from typing import IO, Any

from tests.chromium import chromium
from tests.waiting import TIME_SCALE, wait_until

_ANSWER_S = 30.0
_ENDED: dict[str, Any] = {"error": "ended"}
"""Stands for the answer of a browser that has ended."""
_OPTIONS = (
    "--headless",
    # Pages of our own alone are opened, and a sandbox needs rights that a test does not have.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
# The protocol's pipes are the descriptors 3 and 4.
_LAUNCHER = """
import os, sys
reads, writes, command, *words = sys.argv[1:]
# Out of the way of each other first.
os.dup2(int(reads), 103, inheritable=False)
os.dup2(int(writes), 104, inheritable=False)
os.dup2(103, 3)
os.dup2(104, 4)
os.execv(command, [command, *words])
"""


class OpenPage:
    """A tab. ``requests``: the URLs that it asked for. ``complaints``: errors of its console, refusals of its policy
    among them."""

    def __init__(self, ours: IO[bytes], theirs: IO[bytes]) -> None:
        self._ours = ours
        self._answers: dict[int, Queue[dict[str, Any]]] = {}
        self._number = 0
        self._session = ""
        self._ended = threading.Event()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._reader = threading.Thread(target=self._read, args=(theirs,), daemon=True)
        self._reader.start()
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a command. AssertionError where there is none in time, or it is an error."""
        self._number += 1
        number, answers = self._number, Queue[dict[str, Any]]()
        self._answers[number] = answers
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        with suppress(BrokenPipeError):  # told below, by the end of its answers
            self._ours.write(json.dumps(message).encode() + b"\0")
            self._ours.flush()
        if self._ended.is_set():
            answers.put(_ENDED)
        try:
            answer = answers.get(timeout=_ANSWER_S * TIME_SCALE)
        except Empty:
            raise AssertionError(f"the browser did not answer {method}") from None
        assert answer is not _ENDED, "the browser has ended"
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, url: str) -> None:
        """Open a page and wait until it is there. Requests and complaints are of it alone."""
        self._go("about:blank")
        self.requests.clear()
        self.complaints.clear()
        self._go(url)

    def _go(self, url: str) -> None:
        self.ask("Page.navigate", url=url)
        wait_until(lambda: self.run("document.readyState === 'complete' && location.href") == url, 20)

    def run(self, script: str) -> Any:
        """The value of an expression in the page, as JSON has it. A promise is waited for."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def resize(self, width: int, height: int) -> None:
        """The size of the window in CSS pixels. Narrow ones are a phone's."""
        mobile = width < 600
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def prefer(self, scheme: str) -> None:
        """``dark`` or ``light``."""
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, file: Path) -> None:
        """A screenshot of the whole page, as PNG."""
        made = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(made["data"]))

    def _read(self, theirs: IO[bytes]) -> None:
        rest = b""
        while piece := os.read(theirs.fileno(), 1 << 16):
            *messages, rest = (rest + piece).split(b"\0")
            for message in messages:
                self._hear(json.loads(message))
        self._ended.set()
        for waiting in list(self._answers.values()):
            waiting.put(_ENDED)

    def _hear(self, message: Mapping[str, Any]) -> None:
        if "id" in message:
            self._answers.pop(message["id"]).put(dict(message))
            return
        params = message["params"]
        match message["method"]:
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.complaints.append(params["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.complaints.append(params["exceptionDetails"]["text"])


@contextmanager
def opened_browser(profile: Path) -> Iterator[OpenPage]:
    """A browser with an empty tab. ``profile``: an empty folder for what it keeps."""
    program = chromium()
    their_end, our_input = os.pipe()
    our_output, their_output = os.pipe()
    command = [program.command, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"]
    words = [sys.executable, "-c", _LAUNCHER, str(their_end), str(their_output), *command]
    written = profile.parent / f"{profile.name}.log"
    with written.open("wb") as log:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(their_end, their_output),
            env=os.environ | program.environment,
        )
    os.close(their_end)
    os.close(their_output)
    with os.fdopen(our_input, "wb") as ours, os.fdopen(our_output, "rb", buffering=0) as theirs:
        try:
            try:
                page = OpenPage(ours, theirs)
            except AssertionError as problem:
                said = written.read_text(encoding="utf-8", errors="replace")[-2000:]
                raise AssertionError(f"{problem}: {said}") from None
            yield page
            page.ask("Page.close")
        finally:
            process.terminate()
            try:
                process.wait(_ANSWER_S * TIME_SCALE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
