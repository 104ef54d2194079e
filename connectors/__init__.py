"""The edges: Postgres, Kafka and Debezium."""
