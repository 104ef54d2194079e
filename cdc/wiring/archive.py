"""Makes what Spark starts faster with; :mod:`cdc.jvm.archive` says what that is."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from cdc.errors import CdcError


def prepare_spark(console: Console) -> None:
    """Once for each environment, half a minute; silent where it was done, and where there is no Spark.

    Without it Spark only starts slower, so what goes wrong is told and no error.
    """
    try:
        import pyspark

        from cdc.jvm.archive import ArchiveError, archived, make_archive
        from cdc.jvm.jars import class_path
        from cdc.jvm.java import java_home
        from spark.session import SessionSpec
        from spark.training import train
    except ImportError:
        return
    jars = Path(pyspark.__file__).parent / "jars"
    if archived(jars):
        return
    with TemporaryDirectory(prefix="headrace-") as folder:
        spec = SessionSpec(
            name="training",
            master="local[2]",
            driver_memory="1g",
            log_folder=Path(folder),
            jars=tuple(sorted(class_path("spark-kafka").glob("*.jar"))),
            java_home=java_home(),
        )
        try:
            with console.status("preparing Spark: once, about half a minute"):
                make_archive(jars, partial(train, spec))
        except (ArchiveError, CdcError, OSError) as error:
            console.print(f"Spark could not be prepared, and starts slower: {error}", highlight=False, soft_wrap=True)
        else:
            console.print("Spark is prepared: it starts in half the time", highlight=False)
