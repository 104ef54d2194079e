"""A pipeline's connector on Kafka Connect: Debezium's rules joined with the log and the source.

Read in this order: :mod:`~connectors.connect.connector` (deploy, diff, status), :mod:`~connectors.connect.topics` and
:mod:`~connectors.connect.connector_epochs` (what it writes to), :mod:`~connectors.connect.places` and
:mod:`~connectors.connect.locate` (which of its records are in the topics: for a handover).
"""
