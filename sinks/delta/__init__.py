"""The warehouse as Delta tables."""
