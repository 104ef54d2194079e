"""As much of Kubernetes' API as Spark asks for: each pod that is made is a program of this machine.

Requests are let through by the rules of a Role, as the cluster would, and each pod is checked by Kubernetes' schema.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate

from tests.programs import Spawned

_PATH = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/(?P<kind>[a-z]+)(?:/(?P<name>[^/]+))?")
_VERBS = {
    ("GET", True): "get", ("GET", False): "list", ("POST", False): "create", ("PATCH", True): "patch",
    ("DELETE", True): "delete", ("DELETE", False): "deletecollection",
}  # fmt: skip


@dataclass
class Pods:
    """``url``: of the API. ``asked``: verb and resource of each request. ``refused``: those no rule allows."""

    folder: Path
    rules: Sequence[Mapping[str, Any]]
    commands: Mapping[str, Sequence[str]]
    url: str = ""
    asked: set[tuple[str, str]] = field(default_factory=set)
    refused: set[tuple[str, str]] = field(default_factory=set)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    made: list[dict[str, Any]] = field(default_factory=list)
    _programs: dict[str, Spawned] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """What the API would say."""
        found = _PATH.fullmatch(path)
        if found is None:
            return 404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}
        kind, name = found["kind"], found["name"]
        verb = _VERBS[method, name is not None]
        self.asked.add((verb, kind))
        if not any(kind in rule["resources"] and verb in rule["verbs"] for rule in self.rules):
            self.refused.add((verb, kind))
            return 403, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}
        with self._lock:
            return self._done(verb, kind, name, body)

    def _done(self, verb: str, kind: str, name: str | None, body: bytes) -> tuple[int, dict[str, Any]]:
        if verb == "create":
            made: dict[str, Any] = json.loads(body)
            kubernetes_validate.validate(made, kubernetes_validate.latest_version(), strict=True)
            if kind == "pods":
                self._start(made)
            return 201, made
        if kind == "pods" and name is not None:
            if name not in self.pods:
                return 404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}
            if verb == "delete":
                self._programs[name].kill()
            return 200, self._seen(name) if verb != "delete" else {"kind": "Status", "apiVersion": "v1"}
        if verb == "deletecollection" and kind == "pods":
            self.close()
        if verb == "list":
            items = [self._seen(one) for one in self.pods] if kind == "pods" else []
            titles = {"pods": "PodList", "configmaps": "ConfigMapList", "services": "ServiceList"}
            listed = titles.get(kind, "PersistentVolumeClaimList")
            return 200, {"kind": listed, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
        return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _start(self, pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        (container,) = pod["spec"]["containers"]
        given = {one["name"]: one.get("value", "127.0.0.1") for one in container.get("env", [])}
        given["SPARK_EXECUTOR_POD_NAME"] = name
        # As in the image, this environment's programs come first.
        given["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        (program,) = container["command"]
        argv = [*self.commands[program], *container.get("args", [])]
        self.made.append(pod)
        self.pods[name] = pod
        # An executor fetches its jars into the folder that it starts in.
        folder = self.folder / name
        folder.mkdir()
        self._programs[name] = Spawned.cold(
            argv, folder.with_suffix(".out"), folder.with_suffix(".err"), {**os.environ, **given}, folder
        )

    def _seen(self, name: str) -> dict[str, Any]:
        code = self._programs[name].process.poll()
        state: dict[str, Any] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        if code is not None:
            state = {"terminated": {"exitCode": max(code, 1), "reason": "Error"}}
        status = {
            "phase": "Running" if code is None else "Failed", "podIP": "127.0.0.1", "hostIP": "127.0.0.1",
            "containerStatuses": [{"name": "executor", "ready": code is None, "restartCount": 0, "image": "i",
                                   "imageID": "i", "state": state}],
        }  # fmt: skip
        meta = {**self.pods[name]["metadata"], "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
        return {**self.pods[name], "metadata": meta, "status": status}

    def logs(self) -> list[str]:
        """What the pods wrote."""
        return [file.read_text(encoding="utf-8") for file in sorted(self.folder.glob("*.err"))]

    def close(self) -> None:
        """End all pods."""
        for program in self._programs.values():
            program.kill()


@contextmanager
def pods_api(folder: Path, rules: Sequence[Mapping[str, Any]], commands: Mapping[str, Sequence[str]]) -> Iterator[Pods]:
    """Served while the body runs. ``commands``: a container's program -> that of this machine."""
    pods = Pods(folder, rules, commands)

    class Handler(BaseHTTPRequestHandler):
        """One request a connection, all in one thread: the kernel ends a program with the thread that started it."""

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            code, document = pods.answer(self.command, urlsplit(self.path).path, body)
            text = json.dumps(document).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_DELETE = _serve

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    pods.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, name="pods")
    thread.start()
    try:
        yield pods
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        pods.close()
