"""The ports of a verification, beside the source's cuts (:mod:`cdc.verification.spool`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from cdc.freshness.rules import ReadsWatermarks
from cdc.record.topic_names import TableName
from cdc.verification.cut_port import SourceReader, SourceRows, VerifiedTable
from cdc.verification.passes import ScansStore
from cdc.verification.repair import RepairTarget


class VerifiedSource(SourceReader, SourceRows, Protocol):
    """The source at one cut at a time, for comparing and for repairing."""


class PublishedDocument(NamedTuple):
    """The newest record of a document. ``after``: its row as on the wire, None for a deletion."""

    pos: str
    after: bytes | None


class AsksRunners(Protocol):
    """The runners of views, and the documents that they have published."""

    def recompute(self, view: TableName, keys: Sequence[bytes], timeout_s: float) -> Mapping[bytes, str]:
        """Have the documents of these records computed and published once more, newer than anything so far.

        Returns why there is no document of some. RunnerSilent when its runner does not answer in time. LogError.
        """

    def published(self, view: TableName, keys: Collection[bytes]) -> Mapping[bytes, PublishedDocument]:
        """The newest records of these keys that the view's topic has now. LogError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedStore:
    """A store, opened as one of several writers. ``tables``: those of the captured ones that it keeps.

    ``views``: those of its tables that are views, each with its topic.
    ``fills_lost_tables``: whether a repair may fill a table of which the store holds nothing.
    """

    reader: ScansStore
    watermarks: ReadsWatermarks
    target: RepairTarget
    tables: Sequence[TableName]
    fills_lost_tables: bool = True
    views: Mapping[TableName, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationPorts:
    """Everything that a verification uses. ``stores``: by sink. ``tables``: the captured ones, by name. ``lacking``:
    those of which the log lacks changes as of now, each with the sentence about it. LogError when it is not known.
    ``left_out``: tables and views that never can be compared, each with why.
    ``runners``: of views, None where none can be asked.
    """

    source: VerifiedSource
    stores: Mapping[str, VerifiedStore]
    tables: Mapping[TableName, VerifiedTable] = field(default_factory=dict)
    lacking: Callable[[], Mapping[str, str]] = dict
    left_out: Mapping[str, str] = field(default_factory=dict)
    runners: AsksRunners | None = None
