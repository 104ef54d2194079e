"""A view's state in Delta tables, looked at beside its runner: sizes for status, and single documents.

It loads Delta's client, so it is imported where a view has such a state.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from deltalake.exceptions import DeltaError

from cdc.errors import DamagedError, NewerError, UsageError
from cdc.status.view_lines import RunnerState
from cdc.views.lookups import DocumentSource, Row
from cdc.views.state_reach import Bound
from connectors.view_documents import ShownDocument, held_by, require_built
from spark.views.delta_tables import stored_manifest
from spark.views.one_document import gathered_rows
from spark.views.view_parts import ShippedView


def look_at_state(path: Path) -> RunnerState | None:
    """The state in a folder. None where nothing there can be read now."""
    try:
        manifest, files = stored_manifest(path)
    except (OSError, DeltaError, DamagedError, NewerError):
        return None
    size_bytes = sum(file.size for table in files.values() for of_bucket in table.values() for file in of_bucket)
    lost = sum(map(len, manifest.lost.values()))
    return RunnerState(waiting=manifest.waiting, parked=len(manifest.parked) + lost, size_bytes=size_bytes)


def shown_document(path: Path, shipped: ShippedView, generation: int, key: Row) -> ShownDocument:
    """A document as the state has it now. UsageError where the state is away, is not built yet (H569) or may be wrong
    (H258), ConfigError where another text made it, or it has other buckets (H239)."""
    plan = shipped.parts().plan
    try:
        manifest, files = stored_manifest(path)
        manifest.require(Bound.to(plan), generation, shipped.buckets, str(path))
        if not manifest.sound:
            hint = "the next cdc view run builds it anew"
            raise UsageError(
                f"the state in {path} was written by an older version, and may hold rows that went", hint=hint
            )
        require_built(manifest.reached, path)
        rows = gathered_rows(shipped, files, key)
    except (OSError, DeltaError) as failure:
        hint = "cdc view run makes it; a state that is being cleaned can be read a moment later"
        raise UsageError(f"the state in {path} cannot be read: {type(failure).__name__}", hint=hint) from None
    held = replace(manifest.reached, held=manifest.held)
    return ShownDocument(DocumentSource(plan).of(rows, [key])[key], (*held_by(held),))
