"""``python -m cdc.jvm`` prints a JAVA_HOME on the bundled Java, for Spark's own scripts."""

from __future__ import annotations

import sys

from cdc.jvm.java import java_home
from cdc.process.errors import CdcError


def main() -> int:
    """Print it. The exit code."""
    try:
        print(java_home())
    except CdcError as error:
        print(f"{error.message}\nhint: {error.hint}", file=sys.stderr)
        return int(error.exit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
