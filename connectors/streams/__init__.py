"""Streams on Kafka: their topics, the transaction of a batch, and what the commands do."""
