"""From the topics to the stores: one PySpark application, a query per sink, newest per key."""
