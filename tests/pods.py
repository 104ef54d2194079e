"""As much of Kubernetes' API as Spark asks for: each pod that is made is a program of this machine.

Requests are let through by the rules of a Role, as the cluster would, and each pod is checked by Kubernetes' schema. A
pod waits for the ConfigMaps that it mounts, and has them as folders.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate

from tests.integration.spark.family import below
from tests.programs import Spawned

Document = dict[str, Any]
Rules = Sequence[Mapping[str, Any]]

_PATH = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/(?P<kind>[a-z]+)(?:/(?P<name>[^/]+))?")
_SERVICE = re.compile(r"[\w-]+\.\w+\.svc\b")
_VERBS = {
    ("GET", True): "get", ("GET", False): "list", ("POST", False): "create", ("PATCH", True): "patch",
    ("DELETE", True): "delete", ("DELETE", False): "deletecollection",
}  # fmt: skip
_LISTS = {"pods": "PodList", "configmaps": "ConfigMapList", "services": "ServiceList"}
_WORK = "/var/lib/headrace"
"""The folder that the image's programs start in."""


def _status(code: int) -> tuple[int, Document]:
    ends = {200: "Success"}.get(code, "Failure")
    reason = {403: "Forbidden", 404: "NotFound", 409: "AlreadyExists"}.get(code, "")
    return code, {"kind": "Status", "apiVersion": "v1", "status": ends, "reason": reason, "code": code}


@dataclass
class _Pod:
    """A pod, and its program once it has begun. ``ending``: whether it was deleted."""

    document: Document
    program: Spawned | None = None
    ending: bool = False

    @property
    def code(self) -> int | None:
        return None if self.program is None else self.program.process.poll()

    def signal(self, number: int) -> None:
        """To its first process, as Kubernetes does. At SIGKILL all others end with it."""
        if self.program is None:
            return
        family = below(self.program.process.pid) if number == signal.SIGKILL else []
        if self.code is None:
            self.program.process.send_signal(number)
        for process in family:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


@dataclass
class Pods:
    """``urls``: of the API, as each account asks it. ``asked``: account, verb and resource of each request.
    ``refused``: those that no rule of the account's allows. ``commands``: a container's program -> that of this
    machine. ``places``: a text of the image -> that of this machine. ``secrets``: variables by the Secret's name."""

    folder: Path
    rules: Mapping[str, Rules]
    commands: Mapping[str, Sequence[str]]
    places: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)
    asked: set[tuple[str, str, str]] = field(default_factory=set)
    refused: set[tuple[str, str, str]] = field(default_factory=set)
    made: list[Document] = field(default_factory=list)
    """Each pod, as it was asked for."""
    files: dict[str, Document] = field(default_factory=dict)
    """ConfigMaps by name."""
    told: list[str] = field(default_factory=list)
    """The body of each request."""
    _pods: dict[str, _Pod] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, account: str, method: str, path: str, body: bytes) -> tuple[int, Document]:
        """What the API would say."""
        found = _PATH.fullmatch(urlsplit(path).path)
        if found is None:
            return _status(404)
        kind, name = found["kind"], found["name"]
        verb = _VERBS[method, name is not None]
        query = parse_qs(urlsplit(path).query)
        with self._lock:
            self.told.append(body.decode())
            verbs = {"watch"} if "watch" in query else {verb}
            # To apply what is not there is to create it.
            verbs |= {"create"} if verb == "patch" and name not in self.files else set()
            if not self._allowed(account, verbs, kind):
                return _status(403)
            if "watch" in query:
                return 200, self._event(query["fieldSelector"][0].rpartition("=")[2])
            return self._done(verb, kind, name, body)

    def _allowed(self, account: str, verbs: set[str], kind: str) -> bool:
        self.asked |= {(account, verb, kind) for verb in verbs}
        rules = self.rules[account]
        lacking = {v for v in verbs if not any(kind in rule["resources"] and v in rule["verbs"] for rule in rules)}
        self.refused |= {(account, verb, kind) for verb in lacking}
        return not lacking

    def _done(self, verb: str, kind: str, name: str | None, body: bytes) -> tuple[int, Document]:
        self._sweep()
        if verb in ("create", "patch"):
            return self._made(kind, json.loads(body))
        if verb == "list":
            items = [self._seen(one) for one in self._pods.values()] if kind == "pods" else []
            listed = _LISTS.get(kind, "PersistentVolumeClaimList")
            return 200, {"kind": listed, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
        if kind == "pods" and verb == "deletecollection":
            for pod in self._pods.values():
                # What Spark asks for at its end are the executors.
                if pod.document["metadata"]["labels"].get("spark-role") == "executor":
                    self._delete(pod)
        elif kind == "pods" and name is not None:
            if name not in self._pods:
                return _status(404)
            if verb == "get":
                return 200, self._seen(self._pods[name])
            self._delete(self._pods[name])
        return _status(200)

    def _made(self, kind: str, made: Document) -> tuple[int, Document]:
        kubernetes_validate.validate(made, kubernetes_validate.latest_version(), strict=True)
        name = made["metadata"]["name"]
        made["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
        if kind == "pods":
            if name in self._pods:
                return _status(409)
            self.made.append(made)
            self._pods[name] = _Pod(made)
        elif kind == "configmaps":
            self.files[name] = made["data"]
        for pod in self._pods.values():
            if pod.program is None and self._wanted(pod.document) <= self.files.keys():
                self._start(pod)
        return 201, made

    def _wanted(self, document: Document) -> set[str]:
        return {one["configMap"]["name"] for one in document["spec"].get("volumes", []) if "configMap" in one}

    def _delete(self, pod: _Pod) -> None:
        pod.ending = True
        pod.signal(signal.SIGTERM)

    def _sweep(self) -> None:
        """A pod that was deleted is gone when its program has ended."""
        for name, pod in list(self._pods.items()):
            if pod.ending and (pod.program is None or pod.code is not None):
                pod.signal(signal.SIGKILL)
                del self._pods[name]

    def _start(self, pod: _Pod) -> None:
        name = f"{pod.document['metadata']['name']}-{len(self.made)}"
        (container,) = pod.document["spec"]["containers"]
        # An executor fetches its jars into the folder that it starts in.
        folder = self.folder / name
        folder.mkdir()
        places = {**self.places, **self._mounted(pod.document, container, folder)}
        given = {one["name"]: _here(one.get("value", "127.0.0.1"), places) for one in container.get("env", [])}
        for source in container.get("envFrom", []):
            given |= self.secrets[source["secretRef"]["name"]]
        given["SPARK_EXECUTOR_POD_NAME"] = pod.document["metadata"]["name"]
        # As in the image, this environment's programs come first.
        given["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        (program,) = container["command"]
        argv = [*self.commands[program], *(_here(one, places) for one in container.get("args", []))]
        cwd = Path(places.get(_WORK, folder))
        pod.program = Spawned.cold(
            argv, folder.with_suffix(".out"), folder.with_suffix(".err"), {**os.environ, **given}, cwd
        )

    def _mounted(self, document: Document, container: Document, folder: Path) -> dict[str, str]:
        """Where this machine has what a container mounts. All have one ``/tmp``."""
        volumes = {one["name"]: one for one in document["spec"].get("volumes", [])}
        mounts = [one for one in container.get("volumeMounts", []) if one["mountPath"] != "/tmp"]
        places = {one["mountPath"]: str(folder / one["name"]) for one in mounts}
        for one in mounts:
            place = folder / one["name"]
            place.mkdir()
            if "configMap" in (volume := volumes[one["name"]]):
                data = self.files[volume["configMap"]["name"]]
                items = volume["configMap"].get("items") or [{"key": key, "path": key} for key in data]
                for item in items:
                    text = _here(data[item["key"]], {**self.places, **places})
                    (place / item["path"]).write_text(text, encoding="utf-8")
        return places

    def _seen(self, pod: _Pod) -> Document:
        code = pod.code
        state: Document = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        phase = "Running"
        if pod.program is None:
            state, phase = {"waiting": {"reason": "ContainerCreating"}}, "Pending"
        elif code is not None:
            phase = "Failed" if code else "Succeeded"
            state = {
                "terminated": {
                    "exitCode": code if code >= 0 else 128 - code,
                    "reason": "Error" if code else "Completed",
                }
            }
        ready = phase == "Running"
        (container,) = pod.document["spec"]["containers"]
        status = {
            "phase": phase, "podIP": "127.0.0.1", "hostIP": "127.0.0.1", "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"name": container["name"], "ready": ready, "restartCount": 0, "image": "i",
                                   "imageID": "i", "state": state}],
        }  # fmt: skip
        return {**pod.document, "status": status}

    def _event(self, name: str) -> Document:
        """What a watch hears at once. It ends then, and Spark asks again."""
        before = self._pods.get(name)
        self._sweep()
        if before is None:
            return {}
        return {"type": "MODIFIED" if name in self._pods else "DELETED", "object": self._seen(before)}

    def make(self, pod: Document) -> None:
        """A pod, as a controller of the cluster would."""
        with self._lock:
            code, told = self._made("pods", pod)
        assert code == 201, told

    def program(self, name: str) -> Spawned:
        """Of a pod. LookupError while it has none."""
        with self._lock:
            self._sweep()
            found = self._pods[name].program
        if found is None:
            raise LookupError(f"{name} waits for its files")
        return found

    def names(self) -> set[str]:
        """The pods that are there."""
        with self._lock:
            self._sweep()
            return set(self._pods)

    def kill(self, name: str) -> None:
        """All processes of a pod, at once, as where its node is short of memory. It stays, as failed."""
        with self._lock:
            self._pods[name].signal(signal.SIGKILL)

    def remove(self, name: str) -> None:
        """What ``kubectl delete pod`` does."""
        with self._lock:
            self._delete(self._pods[name])

    def logs(self) -> list[str]:
        """What the pods wrote."""
        return [file.read_text(encoding="utf-8") for file in sorted(self.folder.glob("*.err"))]

    def close(self) -> None:
        """End all pods."""
        for pod in self._pods.values():
            pod.signal(signal.SIGKILL)
            if pod.program is not None:
                pod.program.wait(30)


def _here(text: str, places: Mapping[str, str]) -> str:
    """A text of the image or the cluster on this machine."""
    for there, place in places.items():
        text = text.replace(there, place)
    return _SERVICE.sub("127.0.0.1", text)


def _handler(pods: Pods, account: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One request a connection, all in one thread: the kernel ends a program with the thread that started it."""

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            code = 200
            document: Document = {}
            # An answer that is none of a web socket's: the client then watches by plain HTTP.
            if not self.headers.get("Upgrade"):
                code, document = pods.answer(account, self.command, self.path, body)
            text = json.dumps(document).encode() + b"\n" if document else b""
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_DELETE = _serve

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def pods_api(pods: Pods) -> Iterator[Pods]:
    """Served while the body runs, at an address for each account. All pods end with it."""
    with ExitStack() as at_end:
        at_end.callback(pods.close)
        for account in pods.rules:
            server = HTTPServer(("127.0.0.1", 0), _handler(pods, account))
            at_end.callback(server.server_close)
            pods.urls[account] = f"http://127.0.0.1:{server.server_port}"
            thread = threading.Thread(target=server.serve_forever, name=f"pods of {account}")
            thread.start()
            at_end.callback(thread.join)
            at_end.callback(server.shutdown)
        yield pods
