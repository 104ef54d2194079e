"""The streaming queries: batches planned, read and given to the stores."""
