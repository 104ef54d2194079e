"""Brings transfers to their end: what one account has sent, the other receives, or else the sender gets it back.

    python -m examples.ledger.transfers DSN BOOTSTRAP_SERVERS NAME

``NAME`` is the pipeline's. Killed at any time and started again, it carries out each transfer once: the inbox notes the
event in the transaction of what follows from it.
"""

from __future__ import annotations

import json
import signal
import sys
from decimal import Decimal
from typing import Any

import psycopg
from confluent_kafka import Consumer

from cdc import inbox
from examples.ledger.account import Command, Refused
from examples.ledger.commands import Connection, execute


def carry_out(connection: Connection, sender: str, body: dict[str, Any]) -> None:
    """What follows from ``TransferSent``, in the open transaction."""
    amount, transfer, receiver = -Decimal(body["amount"]), body["transfer"], body["other"]
    try:
        execute(connection, receiver, Command("receive", amount, transfer, sender))
    except Refused:
        # What the sender wrote stays as it is. A further event makes it good.
        execute(connection, sender, Command("return", amount, transfer, receiver))


def main(dsn: str, servers: str, name: str) -> int:
    """Follow the events until SIGTERM."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"{name}.transfers",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "topic.metadata.refresh.interval.ms": 5000,  # the topic comes with its first event
            "allow.auto.create.topics": False,
            "session.timeout.ms": 6000,  # so long is a killed one's place kept
        }
    )
    consumer.subscribe([f"{name}.outbox.account"])
    with psycopg.connect(dsn, autocommit=True) as connection:
        while not stopped:
            record = consumer.poll(0.5)
            if record is None or record.error() is not None:
                continue
            kind = dict(record.headers() or ())["eventType"]
            with connection.transaction():
                if kind == b"TransferSent" and inbox.first(connection, consumer="transfers", event=record):
                    carry_out(connection, (record.key() or b"").decode(), json.loads(record.value() or b"{}"))
            consumer.commit(message=record, asynchronous=False)
    consumer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
