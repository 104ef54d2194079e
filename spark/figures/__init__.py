"""The figures of sinks, for ``/metrics``."""
