"""Debezium's own records as events of ours: pure, for readers of topics that Debezium writes."""
