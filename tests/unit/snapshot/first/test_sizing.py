from __future__ import annotations

from snapshot.first.manifest import Sizing

MB = 1024**2


def test_chunks_are_just_small_enough_that_no_worker_idles() -> None:
    sizing = Sizing(workers=2, most_bytes=64 * MB, server_version=180_000)
    assert sizing.chunk_bytes(80 * MB) == 5 * MB
    assert sizing.chunk_bytes(100_000 * MB) == 64 * MB
    assert sizing.chunk_bytes(0) == 4 * MB
    assert Sizing(workers=2, most_bytes=8192, server_version=180_000).chunk_bytes(0) == 8192
