"""Records that the assembler passes on before it returns: records that are too many to return, and that a table
waits."""

from __future__ import annotations

import logging
from collections.abc import Callable

from cdc.ports import Record
from cdc.topic import TableName
from cdc.windows import Windows
from connectors.kafka.stream_log import KafkaStreamLog

log = logging.getLogger(__name__)


def tell_waiting(table: TableName, waits: bool) -> None:
    """Say in the log that a table begins to wait, or follows again."""
    if waits:
        log.warning(
            "table_waits",
            extra={"table": str(table), "why": "it cannot be read: is it locked, is a standby silent?"},
        )
    else:
        log.info("table_follows", extra={"table": str(table)})


def handing_over(records: KafkaStreamLog, windows: Windows) -> Callable[[list[Record]], None]:
    """Takes records before the assembler returns: to the log, past the open windows."""

    def hand_over(batch: list[Record]) -> None:
        windows.touch(batch)
        records.produce(batch)

    return hand_over
