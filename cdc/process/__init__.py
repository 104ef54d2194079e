"""A process of ours: its clock, its log, its errors and exit codes. Every room may import it."""
