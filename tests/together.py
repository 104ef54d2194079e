"""Which files a slow run gives to one worker: those that share a JVM, which takes half a minute of CPU to start."""

from __future__ import annotations

from fnmatch import fnmatch

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

_SPARK = "tests/integration/spark"
_SINKS = "tests/integration/sinks"
_CONNECT = "tests/integration/debezium"
TOGETHER = {
    "Kafka Connect": [f"{_CONNECT}/*"],
    "warehouses by Spark": ["tests/contract/*", *(f"{_SINKS}/test_{some}*" for some in ("spark", "iceberg", "delta"))],
    "sinks in this process": [f"{_SPARK}/*"],
}
"""Patterns of the files of a group. What a file of these starts in processes of its own stands below."""
APART = [
    f"{_SPARK}/test_{name}.py"
    for name in (
        "cluster", "figures", "frames_secrets", "frames_submit", "heap", "iceberg_s3", "kept_driver", "pages", "pods",
        "sink_submit", "submitted", "submitted_session",
    )
]  # fmt: skip


class TogetherScheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Each worker takes a file at a time, or a group of them."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        if file in APART:
            return file
        groups = (name for name, files in TOGETHER.items() if any(fnmatch(file, one) for one in files))
        return next(groups, file)
