"""The Delta tables of a view's state, as the driver commits and lists them. Executors see files alone.

Each batch gives its tables new versions. They count once the manifest's table has a version that names them, so a batch
that was not finished leaves versions that nobody reads. They are restored away at the next start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from cdc.clock import Clock
from cdc.crash import crash_point, declare
from cdc.errors import ActiveError, CdcError, ConfigError
from cdc.foreign import quoted
from cdc.views.state_faults import StateAway, opening_fault
from cdc.views.view_manifest import ViewManifest
from spark.views.bucket_files import BucketFile, EntryForm, FileChange, values

MANIFEST = "manifest"
_BUCKET = "bucket"
_MANIFEST_SCHEMA = pa.schema([("document", pa.string())])
_UNMERGED = CommitProperties(max_commit_retries=0)
"""Otherwise Delta puts a commit behind those that others have made meanwhile."""
_LOG_STAYS = PostCommitHookProperties(cleanup_expired_logs=False)
"""Otherwise Delta removes the log behind the manifest's version with each checkpoint, once that is a month old: of a
table that rests for so long, and then has a batch that is not finished (H568)."""
declare("view_before_table", "view_after_table", "view_before_manifest", "view_after_manifest")


def stored_manifest(root: Path) -> tuple[ViewManifest, Mapping[str, Mapping[int, Sequence[BucketFile]]]]:
    """The newest manifest below a folder, and the files of each table at its versions: to look, not to write.

    OSError (FileNotFoundError where it is empty), DeltaError or DamagedError where there is none that can be read.
    """
    text = DeltaTable(str(root / MANIFEST)).to_pyarrow_table().column("document").to_pylist()
    if not text:
        raise FileNotFoundError(f"no manifest in {root}")
    manifest = ViewManifest.from_json(str(text[0]))
    versions = manifest.versions.items()
    return manifest, {name: _listed(DeltaTable(str(root / name), version=version)) for name, version in versions}


def _listed(table: DeltaTable) -> Mapping[int, Sequence[BucketFile]]:
    actions = pa.table(table.get_add_actions(flatten=True)).to_pydict()
    found: dict[int, list[BucketFile]] = {}
    columns = (actions["path"], actions["size_bytes"], actions[f"partition.{_BUCKET}"])
    for path, size, bucket in zip(*columns, strict=True):
        found.setdefault(int(bucket), []).append(BucketFile(path, size))
    return found


class DeltaTables:
    """The tables below a folder. For one thread, and one process at a time. ``forms``: of all but the manifest's.

    ``around`` is called before and behind each commit: what it raises is a kill there. ConfigError where the folder
    is wrong by itself, StateAway where it cannot be used now. Later, ActiveError where another runner writes there.
    """

    def __init__(
        self, root: Path, forms: Iterable[EntryForm], clock: Clock, around: Callable[[], None] | None = None
    ) -> None:
        self._root = root
        self._clock = clock
        self._around = around or (lambda: None)
        self._forms = {form.table: form for form in forms}
        self._tables: dict[str, DeltaTable] = {}
        self._listed: dict[tuple[str, int], Mapping[int, Sequence[BucketFile]]] = {}
        try:
            root.mkdir(parents=True, exist_ok=True)
            # Before the tables: none of them is older than it then, whoever writes meanwhile.
            self._manifest = self._opened(MANIFEST, _MANIFEST_SCHEMA, [])
            for name, form in self._forms.items():
                schema = pa.schema([*form.schema, (_BUCKET, pa.int32())])
                self._tables[name] = self._opened(name, schema, [_BUCKET])
        except (OSError, DeltaError, pa.ArrowException) as failure:
            hint = "[views.NAME] state names a folder that this machine and all executors share"
            raise opening_fault(root, failure, hint) from None

    def _opened(self, name: str, schema: pa.Schema, partition_by: list[str]) -> DeltaTable:
        path = self._root / name
        if not DeltaTable.is_deltatable(str(path)):
            DeltaTable.create(str(path), schema=schema, mode="ignore", partition_by=partition_by)
        return DeltaTable(str(path))

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """StateAway in place of what Delta and the folder's disk raise (V17)."""
        try:
            yield
        except (OSError, DeltaError, pa.ArrowException) as failure:
            raise StateAway(
                f"the state of the view in {self._root} cannot be read or written: {quoted(failure)}",
                hint="see that its disk has room, that executors see the folder, and that no other runner uses it",
            ) from None

    @contextmanager
    def _alone(self, table: DeltaTable, made: int = 1) -> Iterator[None]:
        """A commit to a table, or as many as ``made`` says. ActiveError where another runner has made one since the
        table was looked at: the lock beside the folder does not hold between machines on every mount (H243)."""
        before = table.version()
        refused: CommitFailedError | None = None
        with self.guarded():
            try:
                yield
            except CommitFailedError as failure:
                refused = failure
            table.update_incremental()
            more = table.version() - before
            if refused is not None and not more:
                raise refused
        if refused is not None or more != made:
            raise ActiveError(
                f"another runner writes the state of the view in {self._root}", hint="one runner per view: end it"
            )

    def document(self) -> str | None:
        """The newest manifest. None before the first."""
        with self.guarded():
            found = self._manifest.to_pyarrow_table().column("document").to_pylist()
            return found[0] if found else None

    def versions(self) -> dict[str, int]:
        """The newest version of each table."""
        return {name: table.version() for name, table in self._tables.items()}

    def restore(self, versions: Mapping[str, int]) -> dict[str, int]:
        """Take back what came behind these versions. Returns versions with the same content, which are the newest.

        ConfigError where a table has no such version yet: it is not the one that was written.
        """
        for name, version in versions.items():
            if self._tables[name].version() < version:
                raise ConfigError(
                    f"the table {name} of the state in {self._root} is older than its manifest: it was made anew, or "
                    "copied back",
                    hint="cdc view rebuild throws the state away, and the next cdc view run builds it anew",
                )
        for name, version in versions.items():
            table = self._tables[name]
            if table.version() > version:
                with self._alone(table):
                    table.restore(version, commit_properties=_UNMERGED, post_commithook_properties=_LOG_STAYS)
        return self.versions()

    def files(self, name: str, version: int) -> Mapping[int, Sequence[BucketFile]]:
        """The files of each bucket at a version."""
        found = self._listed.get((name, version))
        if found is None:
            with self.guarded():
                found = _listed(DeltaTable(str(self._root / name), version=version))
            self._listed = {known: files for known, files in self._listed.items() if known[0] != name}
            self._listed[name, version] = found
        return found

    def count(self, name: str, version: int) -> int:
        """About how many rows a table has at a version: rows that were replaced are counted as well."""
        with self.guarded():
            actions = pa.table(DeltaTable(str(self._root / name), version=version).get_add_actions(flatten=True))
        return sum(map(int, values(actions, "num_records"))) if "num_records" in actions.column_names else 0

    def commit(self, changes: Iterable[FileChange], emptied: Sequence[str] = ()) -> None:
        """One new version of each table that has changes. ``emptied``: tables of which nothing else stays.

        CdcError, and nothing is committed, where a file is named twice: then another one is not where it should be.
        """
        by_table: dict[str, list[FileChange]] = {name: [] for name in emptied}
        named: set[tuple[str, str]] = set()
        for change in changes:
            if (change.table, change.path) in named:
                raise CdcError(
                    f"a batch names the file {change.path} of the table {change.table} of the state in {self._root} "
                    "twice: nothing of it is committed",
                    hint="this is a fault of Headrace: please report it. cdc view rebuild builds the state anew",
                )
            named.add((change.table, change.path))
            by_table.setdefault(change.table, []).append(change)
        for name in sorted(by_table):
            if by_table[name] or self._tables[name].file_uris():
                crash_point("view_before_table")
                self._around()
                with self._alone(self._tables[name]):
                    self._commit(name, by_table[name], name in emptied)
                self._around()
                crash_point("view_after_table")

    def _commit(self, name: str, changes: Sequence[FileChange], emptied: bool) -> None:
        now_ms = self._clock.now_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = []
        for one in changes:
            within: dict[str, str | None] = {_BUCKET: str(one.bucket)}
            if one.rows >= 0:
                stats = json.dumps({"numRecords": one.rows})
                actions.append(AddAction(one.path, one.size, within, now_ms, True, stats))
            else:
                actions.append(RemoveAction(one.path, True, now_ms, one.size, within))
        schema = pa.schema([*self._forms[name].schema, (_BUCKET, pa.int32())])
        self._tables[name].create_write_transaction(
            actions,
            "overwrite" if emptied else "append",
            schema,
            [_BUCKET],
            commit_properties=_UNMERGED,
            post_commithook_properties=_LOG_STAYS,
        )

    def note(self, document: str) -> None:
        """A new manifest: the one commit of a batch."""
        crash_point("view_before_manifest")
        self._around()
        with self._alone(self._manifest):
            row = pa.table({"document": [document]}, schema=_MANIFEST_SCHEMA)
            write_deltalake(self._manifest, row, mode="overwrite", commit_properties=_UNMERGED)
        self._around()
        crash_point("view_after_manifest")

    def path(self, name: str, file: BucketFile) -> Path:
        """Where a file lies."""
        return self._root / name / file.path

    def clean(self, keep: Mapping[str, Sequence[int]], hours: int) -> int:
        """Remove files that no version among ``keep`` and no newer one has, and that went so long ago, and the logs of
        versions before the newest, once they are a month old. Returns how many files.

        ActiveError, and nothing is removed, where another runner has made a version: its files stand in none that is
        known here (H567).
        """
        useless: list[Path] = []
        for name, table in [*self._tables.items(), (MANIFEST, self._manifest)]:
            kept = [*keep[name]] if name in keep else None
            with self._alone(table, made=0):
                # Before that is seen. So a process may be frozen behind it: what comes then is not among these.
                found = table.vacuum(hours, enforce_retention_duration=False, full=kept is not None, keep_versions=kept)
            useless += [self._root / name / path for path in found]
        with self.guarded():
            for path in useless:
                path.unlink(missing_ok=True)
            for table in self._tables.values():
                table.cleanup_metadata()
        return len(useless)

    def size_bytes(self) -> int:
        """Of all files of the newest versions."""
        return sum(
            file.size
            for name, table in self._tables.items()
            for files in self.files(name, table.version()).values()
            for file in files
        )
