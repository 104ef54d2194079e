"""Cases and tables of the golden scripts that are not replayed, and why."""

from __future__ import annotations

LEFT_OUT: dict[str, str] = {
    "sh_column_filters": "column exclusion and masks are not among our options",
    "sh_time_connect": "time.precision.mode=connect is not among our options",
    "sh_transaction_metadata": "a transaction topic is not among our options",
    "sh_partitions_leaf": "we publish partitions by their root",
    "sh_messages": "logical messages are decoded and not written",
}
"""Cases whose options we have not."""

REFUSED_TABLES: dict[str, str] = {
    "sh_nokey.nk_none": "D11: no key",
    "sh_nokey.nk_two": "D10: only unique indexes, none of them the identity",
    "sh_nokey.nk_nullable": "D10: a nullable unique index is no key",
    "sh_nokey.nk_insert_only": "D11: no key",
    "sh_replica_identity.ri_nothing": "REPLICA IDENTITY NOTHING: updates would fail",
}
"""Tables of the cases that ``check`` and ``init`` refuse."""
