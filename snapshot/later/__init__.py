"""Later snapshots: the running capture reads tables again, chunk by chunk, each in a window of its stream."""
