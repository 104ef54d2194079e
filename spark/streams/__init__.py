"""Streams: Spark SQL over topics of events. ``events`` gives a topic's events as a DataFrame, for jobs of your own."""

from spark.streams.typed_events import events

__all__ = ["events"]
