"""Debezium's own records as events of ours: pure, for readers of topics that Debezium writes.

Read in this order: :mod:`~cdc.wire.debezium.reading` (a record of any form to a change),
:mod:`~cdc.wire.debezium.wrapped` and :mod:`~cdc.wire.debezium.connect_types` (its table and types, from the embedded
schema), :mod:`~cdc.wire.debezium.reading` (documents).
"""
