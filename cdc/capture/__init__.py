"""From the stream's changes to groups of records, in order, and what may be acknowledged: pure rules, and one loop."""
