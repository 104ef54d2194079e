"""Headrace: Postgres changes, in order, in a compacted Kafka topic; stores kept true from it.

This package holds the vocabulary (position, event, envelope, topic, schema, progress), the ports and the
command line. It knows no edge: databases, brokers and stores live in ``connectors``, ``snapshot``, ``sinks``
and ``spark`` and meet in :mod:`cdc.wiring` alone.
"""

__version__ = "0.1.0"
