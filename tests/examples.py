"""How many examples random tests try: all of them, or the share that a quick run is given.

The laboratory, and a run without ``make``, try all.
"""

from __future__ import annotations

import os

SHARE = float(os.environ.get("CDC_TEST_EXAMPLES", "1"))


def examples(count: int, share: float = SHARE) -> int:
    """Of so many, this run's share. Two at least."""
    return min(count, max(2, round(count * share)))
