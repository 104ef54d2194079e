"""From Kafka's rows to events of tables."""
