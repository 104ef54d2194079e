"""Makes what Spark starts faster with. :mod:`cdc.jvm.archive` says what that is."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console


def prepare_spark(console: Console) -> None:
    """Once for each environment, half a minute. Silent where it was done, and where there is no Spark.

    See :func:`cdc.jvm.archive.prepare`.
    """
    try:
        import pyspark

        from cdc.jvm.archive import archived, prepare
        from cdc.jvm.jars import spark_jars
        from cdc.jvm.java import java_home
        from spark.session.session_warmup import train
        from spark.session.spark_session import SessionSpec
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
            jars=spark_jars(),
            java_home=java_home(),
        )
        prepare(jars, partial(train, spec), console)
