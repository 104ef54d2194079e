"""Names of tables, indexes and fields as each store takes them: escaped, so that different names stay different.

Executors read them too, so this loads no model of the settings.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from urllib.parse import quote

from cdc.record.topic_names import TableName
from cdc.wire.plain import escape_key

_EMPTY_ID = "%empty"
"""Of the key that is an empty text, which is no ``_id``. No text of a key stands so: its percent signs are ``%25``."""

_INDEX_REFUSED = re.compile(rb"[^a-z0-9_-]")
_FOLDER_REFUSED = re.compile(rb"[^A-Za-z0-9_-]")
_COLUMN_REFUSED = re.compile(r"[ ,;{}()\n\t=%.\"`\\/]")
_FIELD_RESERVED = frozenset(
    (
        "_id",
        "_index",
        "_source",
        "_routing",
        "_type",
        "_version",
        "_seq_no",
        "_primary_term",
        "_ignored",
        "_tier",
        "_field_names",
        "_nested_path",
        "_size",
        "_doc_count",
        "_data_stream_timestamp",
        "_score",
        "_uid",
        "_all",
        "_parent",
        "_timestamp",
        "_ttl",
        "_feature",
        "_pos",
        "_deleted",
        "_deleted_at",
        "_key",
        "_text",
    )
)
_INDEX_BYTES = 200
"""Above this an alias is shortened. An index name, with its generation, has at most 255 bytes."""


def cache_table(table: TableName) -> str:
    """A table's part of a cache key: ``schema.table``, with ``%``, ``:`` and the dots of either percent-encoded.

    >>> cache_table(TableName("public", "a:b.c"))
    'public.a%3Ab%2Ec'
    """
    return ".".join(escape_key(part).replace(".", "%2E") for part in table)


def cache_fill(name: str, generation: int, table: TableName, key: str) -> str:
    """The cache key of a row that a reader had from Postgres, beside the sink's own.

    >>> cache_fill("shop", 1, TableName("public", "orders"), "42")
    'shop:_fill:1:public.orders:42'
    """
    return f"{name}:_fill:{generation}:{cache_table(table)}:{key}"


def index_part(text: str) -> str:
    """A part of an index name: every byte outside ``[a-z0-9_-]`` as ``=xx``. A dot only parts schema and table.

    >>> index_part("Orders"), index_part("orders")
    ('=4frders', 'orders')
    """
    return _INDEX_REFUSED.sub(_equals_hex, text.encode()).decode()


def index_alias(prefix: str, table: TableName) -> str:
    """The alias that readers of a table use.

    >>> index_alias("shop", TableName("public", "order items"))
    'shop-public.order=20items'
    """
    alias = f"{index_prefix(prefix)}-{index_part(table.schema)}.{index_part(table.table)}"
    if len(alias) <= _INDEX_BYTES:
        return alias
    return f"{alias[: _INDEX_BYTES - 33]}={hashlib.sha256(alias.encode()).hexdigest()[:32]}"


def index_prefix(prefix: str) -> str:
    """The prefix of every index of a sink, escaped. No index may begin with a dot or a dash."""
    escaped = re.sub(rb"[^a-z0-9._-]", _equals_hex, prefix.encode()).decode()
    return re.sub(r"^[-_.]", lambda found: f"={ord(found[0]):02x}", escaped)


def document_id(key: str) -> str:
    """The ``_id`` of a store key: itself, and a word for an empty one. No key is longer than OpenSearch takes."""
    return key or _EMPTY_ID


def folder(text: str) -> str:
    """A folder's name: every byte outside ``[A-Za-z0-9_-]`` as ``=xx``, and a leading underscore, which is ours.

    >>> folder("Order items"), folder("_watermark")
    ('Order=20items', '=5fwatermark')
    """
    escaped = _FOLDER_REFUSED.sub(_equals_hex, text.encode()).decode()
    return f"=5f{escaped[1:]}" if escaped.startswith("_") else escaped


def field_names(columns: Iterable[str]) -> dict[str, str]:
    """Column -> field of a search document. A name is changed only where the index would read it otherwise.

    >>> field_names(["id", "a.b", "_id", "50%"])
    {'id': 'id', 'a.b': 'a%2Eb', '_id': '%5Fid', '50%': '50%25'}
    """
    return {name: _field(name) for name in columns}


def column_names(columns: Iterable[str], reserved: Iterable[str]) -> dict[str, str]:
    """Column -> column of a warehouse table.

    Characters that Delta or Parquet readers refuse are percent-encoded. Names that differ in case alone, or are
    reserved, get the source's name in hex as an ending, because most warehouses read ``Id`` and ``id`` as one.

    >>> column_names(["id", "Id", "a b", "_pos"], ["_pos"])
    {'id': 'id', 'Id': 'Id_4964', 'a b': 'a%20b', '_pos': '_pos_5f706f73'}
    """
    columns = list(columns)
    folded = [name.lower() for name in columns]
    taken = {name.lower() for name in reserved}
    names = {}
    for name in columns:
        lower = name.lower()
        ambiguous = folded.count(lower) > 1 and name != lower
        unique = f"{name}_{name.encode().hex()}" if ambiguous or lower in taken else name
        names[name] = _COLUMN_REFUSED.sub(_percent_hex, unique)
    return names


def _field(name: str) -> str:
    text = name.replace("%", "%25").replace(".", "%2E")
    if name in _FIELD_RESERVED:
        return f"%5F{text[1:]}"
    return text if text.strip() else quote(text)


def _equals_hex(found: re.Match[bytes]) -> bytes:
    return b"=%02x" % found[0][0]


def _percent_hex(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"


COLUMNS = "columns"
"""In a property: the columns that a field of the user's own is made of."""
GEO_POINT, KNN = "geo_point", "knn_vector"
