"""Debezium's records and ours for the same changes, side by side. Every difference explained by a rule, or not.

Pure: bytes in, differences out. ``cdc connect compare`` and the golden tests use the same rules.
"""
