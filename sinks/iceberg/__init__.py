"""The warehouse as Iceberg tables in a catalog. Spark merges them."""
