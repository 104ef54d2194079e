"""Debezium as the other front door: its configuration, and Kafka Connect's REST API.

Read in this order: :mod:`~connectors.debezium.connector_config` (the wanted configuration, pure; one module per
database beside it), :mod:`~connectors.debezium.client` (REST). :mod:`connectors.connect` joins it with the log and the
source. How its records are read stands in :mod:`cdc.wire.debezium`, where the sinks can reach it.
"""
