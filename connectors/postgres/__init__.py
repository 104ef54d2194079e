"""Postgres as the leader: decoding, encoding, the stream, the slot, the catalog."""
