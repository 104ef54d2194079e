"""Asks a folder or an object store who it is, for ``cdc check``."""

from __future__ import annotations

from pathlib import Path

import deltalake
from deltalake.exceptions import DeltaError

from cdc.process.errors import SinkError
from cdc.process.untrusted_text import quoted
from cdc.record.server_facts import StoreFacts
from sinks.contract.registry import SinkSpec
from sinks.delta.delta_faults import Storage
from sinks.delta.delta_kind import RELATIVE
from sinks.warehouse.warehouse_merges import require_folder


def probe_delta(spec: SinkSpec) -> StoreFacts:
    """A folder that can be written, or an object store that answers.

    Raises ConfigError for a folder that cannot be written, SinkError when the object store does not answer.
    """
    path = spec.text("path")
    if "://" not in path:
        require_folder(Path(path))
        whole = Path(path).absolute()
        notes = {} if Path(path).is_absolute() else {RELATIVE: path}
        return StoreFacts(product="the folder", version=str(whole), notes=notes)
    try:
        deltalake.DeltaTable.is_deltatable(path, dict(Storage.of(spec).options))
    except (DeltaError, OSError, ValueError) as error:
        raise SinkError(
            f"the object store at {path} does not answer: {quoted(str(error))}",
            hint="check path, storage_options and storage_secrets",
        ) from None
    return StoreFacts(product="the object store", version=path)
