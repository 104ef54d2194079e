"""The local stack without Docker: Postgres, Kafka, Valkey and OpenSearch as ordinary processes."""
