"""Debezium's own records as events of ours: pure, for whoever reads topics that Debezium writes.

Read in this order: :mod:`~cdc.debezium.read` (a record of any form to a change), :mod:`~cdc.debezium.order` (its
place in the order), :mod:`~cdc.debezium.shape` and :mod:`~cdc.debezium.types` (its table and types, from the
embedded schema), :mod:`~cdc.debezium.mongodb` (documents) and :mod:`~cdc.debezium.patch` (what changed in one).
"""
