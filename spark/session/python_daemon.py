"""The process that forks Python workers of a local session: Spark's own, with what a task needs imported already.

Spark's starts with its library in two zip files and a jar at the head of the module path. Each worker then imports the
sinks' libraries for itself, and each task has Python read the directories of these files anew
(``importlib.invalidate_caches`` in Spark's worker) and collects what the imports left, in
which time a small task does nothing. Where the library is installed, as it is here, the files say nothing that the
installation does not, and no worker's collection need look at what was imported before the fork.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module


def main() -> None:
    """Do the work of ``python -m pyspark.daemon``."""
    sys.path[:] = [place for place in sys.path if not place.endswith((".zip", ".jar"))]
    sys.path_importer_cache.clear()
    import_module("spark.queries.tasks")
    daemon = import_module("pyspark.daemon")
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
