"""A pipeline's beginning and end: what ``cdc init`` makes and ``cdc drop`` removes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.settings import require_postgres

__all__ = ["PreparedPipeline", "Successor", "accept_server", "begin_epoch", "open_drop", "prepare_pipeline"]

if TYPE_CHECKING:
    from cdc.clock import Clock
    from cdc.drop.run import Drop
    from cdc.settings import Settings
    from connectors.prepare import Prepared as PreparedPipeline
    from connectors.succession import Successor


def prepare_pipeline(settings: Settings) -> PreparedPipeline:
    """Make or check publication, topics and shapes. ConfigError where the source is another database than Postgres."""
    from connectors.prepare import prepare_pipeline as prepare

    require_postgres(settings, "cdc init")
    return prepare(settings)


def begin_epoch(settings: Settings, clock: Clock) -> tuple[int, PreparedPipeline]:
    """End the present epoch and prepare the next one. Its number, and what was made."""
    from connectors.prepare import begin_pipeline_again

    require_postgres(settings, "cdc init")
    return begin_pipeline_again(settings, clock)


def accept_server(settings: Settings, clock: Clock) -> Successor | None:
    """See :func:`connectors.succession.accept_server`."""
    from connectors.succession import accept

    require_postgres(settings, "cdc init")
    return accept(settings, clock)


def open_drop(settings: Settings) -> Drop:
    """See :func:`connectors.drop.drop_of`."""
    from connectors.drop import drop_of

    return drop_of(settings)
