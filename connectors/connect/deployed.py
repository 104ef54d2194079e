"""The outcome of a deploy."""

from __future__ import annotations

from dataclasses import dataclass

from connectors.debezium.connector_status import ConnectorStatus

Change = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """The result of :meth:`connectors.connect.connector.Connector.deploy`.

    ``action``: ``created``, ``updated`` or ``unchanged``. ``changes``: option -> (before, now). ``added``: tables that
    joined a connector which runs already, or patterns. ``signal``: the id of the snapshot of their rows. Empty where
    they are not read, and ``unread`` then says why. ``exact``: it writes in transactions.
    """

    action: str
    changes: dict[str, Change]
    status: ConnectorStatus
    added: tuple[str, ...] = ()
    signal: str = ""
    unread: str = ""
    exact: bool = False
