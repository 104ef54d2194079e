"""Manifests as ``kubectl kustomize`` makes them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

OLDEST = 5
"""Of kustomize: what the files are written in."""


def rendered(folder: Path) -> list[dict[str, Any]]:
    """The documents of a folder's kustomization. Skips the test where there is no kubectl of today. A folder that
    kustomize refuses is an AssertionError with its words."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl on this machine, whose kustomize makes the manifests")
    told = subprocess.run([kubectl, "version", "--client", "-o", "json"], capture_output=True, text=True, check=True)
    version = json.loads(told.stdout).get("kustomizeVersion", "v0")
    if int(version.removeprefix("v").split(".")[0]) < OLDEST:
        pytest.skip(f"kubectl has kustomize {version}, and the files want v{OLDEST}")
    done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return list(yaml.safe_load_all(done.stdout))
