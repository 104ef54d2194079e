"""The record on the wire: what a topic of a table holds, written and read. Pure.

:mod:`~cdc.wire.format` has every name of a record, and nobody else spells them.
:mod:`~cdc.wire.envelope` writes what stands around a row and :mod:`~cdc.wire.envelope` finds the row again.
:mod:`~cdc.wire.records` writes and reads records about a whole table.
:mod:`~cdc.wire.plain` turns a row into plain values and its key into a store's key, :mod:`~cdc.wire.canonical` into
the text that ``verify`` compares, :mod:`~cdc.wire.events` into a line for a person. :mod:`~cdc.wire.records` is how a
reader of the log hands records over, :mod:`~cdc.wire.debezium` reads what Debezium writes.
"""
