"""The Spark session: how it is started, what its executors need, and how it stops."""
