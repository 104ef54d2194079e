"""Views whose state lies in Delta tables and is kept by executors."""
