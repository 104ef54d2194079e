"""``cdc forget``: the places that keep something of a row deleted in the source, and for how long. Pure."""
