"""The class data archive that Spark starts with: made once, used where it fits, and never in anybody's way."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pyspark
import pytest
from rich.console import Console

from cdc.jvm.java import ARCHIVE, ArchiveError, archived, java_executable, java_home, make_archive
from cdc.wiring.sinks import prepare_spark

JARS = Path(pyspark.__file__).parent / "jars"
SLF4J = next(JARS.glob("slf4j-api-*.jar"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return java_home(tmp_path / "java home")


def started(home: Path, *arguments: str) -> str:
    """What the java of a home says, on both outputs."""
    done = subprocess.run(
        [home / "bin" / "java", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def shortest(options: Sequence[str]) -> None:
    """A training that knows one class path and nearly no class."""
    subprocess.run([java_executable(), *options, "-cp", f"{JARS}/*", "-version"], check=True, capture_output=True)


def class_path(home: Path, given: str) -> list[str]:
    said = started(home, "-cp", given, "-XshowSettings:properties", "-version")
    lines = said.split("java.class.path = ")[1].split("java.class.version")[0]
    return [line.strip() for line in lines.splitlines() if line.strip()]


@pytest.mark.slow
def test_spark_reads_its_classes_from_the_archive() -> None:
    prepare_spark(Console(quiet=True))
    assert archived(JARS)
    words = ["-Xlog:class+load", "-cp", f"{JARS.parent}/conf:{SLF4J}:{JARS}/*"]
    said = started(java_home(), *words, "org.apache.spark.deploy.SparkSubmit", "--version")
    assert "org.apache.spark.deploy.SparkSubmit source: shared objects file (top)" in said


def test_a_class_path_without_a_settings_folder_is_its_jars(home: Path, tmp_path: Path) -> None:
    jars = {str(jar) for jar in JARS.glob("*.jar")}
    found = class_path(home, f"{tmp_path}/no conf:{SLF4J}:{JARS}/*")
    assert len(found) == len(jars)
    assert set(found) == jars


@pytest.mark.parametrize("given", ["{here}:{slf4j}:{jars}/*", "{here}/none:{slf4j}:{here}/my.jar:{jars}/*", "{here}"])
def test_a_class_path_with_the_users_jars_is_left_as_it_is(home: Path, tmp_path: Path, given: str) -> None:
    text = given.format(here=tmp_path, slf4j=SLF4J, jars=JARS)
    found = class_path(home, text)
    first = text.removesuffix(f":{JARS}/*").split(":")
    assert found[: len(first)] == first


@pytest.mark.slow
def test_an_archive_is_made_once_and_anew_when_a_jar_changed(home: Path, tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "a.jar").write_bytes(b"one")
    runs: list[Sequence[str]] = []

    def train(options: Sequence[str]) -> None:
        runs.append(options)
        shortest(options)

    for _ in range(2):
        make_archive(jars, train, home)
        assert archived(jars, home)
    assert len(runs) == 1
    (jars / "a.jar").write_bytes(b"another")
    assert not archived(jars, home)
    make_archive(jars, train, home)
    assert len(runs) == 2


@pytest.mark.slow
def test_a_training_that_fails_leaves_a_java_that_starts(home: Path) -> None:
    with pytest.raises(ArchiveError, match="left none"):
        make_archive(JARS, lambda options: None, home)
    assert not archived(JARS, home)
    assert not (home / ARCHIVE).exists()
    assert "Runtime" in started(home, "-version")


@pytest.mark.slow
def test_an_archive_that_does_not_fit_is_left_aside_in_silence(home: Path, tmp_path: Path) -> None:
    before = started(home, "-version").replace(", sharing", "")
    make_archive(JARS, shortest, home)
    assert started(home, "-cp", str(tmp_path), "-version").replace(", sharing", "") == before
    (home / ARCHIVE).chmod(0o644)
    (home / ARCHIVE).write_bytes(b"cut short")
    assert started(home, "-version").replace(", sharing", "") == before


@pytest.mark.slow
def test_homes_of_a_java_that_is_gone_are_removed(home: Path) -> None:
    gone = home.parent / "gone"
    gone.mkdir()
    (gone / "lib").symlink_to(home / "no such runtime")
    make_archive(JARS, shortest, home)
    assert not gone.exists()
    assert home.exists()
