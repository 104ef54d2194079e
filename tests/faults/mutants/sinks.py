"""Rules of ``sinks``."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

_CONTRACT = "tests/contract"
_MEMORY = f"{_CONTRACT} -k memory"
_REDIS = f"{_CONTRACT} -k redis"

MUTANTS = (
    Mutant(
        "look at a commit's number, and not at which one it is", "sinks/delta/delta_storage.py",
        "return now == self._seen and not", "return not",
        "tests/integration/sinks/test_delta_copies.py -k h505",
    ),
    Mutant(
        "let delta-rs try again upon what others have committed", "sinks/delta/delta_rewrite.py",
        "CommitProperties(max_commit_retries=0)", "CommitProperties()",
        "tests/integration/sinks/test_delta_exchange.py",
    ),
    Mutant(
        "pack the files of a merge by another codec", "sinks/delta/delta_table.py",
        "streamed_exec=False, **PACKED)", "streamed_exec=False)",
        "tests/integration/sinks/test_delta.py",
    ),
    Mutant(
        "take a watermark that claims nothing for another sink's", "spark/stores/place_check.py",
        "if found is None or not found.offsets or not _beyond(", "if found is None or not _beyond(",
        "tests/unit/spark/test_its_place.py",
    ),
    Mutant(
        "copy a batch's rows though all of them count", "sinks/contract/batch_plan.py",
        "_groups(where(winners, rows))", "_groups(winners.filter(rows))", "tests/unit/sinks/contract/test_plan.py",
    ),
    Mutant(
        "give up a table for one value of another form (SQL)", "sinks/sql/sql_rows.py",
        "        if len(keys) == 1:", "        raise error\n        if len(keys) == 1:",
        f"{_CONTRACT}/test_foreign.py -k sqlite",
    ),
    Mutant(
        "take one of several rows under a key for the row (Delta)", "sinks/warehouse/warehouse_rows.py",
        "if count > 1 and one in live", "if count < 0", f"{_CONTRACT}/test_foreign.py -k delta",
    ),
    Mutant(
        "read all stored rows that fill a batch at once", "sinks/contract/store.py",
        "            if left < PORTION_BYTES // 4:", "            if left is None:",
        "tests/unit/sinks/contract/test_fill.py",
    ),
    Mutant(
        "ask for many stored rows whatever their size", "sinks/contract/store.py",
        "max(1, min(most, left // max(1, row_bytes)))", "most", "tests/unit/sinks/contract/test_fill.py",
    ),
    Mutant(
        "give a store all its rows in one piece", "sinks/contract/batch_plan.py",
        "if size >= most_bytes:", "if size < 0:", "tests/unit/sinks/contract/test_plan.py",
    ),
    Mutant(
        "apply an older row (store in memory)", "sinks/contract/memory_store.py",
        "stored.pos > pos", "stored.pos > pos > stored.pos", _MEMORY,
    ),
    Mutant(
        "apply an older row (cache)", "sinks/cache/rows.lua",
        "elseif stored and stored > pos then", "elseif stored and stored > pos and false then", _REDIS,
    ),
    Mutant(
        "ignore a row of the same position", "sinks/contract/memory_store.py",
        "stored.pos > pos", "stored.pos >= pos", _MEMORY,
    ),
    Mutant(
        "forget a delete at once", "sinks/contract/memory_store.py",
        "memory.forget_ns[table, key] = until", "del rows[key]", _MEMORY,
    ),
    Mutant(
        "forget a delete at once (cache)", "sinks/cache/rows.lua",
        "redis.call('PEXPIRE', key, ARGV[1])\n    deleted", "redis.call('DEL', key)\n    deleted", _REDIS,
    ),
    Mutant(
        "let a row expire with the delete before it", "sinks/cache/rows.lua",
        "      redis.call('PERSIST', key)\n    end\n    written", "    end\n    written",
        "tests/integration/sinks/test_cache.py",
    ),
    Mutant(
        "ignore the floor", "sinks/contract/batch_plan.py",
        "return where(rows, pc.greater_equal(rows[POS], floor)) if floor else rows",
        "return rows", _MEMORY,
    ),
    Mutant(
        "keep the floor in mind only", "sinks/contract/store_notes.py",
        "                self._notes.write(name, after.to_json())\n", "", _MEMORY,
    ),
    Mutant(
        "sweep at the first partition's mark", "sinks/contract/store_notes.py",
        "return len(told) >= sweeps[floor][0]", "return bool(told)", _MEMORY,
    ),
    Mutant(
        "sweep what stands at the floor (cache)", "sinks/cache/rows.lua",
        "stored < ARGV[1]", "stored <= ARGV[1]", f"{_CONTRACT}/test_boundaries.py -k redis",
    ),
    Mutant(
        "sweep what stands at the floor (Delta)", "sinks/delta/delta_store.py",
        "f\"{POS} < '{floor}'\"", "f\"{POS} <= '{floor}'\"", f"{_CONTRACT}/test_boundaries.py -k delta",
    ),
    Mutant(
        "sweep what stands at the floor (SQL)", "sinks/sql/sql_store.py",
        "where(table.c[POS] < floor)", "where(table.c[POS] <= floor)", f"{_CONTRACT}/test_boundaries.py -k sqlite",
    ),
    Mutant(
        "sweep before the floor is noted", "sinks/contract/store.py",
        "        for table, floor in self._floors.tell(marks).items():\n",
        "        for mark in marks:\n            self._prepare_for(shapes[mark.table], schemas)\n"
        "            self._store.remove_below(shapes[mark.table], mark.floor)\n"
        "        for table, floor in self._floors.tell(marks).items():\n",
        f"{_CONTRACT}/test_boundaries.py -k memory",
    ),
    Mutant(
        "take a busy search server for one that refuses", "sinks/search/search_bulk.py",
        "_BUSY = frozenset((429, 500,", "_BUSY = frozenset((500,", "tests/unit/sinks/search/test_search_bulk.py",
    ),
    Mutant(
        "take a position over epoch 127", "sinks/contract/newest.py",
        "(digits[:, 6] <= _SEVEN)", "(digits[:, 6] <= 255)", f"{_CONTRACT}/test_refusals.py -k memory",
    ),
    Mutant(
        "take away whatever stands under a key", "sinks/contract/memory_store.py",
        "if key in rows and rows[key].pos == pos:", "if key in rows:",
        f"{_CONTRACT}/test_foreign.py -k memory",
    ),
    Mutant(
        "take the last offset for the newest", "sinks/contract/newest.py",
        'words = _characters(rows[POS]).view(">u8")', 'words = _characters(rows[POS]).view(">u8") * 0',
        "tests/unit/sinks/contract/test_newest.py",
    ),
    Mutant(
        "count a mark for its own sweep alone", "sinks/contract/store_notes.py",
        "if other >= floor", "if other == floor", "tests/unit/sinks/contract/test_rows.py",
    ),
    Mutant(
        "take one of two packages that bring a kind of one name", "sinks/contract/kinds.py",
        "for point in brought}) > 1:", "for point in brought}) > 2:", "tests/unit/sinks/contract/test_kinds.py",
    ),
    Mutant(
        "write a watermark again that was checked before the store went away", "sinks/contract/port.py",
        "        with unrepeated():\n", "        if True:\n", "tests/integration/sinks/test_cache.py -k h162",
    ),
    Mutant(
        "look at a store's place before its rows show", "sinks/contract/port.py",
        "        self.show()\n        self.claim(watermark, check)\n",
        "        self.claim(watermark, check)\n        self.show()\n",
        f"{_CONTRACT}/test_watermarks.py -k h162",
    ),
    Mutant(
        "read notes by a handle of a folder that is gone", "sinks/delta/delta_table.py",
        "self._retry.call(self._updated, again=self._reopen)", "self._retry.call(self._updated)",
        "tests/integration/sinks/test_delta_copies.py -k h481",
    ),
    Mutant(
        "leave below a floor what a killed writer put there", "sinks/delta/delta_store.py",
        "        self._enforce(schema, table)\n", "",
        "tests/integration/sinks/test_delta_copies.py -k h486",
    ),
    Mutant(
        "keep rows below a floor of others", "sinks/contract/store.py",
        "            if floor > before:\n", "            if False:\n",
        "tests/unit/sinks/contract/test_store_steps.py -k h473",
    ),
    Mutant(
        "write a watermark over what a rebuild wrote (Delta)", "sinks/delta/delta_generations.py",
        "self._own.write_upon(", "self._own.write_all(", "tests/integration/sinks/test_delta.py -k h162",
    ),
    Mutant(
        "take either of two spellings of a key at one position", "sinks/contract/batch_plan.py",
        "(batch.pos[n], offsets[n] or 0)", "batch.pos[n]", "tests/unit/sinks/contract/test_plan.py",
    ),
    Mutant(
        "believe a watermark's offset below 0", "cdc/record/progress.py",
        "if lowest < 0", "if False", f"{_CONTRACT}/test_watermarks.py -k h101",
    ),
    Mutant(
        "write on where no reader is led (search)", "sinks/search/search_indexes.py",
        " and not self._led_elsewhere()\n", "\n", "tests/integration/sinks/test_search.py -k h165",
    ),
    Mutant(
        "let tasks keep an index that the alias has left (search)", "sinks/search/search_indexes.py",
        "self._place.look() or (self._follows and self._led_elsewhere())", "self._place.look()",
        "tests/integration/sinks/test_search.py -k h165",
    ),
    Mutant(
        "take a right that is missing for a foreign key (cache)", "sinks/cache/rows.lua",
        "not string.find(stored.err, 'WRONGTYPE', 1, true) then\n    return stored\n  end\n"
        "  if type(stored) == 'table'",
        "false then\n    return stored\n  end\n  if type(stored) == 'table'",
        "tests/integration/sinks/test_least_rights.py -k h223",
    ),
    Mutant(
        "ask for the right to make a schema that exists (SQL)", "sinks/sql/sql_tables.py",
        " or sa.inspect(connection).has_schema(name):", ":", "tests/integration/sinks/test_least_rights.py -k h224",
    ),
    Mutant(
        "take a document for absent whose shard is not there (search)", "sinks/search/search_client.py",
        "                raise _SearchBusy(kind)\n", "                pass\n",
        "tests/integration/sinks/test_search.py -k h263",
    ),
    Mutant(
        "use a row that was read at the reader's own commit", "sinks/cache/cached_values.py",
        "self.token.lsn > since.lsn", "self.token.lsn >= since.lsn",
        "tests/integration/sinks/test_read_through.py",
    ),
    Mutant(
        "wait for another table than is read (order page)", "sinks/cache/examples/order_page.py",
        "tables=[TABLE]", "tables=[]",
        "tests/unit/sinks/cache/examples/test_order_page.py",
    ),
    Mutant(
        "answer before the commit (order page)", "sinks/cache/examples/order_page.py",
        "            connection.commit()\n", "",
        "tests/integration/sinks/test_order_page.py -k cookie",
    ),
    Mutant(
        "let the token go while the store may be behind (order page)", "sinks/cache/examples/order_page.py",
        "KEPT_S = 600", "KEPT_S = 1",
        "tests/unit/sinks/cache/examples/test_order_page.py -k kept",
    ),
    Mutant(
        "use a row from Postgres that the watermark has passed", "sinks/cache/cached_values.py",
        "seen and standing(self.token, watermark) in _NOT_PASSED", "seen",
        "tests/integration/sinks/test_read_through.py -k h269",
    ),
    Mutant(
        "write an older row from Postgres over a newer one", "sinks/cache/rows.lua",
        "kept[2] > ARGV[2]", "kept[2] < ARGV[2]",
        "tests/integration/sinks/test_read_through.py -k h269",
    ),
    Mutant(
        "read a row of the cache that does not show the reader's write", "sinks/cache/cached_rows.py",
        "if not wanted.met(look.watermark()):", "if False:",
        "tests/integration/sinks/test_cached_rows.py -k refused",
    ),
    Mutant(
        "read all keys of a table that Spark merges", "sinks/delta/spark_delta.py",
        "        if not small:\n", "        if False:\n",
        "tests/integration/sinks/test_spark_delta.py -k may_hold",
    ),
    Mutant(
        "measure the gaps between keys by what all begin with", "sinks/warehouse/warehouse_spark.py",
        "key[common : common + _DIGITS]", "key[:_DIGITS]", "tests/unit/sinks/warehouse/test_key_ranges.py",
    ),
    Mutant(
        "let Spark put the environment into a row's key (H491)", "sinks/warehouse/warehouse_spark.py",
        '    "spark.sql.variable.substitute": "false",\n', "", "tests/integration/sinks/test_spark_delta.py -k h491",
    ),
    Mutant(
        "claim what a failed shard does not show (H590)", "sinks/search/search_client.py",
        'if shards["failed"]:', "if False:", "tests/unit/sinks/search/test_search_answers.py",
    ),
    Mutant(
        "take a shard that is nowhere for a replica (H590)", "sinks/search/search_client.py",
        'if shards["successful"] < shards["total"]:', "if False:", "tests/unit/sinks/search/test_search_answers.py",
    ),
    Mutant(
        "replace a place whatever stands there", "sinks/contract/memory_store.py",
        "if not step.fits(self.place(step.schema)):", "if False:", f"{_CONTRACT}/test_places.py -k 'memory and upon'",
    ),
    Mutant(
        "replace a place whatever stands there (SQL)", "sinks/sql/sql_store.py",
        ", table.c[EXACT].in_(map(place_text, step.fit)))", ")", f"{_CONTRACT}/test_places.py -k 'sqlite and upon'",
    ),
    Mutant(
        "take the place of a copied index for its own (search)", "sinks/search/search_indexes.py",
        'if source.get("index") == self._uuids.get(index) else None', "",
        f"{_CONTRACT}/test_places.py -k 'opensearch and older_copy'",
    ),
    Mutant(
        "write a batch's place with a part of its rows", "sinks/contract/store.py",
        "last = readable is versions[-1] and len(portion.batch) == len(readable.batch)", "last = True",
        "tests/unit/sinks/contract/test_store_steps.py",
    ),
    Mutant(
        "let the place share a file with rows (Delta)", "sinks/delta/delta_rewrite.py",
        "        placed = set(places)\n", "        placed = set[int]()\n",
        "tests/integration/sinks/test_delta_copies.py -k file",
    ),
    Mutant(
        "believe a place that is behind what is claimed", "spark/stores/store_tables.py",
        "place.offsets.get(partition, 0) >= offset for", "True for",
        f"{_CONTRACT}/test_places.py -k 'memory and older_copy'",
    ),
    Mutant(
        "read on upon rows that may have missed deletes", "spark/stores/store_tables.py",
        "    if (now_ms - place.level_ms) / 1000 > retention_s:\n", "    if False:\n",
        f"{_CONTRACT}/test_places.py -k 'memory and than_deletes'",
    ),
    Mutant(
        "look at no table that rests", "spark/stores/store_tables.py",
        "        self._look(self._turn())\n", "", f"{_CONTRACT}/test_places.py -k 'memory and runs'",
    ),
)  # fmt: skip
