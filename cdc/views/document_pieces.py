"""One piece of what a view publishes: computed documents to records, digests and documents that are parked. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from cdc.position import Position
from cdc.views.lookups import Row
from cdc.views.post_functions import Post, finished
from cdc.views.refused import NotComputable
from cdc.views.view_records import ViewRecord, ViewRecords

LACKS = "a row that it is made of is put aside, or stands in the log as it was later alone"


@dataclass(slots=True)
class DocumentPiece:
    """``written``: records for the topic. ``digests``: of what is published, None for a deletion. ``parked``: documents
    that cannot be, each with why."""

    written: list[ViewRecord] = field(default_factory=list)
    digests: dict[Row, bytes | None] = field(default_factory=dict)
    parked: dict[Row, str] = field(default_factory=dict)


class PieceMaker:
    """``post``: the user's function on finished documents. ``largest``: bytes of a document's row."""

    def __init__(self, records: ViewRecords, post: Post | None, largest: int) -> None:
        self._records = records
        self._post = post
        self._largest = largest

    def _finished(self, row: str | NotComputable | None) -> str | NotComputable | None:
        """A computed row as it is published. NotComputable, with the reason, for one that cannot be."""
        made = finished(self._post, row)
        if isinstance(made, str) and len(made) > self._largest and len(made.encode()) > self._largest:
            return NotComputable(f"the document is larger than {self._largest} bytes")
        return made

    def of(
        self,
        computed: Mapping[Row, str | NotComputable | None],
        known: Mapping[Row, bytes],
        blocked: Collection[Row],
        above: Position,
        now_ns: int,
    ) -> DocumentPiece:
        """``computed``: a row for each key. ``known``: digests of what was published last. ``blocked``: documents of
        which a row is not known. ``above``: the position that records are numbered above.
        """
        piece = DocumentPiece()
        for key, found in computed.items():
            if key in blocked:
                piece.parked[key] = LACKS
                continue
            row = self._finished(found)
            if isinstance(row, NotComputable):
                piece.parked[key] = str(row)
            elif row is not None:
                digest = blake2b(row.encode(), digest_size=16).digest()
                if known.get(key) != digest:
                    piece.written += self._records.document(key, row, above, known=key in known, now_ns=now_ns)
                    piece.digests[key] = digest
            elif key in known:
                piece.written += self._records.deletion(key, above, now_ns)
                piece.digests[key] = None
        return piece
