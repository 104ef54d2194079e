"""The image: the jars that it holds, and its driver, which hands them to Spark by what the settings say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdc.jvm.jars import OF_SINKS, locked
from cdc.process.errors import Exit
from tests.unit.sinks.contract.test_spark_parts import TOML, fetched

__all__ = ["fetched"]
IMAGE = Path(__file__).parents[2] / "compose" / "image"
FROM_SPARK = ("driver", "--properties-file", "spark.properties", "--class", "org.apache.spark.deploy.PythonRunner")


def test_h458_the_image_has_the_jars_of_every_sink() -> None:
    assert "jars.spark_jars(*jars.OF_SINKS)" in (IMAGE / "Dockerfile").read_text(encoding="utf-8")
    sizes = {name: round(locked()[name].size_bytes / 1e6) for name in ("spark-kafka", *OF_SINKS)}
    manual = (IMAGE / "README.md").read_text(encoding="utf-8")
    assert [f"{size} MB" in manual for size in sizes.values()] == [True] * len(sizes)
    assert f"the jars {sum(sizes.values())} MB" in manual
    less = round(sum(locked()[name].size_bytes for name in OF_SINKS) / 1e6)
    assert f"for {less} MB less" in manual


def drive(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """``driver.sh`` with a spark-submit that prints its arguments, a line each."""
    programs = folder / "bin"
    programs.mkdir()
    submit = programs / "spark-submit"
    submit.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n", encoding="utf-8")
    submit.chmod(0o755)
    places = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    return subprocess.run(
        ["sh", str(IMAGE / "driver.sh"), *FROM_SPARK, *words],
        env={**os.environ, "PATH": ":".join(places), "SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1"},
        cwd=IMAGE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("names", "sets"), [([], ("spark-kafka", "delta-spark")), (["cache"], ("spark-kafka",))])
def test_h458_the_images_driver_hands_over_what_its_sinks_need(
    fetched: Path, names: list[str], sets: tuple[str, ...]
) -> None:
    config = fetched / "cdc.toml"
    config.write_text(TOML, encoding="utf-8")
    words = ("local:///opt/headrace/sink.py", "--config", str(config), *names)
    done = drive(fetched, *words)
    assert done.returncode == 0, done.stderr
    given = done.stdout.splitlines()
    jars = given[given.index("--jars") + 1].split(",")
    root = fetched / "cache" / "headrace" / "jars"
    wanted = {
        f"local://{root}/{name}-{locked()[name].digest}/{jar.coordinate.file_name}"
        for name in sets
        for jar in locked()[name].jars
    }
    assert set(jars) == wanted and len(jars) == len(wanted)
    assert given[-len(FROM_SPARK) - len(words) + 1 :] == [*FROM_SPARK[1:], *words]


def test_h458_a_driver_whose_settings_are_wrong_submits_nothing(fetched: Path) -> None:
    config = fetched / "cdc.toml"
    config.write_text(TOML.replace('"delta"', '"dleta"'), encoding="utf-8")
    done = drive(fetched, "local:///opt/headrace/sink.py", "--config", str(config))
    assert (done.returncode, done.stdout) == (Exit.CONFIG, "")
    assert "hint: " in done.stderr and "Traceback" not in done.stderr
