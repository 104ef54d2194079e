"""Kafka as the log: producer, compacted topics, administration."""
