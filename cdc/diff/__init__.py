"""``cdc diff``: the settings beside what was made and what the stores follow. :mod:`~cdc.diff.rules` is pure."""
