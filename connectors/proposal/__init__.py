"""A database as ``cdc config new`` reads it."""
