"""The first snapshot: rows that were there before the slot, tied to its consistent point."""
