"""The same as ``cdc sink``, for ``spark-submit``: ``spark-submit … spark/jobs/sink.py --config cdc.toml [NAME]…``"""

from __future__ import annotations

import sys

from cdc.cli.app import run

if __name__ == "__main__":
    sys.exit(run(["sink", *sys.argv[1:]]))
