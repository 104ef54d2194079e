"""A stream's checkpoint beside its topic: the state is of use only where both stand at the same batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cdc.process.errors import TopicError
from cdc.views.known_views import BatchNote
from spark.frames.ports import EventTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def checkpoint_folder(root: str, stream: str, generation: int) -> str:
    """The folder of one generation's query. ``root``: of ``[spark] checkpoint``."""
    scheme = urlsplit(root).scheme
    home = root.rstrip("/") if scheme not in ("", "file") else str(Path(urlsplit(root).path).absolute())
    return f"{home}/stream.{stream}.{generation}"


def planned_batches(session: SparkSession, folder: str) -> set[int]:
    """The batches that a checkpoint still says it has planned."""
    files, path = _place(session, f"{folder}/offsets")
    if not files.exists(path):
        return set()
    names = [one.getPath().getName() for one in files.listStatus(path)]
    return {int(name) for name in names if name.isdigit()}


def remove_checkpoint(session: SparkSession, folder: str) -> bool:
    """Remove a checkpoint. Returns whether there was one."""
    files, path = _place(session, folder)
    return bool(files.delete(path, True))


def _place(session: SparkSession, folder: str) -> tuple[Any, Any]:
    """A file system of Hadoop's, and the path in it."""
    jvm: Any = session._jvm
    path = jvm.org.apache.hadoop.fs.Path(folder)
    return path.getFileSystem(session._jsc.hadoopConfiguration()), path


def is_sound(last: BatchNote | None, planned: Collection[int]) -> bool:
    """Whether a checkpoint may go on: its newest batch is the topic's, or the next one, and it has the topic's. A query
    whose checkpoint was removed writes the next one alone.

    >>> is_sound(None, []), is_sound(None, [0]), is_sound(None, [0, 1]), is_sound(BatchNote(batch=4, cuts=[]), [5])
    (True, True, False, False)
    """
    newest = max(planned, default=-1)
    return newest in (0, -1) if last is None else last.batch in planned and newest - last.batch in (0, 1)


def require_whole(stream: str, topics: Iterable[EventTopic]) -> None:
    """TopicError where retention has cut a topic: what was counted of it cannot be counted again."""
    for topic in topics:
        if any(topic.starts.values()):
            raise TopicError(
                f"the stream {stream} cannot be computed anew: {topic.topic} no longer holds its beginning",
                hint="its figures stay as they were published; a longer keep of the topic lets later ones be compared",
            )


def require_rows(stream: str, topics: Iterable[EventTopic]) -> None:
    """TopicError where a new generation would lack rows that were published, as retention has cut a topic."""
    for topic in topics:
        if any(topic.starts.values()):
            raise TopicError(
                f"{topic.topic} no longer holds its beginning: a new generation of the stream {stream} lacks what was "
                "counted of it, and stores delete those rows",
                hint=f"copy them from a store if you need them; cdc stream rebuild {stream} --yes begins all the same",
            )


def require_beginning(stream: str, topics: Iterable[EventTopic]) -> None:
    """TopicError where retention has cut a topic: a new generation would count less than the one before."""
    for topic in topics:
        cut = [partition for partition, first in topic.starts.items() if first > 0]
        if cut:
            raise TopicError(
                f"the checkpoint of the stream {stream} is lost, and {topic.topic} no longer holds its beginning: "
                "windows would be counted anew with less in them",
                hint=f"put the checkpoint of the newest batch back; cdc stream rebuild {stream} --yes begins with what "
                "is there, and stores delete the rows of before",
            )
