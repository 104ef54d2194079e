"""Carries out commands: the events and the outbox in one transaction.

python -m examples.ledger.commands DSN ACCOUNT open|deposit|withdraw|send|close [AMOUNT] [OTHER]
"""

from __future__ import annotations

import sys
import uuid
from decimal import Decimal
from typing import Any

import psycopg
from psycopg.errors import UniqueViolation

from cdc import outbox
from examples.ledger.account import Account, Command, Event, Refused, account_of, decide

Connection = psycopg.Connection[tuple[Any, ...]]
_READ = "select type, amount, transfer, other from ledger_events where account = %s order by version"
_APPEND = "insert into ledger_events (account, version, type, amount, transfer, other) values (%s, %s, %s, %s, %s, %s)"


def execute(connection: Connection, name: str, command: Command) -> Event:
    """Carry out a command, in the open transaction or in one of its own. Refused by the account.

    Another command may append to the account between our reading and our writing. Then the version is taken, and the
    command is decided again.
    """
    while True:
        account = load(connection, name)
        event = decide(account, command)
        try:
            with connection.transaction():
                append(connection, name, account.version + 1, event)
        except UniqueViolation:
            continue
        return event


def load(connection: Connection, name: str) -> Account:
    """The account as it is now: closed, and without events, where it was never opened."""
    return account_of(Event(*row) for row in connection.execute(_READ, (name,)))


def append(connection: Connection, name: str, version: int, event: Event) -> None:
    """Write an event and tell others of it. UniqueViolation where the account has moved on."""
    connection.execute(_APPEND, (name, version, event.type, event.amount, event.transfer, event.other))
    body = {"amount": str(event.amount), "transfer": event.transfer, "other": event.other, "version": version}
    outbox.emit(connection, "account", name, event.type, body)


def main(dsn: str, name: str, kind: str, amount: str = "0", other: str | None = None) -> int:
    """One command. 0, or 1 with a sentence where it is refused."""
    transfer = str(uuid.uuid4()) if kind == "send" else None
    if kind in ("receive", "return"):
        print("error: that is for the transfers to say", file=sys.stderr)
        return 1
    with psycopg.connect(dsn, autocommit=True) as connection:
        try:
            event = execute(connection, name, Command(kind, Decimal(amount), transfer, other))
        except Refused as why:
            print(f"error: {name}: {why}", file=sys.stderr)
            return 1
    print(event.type)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
