"""The version, for what every record and metric says of its writer."""

__version__ = "0.1.0"
