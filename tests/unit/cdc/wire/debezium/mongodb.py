"""MongoDB's records as Debezium documents them, and as its connector makes them.

Sources: ``documentation/modules/ROOT/pages/connectors/mongodb.adoc``, "Data change events" (the customers, the
update's members, extended JSON by ``json.serialization.mode``); ``MongoDbCollectionSchema.java`` (an update's
``updateDescription`` beside ``after`` and ``before``, each null where the capture mode leaves it out; no
``updateDescription`` on a replace);
``MongoDbSourceInfoStructMaker.java`` and ``SourceInfo.timestamp`` (``ts_ms`` is ``wallTime`` where there is one).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from cdc.record.topic_names import TableName
from cdc.wire.debezium.reading import collection_schema

TOPIC = "fulfillment.inventory.customers"
CUSTOMERS = collection_schema(TableName("inventory", "customers"), TOPIC)

ID = "596e275826f08b2730779e1f"
CREATED = '{"_id" : {"$oid" : "596e275826f08b2730779e1f"},"first_name" : "Anne","email" : "annek@noanswer.org"}'

ANNE = '{"_id": {"$numberLong": "1004"},"first_name": "unknown","last_name": "Kretchmar","email": "annek@noanswer.org"}'
ANNE_MARIE = (
    '{"_id": {"$numberLong": "1004"},"first_name": "Anne Marie","last_name": "Kretchmar","email": "annek@noanswer.org"}'
)
RENAMED = {"removedFields": None, "updatedFields": '{"first_name": "Anne Marie"}', "truncatedArrays": None}
"""The update of the manual: from :data:`ANNE` to :data:`ANNE_MARIE`."""


def key(text: str = f'{{"$oid": "{ID}"}}') -> bytes:
    """A record's key, without an embedded schema."""
    return orjson.dumps({"id": text})


def envelope(
    op: str,
    *,
    after: str | None = None,
    before: str | None = None,
    patch: Mapping[str, Any] | None = None,
    wall_ms: int = 1558965508123,
    increment: int = 1,
    snapshot: str = "false",
) -> bytes:
    """A record's value, without an embedded schema; members in the connector's order."""
    source = {
        "version": "3.7.0.Final",
        "connector": "mongodb",
        "name": "fulfillment",
        "ts_ms": wall_ms,
        "snapshot": snapshot,
        "db": "inventory",
        "sequence": None,
        "ts_us": wall_ms * 1000,
        "ts_ns": wall_ms * 1_000_000,
        "collection": "customers",
        "ord": increment,
        "lsid": None,
        "txnNumber": None,
        "wallTime": None if snapshot != "false" else wall_ms,
    }
    members = {"before": before, "after": after, "updateDescription": patch, "source": source, "op": op}
    return orjson.dumps({**members, "ts_ms": wall_ms + 53, "transaction": None})
