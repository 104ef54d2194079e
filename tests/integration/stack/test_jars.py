"""Jars: checked against the lock, fetched anew when spoilt, named when they cannot be had. No network: a folder
serves as the repository, through the same setting that names a company's mirror."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cdc.jvm import jars
from cdc.jvm.jars import Coordinate, DownloadError, Jar, JarSet
from cdc.jvm.java import java_home
from cdc.process.errors import ConfigError

_SETTINGS = """
<ivysettings><settings defaultResolver="here"/><resolvers><filesystem name="here" m2compatible="true">
<artifact pattern="{root}/[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"/>
</filesystem></resolvers></ivysettings>
"""

Publish = Callable[..., Jar]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Ivy's settings for a repository in a folder."""
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(_SETTINGS.format(root=tmp_path / "repository"), encoding="utf-8")
    return settings


@pytest.fixture
def publish(tmp_path: Path) -> Publish:
    """Put a small jar into the repository; returns its lock entry."""

    def put(module: str, content: str = "x", classifier: str = "") -> Jar:
        coordinate = Coordinate("org.example", module, "1.0", classifier)
        path = tmp_path / "repository" / "org" / "example" / module / "1.0" / coordinate.file_name
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("content", content)
        data = path.read_bytes()
        return Jar(coordinate, len(data), hashlib.sha256(data).hexdigest())

    return put


def test_a_set_is_fetched_once_and_checked(publish: Publish, repository: Path, tmp_path: Path) -> None:
    one = JarSet("small", (publish("a"), publish("b"), publish("b", "y", "linux-x86_64")))
    seen: list[tuple[str, int, int]] = []
    place = jars.resolve(
        [one], cache=tmp_path / "cache", repository=repository, progress=lambda *now: seen.append(now)
    )["small"]
    assert sorted(path.name for path in place.glob("*.jar")) == ["a-1.0.jar", "b-1.0-linux-x86_64.jar", "b-1.0.jar"]
    assert seen[-1] == ("small", one.size_bytes, one.size_bytes)
    seen.clear()
    assert jars.resolve(
        [one], cache=tmp_path / "cache", repository=repository, progress=lambda *now: seen.append(now)
    ) == {"small": place}
    assert seen == [], "a second run fetches nothing"


@pytest.mark.slow
def test_a_wrong_checksum_is_named_and_nothing_is_installed(publish: Publish, repository: Path, tmp_path: Path) -> None:
    right, wrong = publish("right"), publish("wrong")
    spoilt = JarSet("small", (right, Jar(wrong.coordinate, wrong.size_bytes, "0" * 64)))
    with pytest.raises(DownloadError, match=r"org\.example:wrong:1\.0 arrived with SHA-256 .*, the lock says 0000"):
        jars.resolve([spoilt], cache=tmp_path / "cache", repository=repository)
    assert list((tmp_path / "cache").rglob("set/*.jar")) == []


@pytest.mark.slow
def test_a_jar_that_cannot_be_had_is_named(publish: Publish, repository: Path, tmp_path: Path) -> None:
    missing = Jar(Coordinate("org.example", "absent", "1.0"), 10, "0" * 64)
    with pytest.raises(DownloadError, match=r"org\.example:absent:1\.0 could not be downloaded") as caught:
        jars.resolve([JarSet("small", (publish("a"), missing))], cache=tmp_path / "cache", repository=repository)
    assert "CDC_IVY_SETTINGS" in caught.value.hint


@pytest.mark.slow
def test_a_jar_spoilt_in_the_cache_is_fetched_anew(publish: Publish, repository: Path, tmp_path: Path) -> None:
    one = JarSet("small", (publish("a"),))
    place = jars.resolve([one], cache=tmp_path / "cache", repository=repository)["small"]
    good = (place / "a-1.0.jar").read_bytes()
    (place / "a-1.0.jar").write_bytes(bytes(len(good)))
    jars.resolve([one], cache=tmp_path / "cache", repository=repository)
    assert (place / "a-1.0.jar").read_bytes() == good


def test_h459_jars_in_an_images_layer_are_taken_for_verified(
    publish: Publish, repository: Path, tmp_path: Path
) -> None:
    """A layer is a tar whose times are whole seconds. Nothing can be fetched where it is unpacked."""
    one = JarSet("small", (publish("a"), publish("b")))
    jars.resolve([one], cache=tmp_path / "cache", repository=repository)
    with tarfile.open(tmp_path / "layer.tar", "w", format=tarfile.USTAR_FORMAT) as layer:
        layer.add(tmp_path / "cache", "cache")
    with tarfile.open(tmp_path / "layer.tar") as layer:
        layer.extractall(tmp_path / "image", filter="data")
    place = jars.resolve([one], cache=tmp_path / "image" / "cache", repository=tmp_path / "nowhere.xml")["small"]
    assert len(list(place.glob("*.jar"))) == 2


@pytest.mark.slow
def test_a_second_process_waits_for_the_first(publish: Publish, repository: Path, tmp_path: Path) -> None:
    one = JarSet("small", (publish("a"),))
    results: list[Path] = []
    threads = [
        threading.Thread(
            target=lambda: results.append(jars.resolve([one], cache=tmp_path / "cache", repository=repository)["small"])
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 3
    assert len(set(results)) == 1


def test_the_committed_lock_is_what_the_cache_holds() -> None:
    wanted = [jar_set for name, jar_set in jars.locked().items() if name in jars.ALWAYS]
    for jar_set in wanted:
        place = jars.class_path(jar_set.name)
        for jar in jar_set.jars:
            path = place / jar.coordinate.file_name
            assert hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256, jar.coordinate


def test_a_java_home_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    """As where the cache folder is read-only. Before, it ended as a bug of ours."""
    (tmp_path / "taken").touch()
    with pytest.raises(ConfigError, match=r"the Java that Spark needs cannot be prepared in .*taken: Not a directory"):
        java_home(tmp_path / "taken")


@pytest.mark.slow
def test_y17_spark_s_own_scripts_run_on_the_bundled_java() -> None:
    """They ask for the module jdk.incubator.vector, which the small runtime lacks."""
    asked = subprocess.run([sys.executable, "-m", "cdc.jvm"], capture_output=True, text=True, check=True)
    script = Path(sys.executable).with_name("spark-submit")
    path = f"{script.parent}:{os.environ['PATH']}"
    own = {"JAVA_HOME": asked.stdout.strip(), "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
    said = subprocess.run([script, "--version"], capture_output=True, text=True, check=False, env=own)
    assert (said.returncode, "version 4.1" in said.stderr) == (0, True), said.stderr


def test_java_home_drops_the_module_that_the_runtime_lacks(tmp_path: Path) -> None:
    java = java_home(tmp_path / "java home") / "bin" / "java"
    asked = subprocess.run(
        [java, "--add-modules=jdk.incubator.vector", "-Dx=a b", "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    assert "x = a b" in asked.stderr
