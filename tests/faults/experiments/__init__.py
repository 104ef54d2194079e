"""One experiment a module; see tests/faults/README.md for the two shapes they have."""
