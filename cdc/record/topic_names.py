"""Names of topics and the partition of a key.

A topic per table is ``<name>.<schema>.<table>``. Characters Kafka does not take become ``_`` as in Debezium,
so two tables can collide: :func:`collisions` finds them before anything is made.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

_REFUSED = re.compile(r"[^a-zA-Z0-9._-]")
VIEW_SCHEMA, STREAM_SCHEMA = "view", "stream"
"""The schemas that the table names of views and streams have: ``view.order_search``. No captured table has one."""
_NAME_BYTES = 249
"""Kafka's longest topic name."""


class TableName(NamedTuple):
    """A table by schema and name, exactly as the catalog has them.

    >>> str(TableName("public", "orders"))
    'public.orders'
    """

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


def table_topic(name: str, table: TableName) -> str:
    """The topic of a table.

    >>> table_topic("shop", TableName("public", "order items"))
    'shop.public.order_items'
    """
    return _REFUSED.sub("_", f"{name}.{table.schema}.{table.table}")


def schema_topic(name: str) -> str:
    """The topic of a pipeline's table shapes."""
    return f"{name}.schema"


def state_topic(name: str) -> str:
    """The topic of a pipeline's state. A table's topic has one more dot."""
    return f"{name}.state"


def progress_topic(name: str) -> str:
    """The topic of a pipeline's progress records. It has one writer: a second one shows by the offsets."""
    return f"{name}.progress"


def dead_topic(name: str) -> str:
    """The topic of a pipeline's dead letters."""
    return f"{name}.dead"


def history_topic(topic: str) -> str:
    """The topic that keeps each change of a table, by the table's own topic."""
    return f"{topic}.history"


def views_topic(name: str) -> str:
    """The topic of what is known of a pipeline's views: their generations, shapes and progress."""
    return f"{name}.views"


def view_topic(name: str, view: str, generation: int) -> str:
    """The topic of one generation of a view."""
    return f"{name}.view.{view}.{generation}"


def stream_topic(name: str, stream: str, generation: int) -> str:
    """The topic of one generation of a stream."""
    return f"{name}.stream.{stream}.{generation}"


def set_apart_topic(name: str, stream: str) -> str:
    """The topic of the events that a stream does not count."""
    return f"{name}.stream.{stream}.late"


def reserved_topics(name: str) -> frozenset[str]:
    """Topics of the pipeline itself. A table whose topic is one of these is refused."""
    own = (schema_topic(name), state_topic(name), progress_topic(name), dead_topic(name), views_topic(name))
    return frozenset({*own, f"{name}.message"})


def collisions(name: str, topics: Iterable[tuple[TableName, str]]) -> list[str]:
    """One sentence per topic that two tables (or a table and the pipeline) would share, or that Kafka refuses."""
    users: dict[str, list[str]] = defaultdict(list)
    for table, topic in topics:
        users[topic].append(str(table))
    found = []
    for topic, tables in sorted(users.items()):
        if len(tables) > 1:
            found.append(f"the tables {' and '.join(sorted(tables))} would share the topic {topic}")
        if topic in reserved_topics(name):
            found.append(f"the table {tables[0]} would use the reserved topic {topic}")
        if len(topic) > _NAME_BYTES:
            found.append(f"the topic of {tables[0]} would be longer than {_NAME_BYTES} characters")
    return found


def murmur2(data: bytes) -> int:
    """Kafka's own murmur2 (32 bit, seed 0x9747b28c), as ``org.apache.kafka.common.utils.Utils`` has it.

    For tests and small counts. The producing path uses confluent-kafka's C version of the same.

    >>> murmur2(b"21")  # UtilsTest.testMurmur2: -973932308
    3321034988
    """
    mask, mix, length = 0xFFFFFFFF, 0x5BD1E995, len(data)
    h = (0x9747B28C ^ length) & mask
    for i in range(0, length - 3, 4):
        k = int.from_bytes(data[i : i + 4], "little") * mix & mask
        k = (k ^ k >> 24) * mix & mask
        h = (h * mix & mask) ^ k
    rest = data[length & ~3 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * mix & mask
    h = (h ^ h >> 13) * mix & mask
    return h ^ h >> 15


def partition_of(key: bytes, partition_count: int) -> int:
    """Java's default partition for a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


IN_QUOTES = re.compile(r'"((?:[^"]|"")+)"\."((?:[^"]|"")+)"')
"""``"schema"."table"`` with double quotes around names that hold a dot or a star. Those within are doubled."""


def starred(text: str) -> re.Pattern[str]:
    """An expression for a whole name, ``*`` being any characters.

    Each part but the last is found where it stands first, and nowhere else: the time is linear in the name.

    >>> bool(starred("public.*_log").fullmatch("public.web_log_log"))
    True
    """
    first, *parts = [re.escape(part) for part in text.split("*")]
    middle = "".join(f"(?>.*?{part})" for part in parts[:-1] if part)
    return re.compile(first + middle + "".join(f".*{part}" for part in parts[-1:]), re.DOTALL)
