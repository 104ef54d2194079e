"""The record on the wire: what a topic of a table holds, written and read. Pure."""
