"""The process that listens at an address that we want: most often another ``cdc run`` of the same pipeline."""

from __future__ import annotations

import http.client
import json
from contextlib import closing

from cdc.errors import ActiveError, CdcError, ConfigError

_TIMEOUT_S = 2.0
_LONGEST_BYTES = 65_536


def address_taken(address: str, pipeline: str, why: str) -> CdcError:
    """The error for an ``[capture] http_address`` that cannot be listened on.

    ``why``: the system's words. ActiveError when the ``cdc run`` of ``pipeline`` answers there, else ConfigError.
    """
    there = _pipeline_at(address)
    if there is not None and there == pipeline:
        return ActiveError(
            f"cdc run of the pipeline {pipeline} runs already: it answers at [capture] http_address {address}",
            hint="one capture feeds a pipeline; stop the other one first",
        )
    whose = f": cdc run of the pipeline {there} has it" if there else f": {why}"
    return ConfigError(
        f"[capture] http_address {address} cannot be listened on{whose}",
        hint='name a free one, as "127.0.0.1:9470", or "" for none',
    )


def _pipeline_at(address: str) -> str | None:
    """The pipeline whose capture answers there. None where something else does, or nothing."""
    try:
        with closing(http.client.HTTPConnection(address, timeout=_TIMEOUT_S)) as connection:
            connection.request("GET", "/status")
            document = json.loads(connection.getresponse().read(_LONGEST_BYTES))
    except (OSError, ValueError, http.client.HTTPException):
        return None
    # The sinks' page names the pipeline as well.
    found = document.get("pipeline") if isinstance(document, dict) and "phase" in document else None
    return found if isinstance(found, str) else None
