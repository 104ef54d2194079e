"""Spark's own memory of a query: a folder per run, and what it says of a batch's offsets.

The store's watermark is the truth. A checkpoint serves one run of a query, which starts from the watermark. So
a store that was restored, flushed or dropped gets what it lacks, no batch is skipped by its number, and
a checkpoint that was lost or copied from elsewhere changes nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson
from pyspark.sql import SparkSession

from cdc.process.errors import ConfigError, SinkError
from cdc.record.progress import Offsets


class Folder(Protocol):
    """Where checkpoints stand: a local folder, or one that Hadoop's file systems reach."""

    def fresh(self, query: str) -> str:
        """A new, empty place for one run of a query. Those of its earlier runs are removed."""

    def read(self, place: str, name: str) -> str:
        """A small file below ``place``. FileNotFoundError when there is none."""


def open_folder(root: str, session: SparkSession) -> Folder:
    """``root``: a path, or a URL of a file system that Spark knows."""
    scheme = urlsplit(root).scheme
    if scheme in ("", "file"):
        return LocalFolder(Path(urlsplit(root).path if scheme else root).absolute())
    return HadoopFolder(root, session)


class LocalFolder:
    """Checkpoints on this machine. Implements :class:`Folder`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def fresh(self, query: str) -> str:
        home = self._root / query
        try:
            earlier = sorted(int(p.name) for p in home.iterdir() if p.name.isdigit()) if home.is_dir() else []
            place = home / str(earlier[-1] + 1 if earlier else 1)
            place.mkdir(parents=True)
            for number in earlier:
                shutil.rmtree(home / str(number), ignore_errors=True)
        except OSError as error:
            raise ConfigError(
                f"the checkpoint folder {home} cannot be written: {error.strerror}", hint="see [spark] checkpoint"
            ) from None
        return str(place)

    def read(self, place: str, name: str) -> str:
        return (Path(place) / name).read_text(encoding="utf-8")


class HadoopFolder:
    """Checkpoints on a shared or remote file system, reached through the driver's JVM. Implements :class:`Folder`."""

    def __init__(self, root: str, session: SparkSession) -> None:
        self._root = root.rstrip("/")
        self._session = session

    def fresh(self, query: str) -> str:
        home = f"{self._root}/{query}"
        system, path = self._open(home)
        system.mkdirs(path)
        names = [status.getPath().getName() for status in system.listStatus(path)]
        earlier = sorted(int(name) for name in names if name.isdigit())
        place = f"{home}/{earlier[-1] + 1 if earlier else 1}"
        for number in earlier:
            old_system, old = self._open(f"{home}/{number}")
            old_system.delete(old, True)
        return place

    def read(self, place: str, name: str) -> str:
        system, path = self._open(f"{place}/{name}")
        if not system.exists(path):
            raise FileNotFoundError(f"{place}/{name}")
        stream = system.open(path)
        try:
            return str(self._jvm().org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _open(self, place: str) -> tuple[Any, Any]:
        path = self._jvm().org.apache.hadoop.fs.Path(place)
        configuration = self._session.sparkContext._jsc.hadoopConfiguration()
        return path.getFileSystem(configuration), path

    def _jvm(self) -> Any:
        return self._session.sparkContext._jvm


def batch_offsets(folder: Folder, place: str, batch_id: int) -> Offsets:
    """The end of a planned batch, as Spark wrote it down before the batch began.

    Raises SinkError when the checkpoint has lost it. It is never counted from records, because compaction and
    transactions leave gaps.
    """
    name = f"offsets/{batch_id}"
    try:
        text = folder.read(place, name)
    except FileNotFoundError:
        raise SinkError(f"the checkpoint {place} has lost {name}", hint="it is made anew at the next start") from None
    return parse_offsets(text)


def parse_offsets(text: str) -> Offsets:
    """An entry of Spark's offset log: a version line, a line of metadata, a line per source, ``-`` for one that has
    said nothing yet. Each topic is of one source.

    Raises ValueError for a text without the version line.

    >>> parse_offsets('v1\\n{"batchWatermarkMs":0}\\n{"shop.public.a":{"0":7}}\\n-\\n{"shop.public.b":{"0":8}}')
    {'shop.public.a': {0: 7}, 'shop.public.b': {0: 8}}
    """
    version, _metadata, *sources = text.strip().split("\n")
    if not version.startswith("v"):
        raise ValueError(f"not an offset log: {version!r}")
    found = [orjson.loads(source) for source in sources if source != "-"]
    return {topic: {int(p): n for p, n in parts.items()} for one in found for topic, parts in one.items()}
