"""MongoDB's documents: JSON strings in the envelope, ids of any type, and updates that are patches.

Format: Debezium's connector for MongoDB (3.x) writes ``after`` as a string of extended JSON in strict mode, the key
as ``{"id": "<extended JSON>"}`` and, where the whole document is not looked up, ``updateDescription``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from cdc.debezium.shape import EMBEDDED_VERSIONS
from cdc.schema import Column, Identity, TableSchema
from cdc.topic import TableName

ID, DOCUMENT = "id", "document"


def collection_schema(table: TableName, topic: str) -> TableSchema:
    """A collection as a table: the document's id as text, and the document."""
    return TableSchema(
        table=table,
        topic=topic,
        version=EMBEDDED_VERSIONS,
        oid=0,
        encoding="readable",
        identity=Identity.DEFAULT,
        columns=(
            Column(name=ID, attnum=1, type="text", type_oid=0, kind="text", nullable=False, key_position=1),
            Column(name=DOCUMENT, attnum=2, type="jsonb", type_oid=0, kind="jsonb"),
        ),
    )


def id_text(key: Mapping[str, Any]) -> str:
    """The id of a key, as text: what an ObjectId, a string or a number holds, the JSON of anything else.

    >>> id_text({"id": '{"$oid": "596e275826f08b2730779e1f"}'}), id_text({"id": '"a"'}), id_text({"id": "1004"})
    ('596e275826f08b2730779e1f', 'a', '1004')
    >>> id_text({"id": '{"$numberLong": "7"}'}), id_text({"id": '{"a":1}'})
    ('7', '{"a":1}')
    """
    text = key[ID]
    value = orjson.loads(text)
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and len(value) == 1:
        ((kind, inner),) = value.items()
        if kind in ("$oid", "$numberLong", "$numberInt", "$numberDecimal", "$uuid") and isinstance(inner, str):
            return inner
    return str(text)


def apply_patch(document: str, patch: Mapping[str, Any]) -> str:
    """A document after an ``updateDescription``: fields removed, arrays cut, then fields set, by dotted paths.

    ValueError where the document has no such place, which means that it is not the one that was patched.

    >>> apply_patch('{"a":{"b":[1,2,3]},"c":1}', {"removedFields": ["c"], "updatedFields": '{"a.b.1":9,"d":{"e":1}}'})
    '{"a":{"b":[1,9,3]},"d":{"e":1}}'
    """
    root = orjson.loads(document)
    for path in patch.get("removedFields") or ():
        holder, last = _place(root, path)
        if isinstance(holder, dict):
            holder.pop(last, None)
        else:
            raise ValueError(f"the document has no {path}")
    for cut in patch.get("truncatedArrays") or ():
        holder, last = _place(root, cut["field"])
        array = holder[int(last)] if isinstance(holder, list) else holder.get(last)
        if not isinstance(array, list):
            raise ValueError(f"the document has no array {cut['field']}")
        del array[int(cut["size"]) :]
    for path, value in orjson.loads(patch.get("updatedFields") or "{}").items():
        holder, last = _place(root, path)
        _set(holder, last, value, path)
    return orjson.dumps(root).decode()


def _place(root: Any, path: str) -> tuple[Any, str]:
    *parts, last = path.split(".")
    holder = root
    for part in parts:
        try:
            holder = holder[int(part)] if isinstance(holder, list) else holder[part]
        except (KeyError, IndexError, TypeError, ValueError):
            raise ValueError(f"the document has no {path}") from None
    if not isinstance(holder, dict | list):
        raise ValueError(f"the document has no {path}")
    return holder, last


def _set(holder: Any, last: str, value: Any, path: str) -> None:
    if isinstance(holder, dict):
        holder[last] = value
        return
    place = int(last)
    if place > len(holder):
        raise ValueError(f"the document has no {path}")
    if place == len(holder):
        holder.append(value)
    else:
        holder[place] = value
