"""One store: its thread, its tables and their places, and the watermark that it may claim."""
