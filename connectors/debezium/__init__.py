"""Debezium as the other front door: one connector a pipeline, on Kafka Connect.

Read in this order: :mod:`~connectors.debezium.config` (the wanted configuration, pure; what is of one database in
:mod:`~connectors.debezium.databases`), :mod:`~connectors.debezium.client` (REST), :mod:`~connectors.debezium.connector`
(deploy and the other commands) and :mod:`~connectors.debezium.new_log` (a new snapshot). How its records are read
stands in :mod:`cdc.wire.debezium`, where the sinks can reach it, and how the native capture goes on in
:mod:`connectors.operate.handover`.
"""
