"""Streams of a real server over every golden script, every type among them, with the shapes they announce."""
