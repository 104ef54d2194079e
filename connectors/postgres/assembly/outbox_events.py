"""The outbox within the stream: inserts of its table and logical messages become records of the events' topics.

Events have a counter of their own in each transaction, so that no table's positions depend on whether there is an
outbox. A record is queued like any other, and left out if its topic already has it. What is no event goes to the dead
letters, before anything behind it is acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cdc.capture.outbox import MalformedEvent, OutboxEvent, OutboxRules
from cdc.record.documents import dumped
from cdc.record.topic_names import TableName
from connectors.postgres.assembly.transaction import Collector, Transaction
from connectors.postgres.protocol.messages import Delete, Insert, LogicalMessage, Omitted, Relation, Update
from connectors.postgres.protocol.oversized_fields import Abridged
from connectors.postgres.protocol.pgoutput import plain_values

_JSON_TYPES = frozenset({114, 3802})
"""json and jsonb: Postgres has read their text."""
_Columns = tuple[Sequence[str], frozenset[str]]
"""The columns of an outbox table, and those of them that are JSON."""
_INSERT, _DELETE, _MESSAGE = _KINDS = b"IDM"
_KIND_AT, _OID_AT, _ROW_AT, _PREFIX_AT = 25, 26, 31, 35
"""Where these stand in a frame: behind the header of 25 bytes its kind, then a row's relation, a marker and the row, or
a message's flags, LSN and prefix."""
_RECORD_BYTES = 1024
"""The bytes of a batch and a record around key, value and headers, generously."""
EVENT, UPDATED, REFUSED = "event", "update", "refused"


@dataclass(frozen=True, slots=True)
class RefusedEvent:
    """What was written to the outbox and is no event. ``lsn``: where it stands in WAL, as other rows of one COPY do.
    ``number``: in its transaction, 0 outside one. ``reason``: one sentence.
    ``content``: what of it is kept, None for nothing."""

    lsn: int
    number: int
    reason: str
    oversized: bool
    content: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxPorts:
    """``lanes``: a topic's first lane and how many there are. The topic is made where it is missing; MalformedEvent
    where it may not be. ``refuse`` returns when what it is called with is durable. ``limit_bytes``: of a record."""

    rules: OutboxRules
    lanes: Callable[[str], tuple[int, int]]
    refuse: Callable[[Sequence[RefusedEvent]], None]
    limit_bytes: int


class OutboxEvents:
    """The events of one session's stream. ``ports``: None without an outbox. ``partition``: (key, count) ->
    partition."""

    def __init__(
        self,
        ports: OutboxPorts | None,
        transaction: Transaction,
        outlet: Collector,
        partition: Callable[[bytes, int], int],
    ) -> None:
        self._ports = ports
        prefix = None if ports is None else ports.rules.prefix
        self._prefix = b"" if prefix is None else prefix.encode() + b"\0"
        self._tx = transaction
        self._outlet = outlet
        self._partition = partition
        self._relations: dict[int, _Columns] = {}
        """By oid."""
        self._lanes: dict[str, tuple[int, int]] = {}
        self._refused: list[RefusedEvent] = []
        self.counts: Counter[str] = Counter()
        """So far: events, updates of the outbox table, and what was refused."""

    def __contains__(self, oid: object) -> bool:
        """Whether a relation is the outbox table."""
        return oid in self._relations

    def announced(self, relation: Relation) -> bool:
        """Note an announcement. Whether it is of the outbox table."""
        if self._ports is None or TableName(relation.schema, relation.table) != self._ports.rules.table:
            self._relations.pop(relation.relation_oid, None)
            return False
        names = [column.name for column in relation.columns]
        as_json = frozenset(column.name for column in relation.columns if column.type_oid in _JSON_TYPES)
        self._relations[relation.relation_oid] = names, as_json
        return True

    def taken(self, lsn: int, frame: bytes) -> bool:
        """Take a message at once, undecoded, if it is an insert, a delete or a logical message of the common kind: that
        takes a third of the time. Otherwise leave it, and return False."""
        ports, tx, kind = self._ports, self._tx, frame[_KIND_AT]
        if kind not in _KINDS or ports is None or tx.begin is None or isinstance(frame, Abridged):
            return False
        if kind == _MESSAGE:
            start = _PREFIX_AT + len(self._prefix)
            content = frame[start + 4 :]
            if not self._prefix or frame[_PREFIX_AT:start] != self._prefix or tx.skipped or frame[_OID_AT] != 1:
                return False
            whole = len(content) == int.from_bytes(frame[start : start + 4])
            if whole:
                self._written(lsn, content, ports)
            return whole
        relation = self._relations.get(int.from_bytes(frame[_OID_AT : _OID_AT + 4]))
        values = plain_values(frame, _ROW_AT) if relation is not None and kind == _INSERT else None
        if relation is None or (kind == _INSERT and values is None):
            return False
        if values is not None:
            self._inserted(lsn, relation, values, ports)
        tx.rows += 1
        tx.seq += 1 if kind == _INSERT else 2
        return True

    def row(self, lsn: int, change: Insert | Update | Delete) -> None:
        """A change of the outbox table. An insert is an event. A delete keeps the table small, and an update says
        nothing: what was published stays as it was."""
        if isinstance(change, Update):
            self.counts[UPDATED] += 1
        if not isinstance(change, Insert) or self._ports is None:
            return
        values = [value for value in change.new if isinstance(value, bytes) or value is None]
        if len(values) < len(change.new):
            size = sum(value.size_bytes for value in change.new if isinstance(value, Omitted))
            self._tx.events += 1
            self._refuse(lsn, f"the event has {size:,} bytes and more", None, oversized=True)
            return
        self._inserted(lsn, self._relations[change.relation_oid], values, self._ports)

    def _inserted(self, lsn: int, columns: _Columns, values: Sequence[bytes | None], ports: OutboxPorts) -> None:
        names, as_json = columns
        self._tx.events += 1
        try:
            self._emit(lsn, ports.rules.of_row(names, values, as_json), ports)
        except MalformedEvent as error:
            row = {
                name: None if v is None else v.decode("utf-8", "replace") for name, v in zip(names, values, strict=True)
            }
            self._refuse(lsn, f"the row is no event: {error.fault}", dumped(row))

    def message(self, lsn: int, message: LogicalMessage) -> None:
        """A logical message. Those of another prefix are somebody else's."""
        if self._ports is None or message.prefix != self._ports.rules.prefix or self._tx.skipped:
            return
        if not message.transactional:
            why = "the message is not transactional, so it would be an event of a transaction that may roll back"
            self._refused.append(RefusedEvent(lsn, 0, why, False, message.content))
            self.counts[REFUSED] += 1
            return
        self._written(lsn, message.content, self._ports)

    def _written(self, lsn: int, content: bytes, ports: OutboxPorts) -> None:
        self._tx.events += 1
        if not 0 < len(content) <= ports.limit_bytes:
            self._refuse(lsn, "the message is empty, or larger than any record may be", None, oversized=True)
            return
        try:
            self._emit(lsn, ports.rules.of_message(content), ports)
        except MalformedEvent as error:
            self._refuse(lsn, f"the message is no event: {error.fault}", content)

    def settle(self) -> None:
        """Return when all that was refused so far is durable."""
        if self._refused and self._ports is not None:
            refused, self._refused = self._refused, []
            self._ports.refuse(refused)

    def _emit(self, lsn: int, event: OutboxEvent, ports: OutboxPorts) -> None:
        size = len(event.key) + len(event.value or b"")
        for _, text in event.headers:
            size += len(text)
        if size + _RECORD_BYTES > ports.limit_bytes:
            reason = f"the event has {size:,} bytes, and its topic takes {ports.limit_bytes:,}"
            self._refuse(lsn, reason, event.value, oversized=True)
            return
        found = self._lanes.get(event.topic)
        if found is None:
            found = self._lanes[event.topic] = ports.lanes(event.topic)
        lane, count = found
        headers = event.placed(self._tx.pos % self._tx.events, self._tx.times.at_us)
        self.counts[EVENT] += 1
        self._outlet.emit((lane + self._partition(event.key, count), event.key, event.value, headers))

    def _refuse(self, lsn: int, reason: str, content: bytes | None, *, oversized: bool = False) -> None:
        self.counts[REFUSED] += 1
        self._refused.append(RefusedEvent(lsn, self._tx.events, reason, oversized, content))
