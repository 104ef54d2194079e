"""A pipeline's connector on Kafka Connect: Debezium's rules joined with the log and the source.

Read in this order: :mod:`~connectors.connect.connector` (deploy, resnapshot, status), :mod:`~connectors.connect.topics`
(what it writes to), :mod:`~connectors.connect.new_log` (a new snapshot) and :mod:`~connectors.operate.handover` (the
native capture goes on).
"""
