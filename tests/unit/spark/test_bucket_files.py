"""Files of buckets, the versions of their tables, and the documents that are staged in them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cdc.clock import SYSTEM_CLOCK, ManualClock
from cdc.errors import ActiveError, CdcError, ConfigError, Exit
from cdc.topic import TableName
from cdc.views.bucket_layout import BucketLayout
from cdc.views.fences import Fence
from cdc.views.state_reach import Reached
from cdc.views.view_manifest import KEYS_DUE, ViewManifest
from cdc.views.view_plan import planned
from cdc.views.view_records import ViewRecord
from spark.views.bucket_files import DOCUMENTS, PENDING, PUBLISHED, BucketFile, BucketFiles, CopyForm, entries, values
from spark.views.delta_tables import DeltaTables, stored_manifest
from spark.views.document_steps import documents_table
from spark.views.staged_documents import staged_pieces
from tests.unit.cdc.views.view_histories import SHAPES

PLAN = planned("select o.id, (select count(*) from lines l where l.order_id = o.id) as n from orders o", SHAPES)
LAYOUT = BucketLayout(PLAN, 4)
BY_ORDER = LAYOUT.found(TableName("public", "lines"), ("order_id",))


def tables(folder: Path) -> DeltaTables:
    """The tables of keys alone."""
    return DeltaTables(folder, [PENDING, PUBLISHED], ManualClock())


def keys(*names: str) -> Any:
    return entries(PENDING, {"h": list(range(len(names))), "key": list(names)})


def test_the_newest_entry_of_a_row_counts(tmp_path: Path) -> None:
    form, files = CopyForm(BY_ORDER), BucketFiles(tmp_path)
    (tmp_path / BY_ORDER.name).mkdir()
    width = len(BY_ORDER.relation.columns)
    first, second = (7, 1)[:width], (8, 1)[:width]
    _, hashed = LAYOUT.place(BY_ORDER, (1,))
    old = files.write(form.entries, 0, form.table([(hashed, False, r, "", None) for r in (first, second)], 1))
    new = files.write(form.entries, 0, form.table([(hashed, True, first, "", None)], 2))
    found = files.newest(form.entries, [new, old])
    assert dict(zip(form.rows(found), values(found, "gone"), strict=True)) == {first: True, second: False}
    assert files.read_bytes > 0


def test_row_groups_without_a_wanted_hash_are_not_read(tmp_path: Path) -> None:
    files = BucketFiles(tmp_path)
    (tmp_path / PENDING.table).mkdir()
    many = entries(PENDING, {"h": list(range(40_000)), "key": [f"[{n}]" for n in range(40_000)]})
    written = files.write(PENDING, 0, many)
    assert values(files.newest(PENDING, [written], [12_345]), "key") == ["[12345]"]
    assert files.read_bytes < written.size / 3


def test_many_files_of_a_bucket_are_joined(tmp_path: Path) -> None:
    form, files = CopyForm(BY_ORDER), BucketFiles(tmp_path)
    (tmp_path / BY_ORDER.name).mkdir()
    there: list[BucketFile] = []
    for turn in range(1, 30):
        files.changes.clear()
        row = (turn % 3, 1)[: len(BY_ORDER.relation.columns)]
        files.add(form.entries, 0, there, form.table([(5, turn == 29, row, "", None)], turn))
        gone = {change.path for change in files.changes if change.rows < 0}
        there = [file for file in there if file.path not in gone]
        there += [BucketFile(one.path, one.size) for one in files.changes if one.rows >= 0]
    assert len(there) < 10
    found = files.newest(form.entries, there)
    assert sorted(zip(form.rows(found), values(found, "gone"), strict=True)) == [
        ((0, 1), False), ((1, 1), False), ((2, 1), True)
    ]  # fmt: skip


def published(name: str, number: int, turn: int, *, gone: bool = False) -> Any:
    """One document that is published, or went."""
    digest = None if gone else b"x" * 16
    return entries(PUBLISHED, {"h": [number], "turn": [turn], "gone": [gone], "key": [name], "digest": [digest]})


def live(folder: Path, listed: list[BucketFile]) -> list[str]:
    """The keys of a bucket that did not go."""
    found = BucketFiles(folder).newest(PUBLISHED, listed)
    return [key for key, gone in zip(values(found, "key"), values(found, "gone"), strict=True) if not gone]


@pytest.mark.parametrize("turned", range(9))
def test_h258_a_deletion_stays_where_files_are_of_one_size(turned: int, tmp_path: Path) -> None:
    (tmp_path / PUBLISHED.table).mkdir()
    names = [f"[{number}]" for number in range(9)]
    first = BucketFiles(tmp_path)
    there = [first.write(PUBLISHED, 0, published(name, n, 1)) for n, name in enumerate(names)]
    assert len({file.size for file in there}) == 1, "they tie for the largest"
    there = [*there[turned:], *there[:turned]]
    for number, name in enumerate(names):
        files = BucketFiles(tmp_path)
        files.add(PUBLISHED, 0, there, published(name, number, 2, gone=True))
        went = [one.path for one in files.changes if one.rows < 0]
        assert sorted(went) == sorted(file.path for file in there), "each is joined, and goes once"
        after = [BucketFile(one.path, one.size) for one in files.changes if one.rows >= 0]
        assert sorted(live(tmp_path, after)) == sorted({*names} - {name})


def test_h258_a_file_that_is_named_twice_is_not_committed(tmp_path: Path) -> None:
    made, files = tables(tmp_path), BucketFiles(tmp_path)
    written = files.write(PENDING, 0, keys("[1]"))
    made.commit(files.changes)
    before = made.versions()
    files.changes.clear()
    files.gone(PENDING, 0, [written, written])
    files.write(PUBLISHED, 0, published("[1]", 1, 1))
    with pytest.raises(CdcError, match=r"names the file .* of the table pending .* twice") as refused:
        made.commit(files.changes)
    assert refused.value.exit is Exit.BUG
    again = tables(tmp_path)
    assert again.versions() == before, "no table has a version more"
    assert again.files(PENDING.table, before[PENDING.table])[0] == [written]


def test_v4_versions_without_a_manifest_are_taken_back(tmp_path: Path) -> None:
    made, files = tables(tmp_path), BucketFiles(tmp_path)
    files.write(PENDING, 3, keys("[1]"))
    made.commit(files.changes)
    reached = Reached(plan="p", generation=1)
    manifest = ViewManifest(reached=reached, buckets=4, versions=made.versions(), due=KEYS_DUE, below=Fence(1, 8))
    made.note(manifest.to_json())
    files.changes.clear()
    files.write(PENDING, 2, keys("[2]"))
    made.commit(files.changes)

    again = tables(tmp_path)
    found = ViewManifest.from_json(str(again.document()))
    assert found == manifest
    versions = again.restore(found.versions)
    assert again.files(PENDING.table, versions[PENDING.table]).keys() == {3}
    looked, listed = stored_manifest(tmp_path)
    assert looked == manifest
    assert listed[PENDING.table].keys() == {3}
    assert again.clean({name: [version] for name, version in versions.items()}, 0) == 1
    assert again.files(PENDING.table, versions[PENDING.table]).keys() == {3}


def test_h240_a_table_older_than_its_manifest_is_refused(tmp_path: Path) -> None:
    made, files = tables(tmp_path), BucketFiles(tmp_path)
    files.write(PENDING, 3, keys("[1]"))
    made.commit(files.changes)
    versions = made.versions()
    shutil.rmtree(tmp_path / PENDING.table)
    with pytest.raises(ConfigError, match=r"the table pending .* is older than its manifest") as refused:
        tables(tmp_path).restore(versions)
    assert "cdc view rebuild" in refused.value.hint


def test_h243_a_runner_without_its_lock_writes_nothing(tmp_path: Path) -> None:
    one, other = tables(tmp_path), tables(tmp_path)
    first, second = BucketFiles(tmp_path), BucketFiles(tmp_path)
    first.write(PENDING, 3, keys("[1]"))
    one.commit(first.changes)
    one.note("of one")
    second.write(PENDING, 2, keys("[2]"))
    with pytest.raises(ActiveError, match="another runner writes the state of the view in") as refused:
        other.commit(second.changes)
    assert refused.value.exit is Exit.ACTIVE
    with pytest.raises(ActiveError):
        other.note("of other")
    again = tables(tmp_path)
    assert again.files(PENDING.table, again.versions()[PENDING.table]).keys() == {3}
    assert again.document() == "of one"


def test_a_file_that_went_stays_for_its_hours_however_old(tmp_path: Path) -> None:
    """Somebody may be reading it. Delta looks at when it went, and of a file in no version at when it was written."""
    made, files = DeltaTables(tmp_path, [PENDING], SYSTEM_CLOCK), BucketFiles(tmp_path)
    went, stays, written = (files.write(PENDING, 0, keys(name)) for name in ("[1]", "[2]", "[3]"))
    made.commit(files.changes[:2])
    files.changes.clear()
    files.gone(PENDING, 0, [went])
    made.commit(files.changes)
    of_old = files.write(PENDING, 0, keys("[4]"))
    old_s = time.time() - 7_200
    for file in (went, stays, of_old):
        os.utime(made.path(PENDING.table, file), (old_s, old_s))
    assert made.clean({name: [version] for name, version in made.versions().items()}, 1) == 1
    there = {one.path for one in (went, stays, written, of_old) if made.path(PENDING.table, one).exists()}
    assert there == {went.path, stays.path, written.path}


def test_h567_a_frozen_runner_removes_no_files_of_the_other(tmp_path: Path) -> None:
    """It was frozen for two hours just before it cleans, and somebody else has kept the state meanwhile."""
    frozen = DeltaTables(tmp_path, [PENDING], SYSTEM_CLOCK)
    known = frozen.versions()
    other, files = DeltaTables(tmp_path, [PENDING], SYSTEM_CLOCK), BucketFiles(tmp_path)
    written = files.write(PENDING, 0, keys("[1]"))
    other.commit(files.changes)
    _aged([other.path(PENDING.table, written)], 7_200)
    with pytest.raises(ActiveError, match="another runner writes the state of the view in"):
        frozen.clean({name: [version] for name, version in known.items()}, 1)
    assert other.path(PENDING.table, written).exists()


def test_h568_a_table_that_rested_can_be_taken_back(tmp_path: Path) -> None:
    """For longer than Delta keeps its log. The batch that is not finished is the one at which it sums its log up."""
    often = {"delta.checkpointInterval": "3"}
    schema = pa.schema([*PENDING.schema, ("bucket", pa.int32())])
    DeltaTable.create(tmp_path / PENDING.table, schema, partition_by=["bucket"], configuration=often)
    made = DeltaTables(tmp_path, [PENDING], SYSTEM_CLOCK)
    _added(made, tmp_path, 1)
    versions = made.versions()
    made.note("of these")
    log = tmp_path / PENDING.table / "_delta_log"
    _aged(log.iterdir(), 40 * 86_400)
    _added(made, tmp_path, 2)
    assert [*log.glob("*2.checkpoint.parquet")]
    again = DeltaTables(tmp_path, [PENDING], SYSTEM_CLOCK)
    taken = again.restore(versions)
    assert len(again.files(PENDING.table, taken[PENDING.table])[0]) == 1
    again.clean({name: [version] for name, version in taken.items()}, 1)
    assert not [*log.glob("*1.json")], "of old versions nothing stays for ever"
    assert len(again.files(PENDING.table, taken[PENDING.table])[0]) == 1


def _added(tables_of: DeltaTables, folder: Path, number: int) -> None:
    """One version more, of one file more."""
    files = BucketFiles(folder)
    files.write(PENDING, 0, keys(f"[{number}]"))
    tables_of.commit(files.changes)


def _aged(paths: Iterable[Path], age_s: float) -> None:
    """Files as if they were written so long ago."""
    for path in paths:
        os.utime(path, (time.time() - age_s, time.time() - age_s))


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="the state of the view cannot be kept in") as refused:
        tables(tmp_path / "file" / "state")
    assert refused.value.exit is Exit.CONFIG


def test_the_records_of_a_key_stay_in_one_piece(tmp_path: Path) -> None:
    (tmp_path / DOCUMENTS.table).mkdir()
    files = BucketFiles(tmp_path)
    records = [
        ViewRecord("t", 0, key, value, [("pos", b"1")])
        for key, value in ((b"a", b"1"), (b"b", b"2"), (b"b", None), (b"c", b"3"))
    ]
    path = tmp_path / DOCUMENTS.table / files.write(DOCUMENTS, 0, documents_table(records)).path
    end = ViewRecord("t", 0, b"mark", b"", [])
    found = list(staged_pieces([path], "t", 2, [end]))
    assert [([record.key for record in piece], last) for piece, last in found] == [
        ([b"a", b"b", b"b"], False), ([b"c", b"mark"], True)
    ]  # fmt: skip
    assert found[0][0] == records[:3]
