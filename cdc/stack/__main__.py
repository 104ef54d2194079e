"""``python -m cdc.stack`` is ``cdc stack``."""

import sys

from cdc.cli.app import run

sys.exit(run(["stack", *sys.argv[1:]]))
