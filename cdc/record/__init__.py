"""The contents of the log, and the words for it: pure values and formats, without I/O and without settings."""
