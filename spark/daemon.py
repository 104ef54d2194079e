"""The process that forks Python workers of a local session: Spark's own, with what a task needs imported already.

Spark's starts with its library in two zip files at the head of the module path. Each worker then imports the sinks'
libraries for itself, and each task has Python read the directories of both files anew (``importlib.invalidate_caches``
in Spark's worker), which is a large part of a small one. Where the library is installed, as it is here, the files say
nothing that the installation does not.
"""

from __future__ import annotations

import sys
from importlib import import_module


def main() -> None:
    """Do the work of ``python -m pyspark.daemon``."""
    sys.path[:] = [place for place in sys.path if not place.endswith(".zip")]
    sys.path_importer_cache.clear()
    import_module("spark.tasks")
    import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
