"""The tables that join a connector whose own first snapshot is over: their rows are asked for by a signal.

The signal is given while the connector stands still, and before it has the configuration and the notes by which the
tables count as known. Given to one that says RUNNING, it may reach the task of before the change, which
passes over a table that it does not know, and says so in the worker's log alone: the rows would be missing in silence.
Given last, it would be forgotten by a deploy that ends between the two. A task reads signals from where the last one
has stopped, so that one which waits for it is heard, nearly always: see :mod:`connectors.connect.unread_tables`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cdc.errors import ConfigError
from cdc.settings import Settings
from connectors.connect.published import Known, Published, makes_publication
from connectors.connect.signal_rules import require_captured, require_snapshots
from connectors.connect.signalling import send
from connectors.debezium.captured_tables import named_tables, newly_taken
from connectors.debezium.regex import spelled
from connectors.debezium.signals import execute_snapshot, new_identifier


class Asked(NamedTuple):
    """The outcome of asking. ``signal``: the snapshot's id. Empty where none was sent, and ``unread`` then says why."""

    signal: str = ""
    unread: str = ""


def joined_tables(settings: Settings, published: Published, known: Known) -> tuple[str, ...]:
    """Those of the publication, or entries of the settings where the source is not asked. Pure.

    A configuration in force proves no reading: a deploy that failed may have made it, so the notes have to know a table
    as well. Without one every table that is named joins: the connector that was there may have passed it over.
    """
    if makes_publication(settings):
        return tuple(map(str, published.added))
    if known.topics is None:
        return ()
    if known.running is None:
        return tuple(named_tables(settings))
    new = [table for table in named_tables(settings) if table not in known.topics.tables]
    return tuple(dict.fromkeys([*newly_taken(settings, known.running), *new]))


def ask_for_rows(settings: Settings, wanted: Mapping[str, str], tables: Iterable[str], *, waits: bool) -> Asked:
    """Ask for a snapshot of tables that joined. ``wanted``: the configuration that the connector is to run with.
    ``waits``: a transaction from before them is still open.

    Raises what :func:`connectors.connect.signalling.send` raises, and UsageError for a table that is not captured.
    """
    names = [*tables]
    if not names:
        return Asked()
    if waits:
        return Asked(unread="a transaction that is older than the table is open")
    if any("*" in name for name in names):
        return Asked(unread="which tables of a pattern have rows already is not known")
    meant = [*map(spelled, names)]
    require_captured(settings, meant)
    try:
        require_snapshots(settings, wanted, "incremental")
    except ConfigError as refusal:
        return Asked(unread=refusal.message)
    signal = execute_snapshot(new_identifier(), meant)
    send(signal, settings)
    return Asked(signal=signal.identifier)
