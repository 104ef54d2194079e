"""A process of ours: its version, its clock, its log, its errors and exit codes. Every room may import it."""

__version__ = "0.1.0"
"""What every record and metric says of its writer."""
