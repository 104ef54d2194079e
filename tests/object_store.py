"""An object store that checks signatures and policies: moto's server, which speaks S3 and IAM.

It has an environment of its own in the cache folder, made once by ``tests/fixtures/moto/requirements.txt``, by version
and hash: its libraries are not to be among ours, one of which they would hold at an older version.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from cdc.jvm.java import cache_folder, only_one
from cdc.stack.local import free_ports
from tests.programs import Spawned
from tests.waiting import wait_until

LOCK = Path(__file__).parent / "fixtures" / "moto" / "requirements.txt"
REGION = "us-east-1"
_CALLS = """
import json, sys, boto3, botocore.exceptions
asked = json.load(sys.stdin)
answers = []
for service, method, arguments in asked["calls"]:
    try:
        found = getattr(boto3.client(service, **asked["client"]), method)(**arguments)
        answers.append({"ok": found.get("AccessKey", {})})
    except botocore.exceptions.ClientError as error:
        answers.append({"refused": error.response["Error"]["Code"]})
json.dump(answers, sys.stdout, default=str)
"""
"""Calls of Amazon's own library, which is beside moto."""

Call = tuple[str, str, dict[str, Any]]
"""Service, method and arguments."""


def moto_python() -> Path:
    """The Python that has moto. Where it cannot be had the test fails: a skipped one proves nothing."""
    digest = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = cache_folder() / f"moto-{digest}"
    python, stamp = folder / "bin" / "python", folder / "made"
    with only_one(cache_folder() / "moto.lock"):
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            install = [
                str(python),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--require-hashes",
            ]
            done = subprocess.run([*install, "-r", str(LOCK)], capture_output=True, text=True, check=False, timeout=600)
            if done.returncode != 0:
                pytest.fail(f"moto cannot be fetched: {done.stderr.strip()[-500:]}")
            stamp.touch()
    return python


@dataclass(frozen=True, slots=True)
class Login:
    """A user's key, with its secret."""

    key: str
    secret: str


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A running one. ``url``: without a bucket. Its administrator's rights are not asked for."""

    url: str

    def make(self, bucket: str, objects: Sequence[str] = ()) -> None:
        """A bucket, with objects of a few bytes."""
        put: list[Call] = [("s3", "put_object", {"Bucket": bucket, "Key": name, "Body": "theirs"}) for name in objects]
        self._as_admin(("s3", "create_bucket", {"Bucket": bucket}), *put)

    def user(self, name: str, policy: dict[str, Any]) -> Login:
        """Somebody new who may do what the policy says."""
        named = {"UserName": name}
        given = {**named, "PolicyName": "least", "PolicyDocument": json.dumps(policy)}
        *_, made = self._as_admin(
            ("iam", "create_user", named), ("iam", "put_user_policy", given), ("iam", "create_access_key", named)
        )
        return Login(made["ok"]["AccessKeyId"], made["ok"]["SecretAccessKey"])

    def options(self, login: Login) -> dict[str, str]:
        """``[sinks.*.storage_options]`` of a warehouse here."""
        place = {"aws_endpoint_url": self.url, "aws_allow_http": "true", "aws_region": REGION}
        return {**place, "aws_access_key_id": login.key}

    def refused(self, login: Login, *calls: Call) -> list[str | None]:
        """The word of each refusal as this user, None for a call that was let through."""
        return [answer.get("refused") for answer in self._call(login, *calls)]

    def _as_admin(self, *calls: Call) -> list[dict[str, Any]]:
        with self._unasked():
            answers = self._call(Login("admin", "admin"), *calls)
        assert not [answer for answer in answers if "refused" in answer], answers
        return answers

    def _call(self, login: Login, *calls: Call) -> list[dict[str, Any]]:
        client = {
            "endpoint_url": self.url,
            "region_name": REGION,
            "aws_access_key_id": login.key,
            "aws_secret_access_key": login.secret,
        }
        asked = json.dumps({"client": client, "calls": calls})
        done = subprocess.run(
            [moto_python(), "-c", _CALLS], input=asked, capture_output=True, text=True, check=True, timeout=120
        )
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    @contextmanager
    def _unasked(self) -> Iterator[None]:
        """Rights are asked for outside the body alone."""
        self._ask_after("inf")
        yield
        self._ask_after("0")

    def _ask_after(self, count: str) -> None:
        requests.post(f"{self.url}/moto-api/reset-auth", data=count, timeout=10).raise_for_status()


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """Started, and ended with the body."""
    port = free_ports(["moto"])["moto"]
    store = ObjectStore(f"http://127.0.0.1:{port}")
    words = [str(moto_python()), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = Spawned.cold(words, folder / "moto.out", folder / "moto.err", os.environ)
    try:
        wait_until(lambda: _answers(store), 60, lambda: server.stderr)
        yield store
    finally:
        server.kill()


def _answers(store: ObjectStore) -> bool:
    try:
        return requests.get(f"{store.url}/moto-api/data.json", timeout=5).ok
    except requests.ConnectionError:
        return False
