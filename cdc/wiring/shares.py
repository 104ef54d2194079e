"""``cdc sink --share`` and ``cdc share``, put together."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc.clock import SYSTEM_CLOCK
from cdc.errors import ConfigError, UsageError
from cdc.progress import Watermark
from cdc.shares import MOST, Share
from sinks.kinds import open_store_notes
from sinks.stores import kind_of, spec_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc.settings import Settings
    from spark.application import SinkApplication


def own_places(settings: Settings, share: Share | None) -> Settings:
    """The settings with a checkpoint folder of the share's own: others run beside it."""
    if share is None:
        return settings
    checkpoint = f"{settings.spark.checkpoint.rstrip('/')}/_share_{share.number}_of_{share.count}"
    return settings.model_copy(update={"spark": settings.spark.model_copy(update={"checkpoint": checkpoint})})


def require_shares(settings: Settings, names: Iterable[str]) -> None:
    """ConfigError for a store that one application feeds alone, for topics that Debezium may have filled, whose reader
    notes shapes, snapshots and epochs for all tables."""
    from connectors.debezium.connector_config import may_hold_debezium

    for name in names:
        kind = kind_of(name, settings)
        if not kind.notes:
            raise ConfigError(
                f"the store of {name} is of kind {kind.name}, and takes one application alone",
                hint="run it without --share",
            )
        why = kind.one_alone(spec_of(name, settings))
        if why:
            raise ConfigError(f"the store of {name} takes one application alone: {why}", hint="run it without --share")
    if may_hold_debezium(settings):
        raise ConfigError(
            "topics that Debezium fills, or may have filled, are read by one application alone",
            hint="run cdc sink without --share",
        )


def of_share(application: SinkApplication, share: Share) -> SinkApplication:
    """The same application for a share of each sink's tables."""
    from spark.sharing import ShareLetterFeed, ShareLetters, ShareLog

    open_letters = application.open_letters
    return replace(
        application,
        # Its figures are not the pipeline's: cdc status takes them for none.
        session=replace(application.session, name=f"{application.session.name} {share}"),
        specs={name: replace(spec, share=share) for name, spec in application.specs.items()},
        facts=ShareLog(application.facts, share),
        dead=ShareLetters(application.dead, share),
        open_letters=lambda: ShareLetterFeed(open_letters(), share),
    )


def change_shares(settings: Settings, sink: str, count: int) -> Watermark | None:
    """Have a store fed by so many applications from now on. See :func:`sinks.shared_notes.change`.

    UsageError for a number that no store has.
    """
    if not 1 <= count <= MOST:
        raise UsageError(f"a store has 1 to {MOST} shares")
    from sinks.shared_notes import change

    require_shares(settings, [sink])
    with closing(open_store_notes(spec_of(sink, settings), SYSTEM_CLOCK)) as opened:
        return change(opened.notes, count)
