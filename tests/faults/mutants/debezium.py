"""Rules of ``connectors/debezium`` and ``connectors/connect``."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "believe the offsets of the epoch before", "connectors/debezium/source_progress.py",
        "lsn = None if epochs.unsettled else self._shown(list(self._ask()))", "lsn = self._shown(list(self._ask()))",
        "tests/unit/connectors/debezium/test_progress.py",
    ),
    Mutant(
        "let a login in a connector's URL pass", "connectors/debezium/hidden_options.py",
        "if _has_login(rest) or", "if", "tests/unit/connectors/debezium/test_secrecy.py",
    ),
    Mutant(
        "let a reference beside a secret excuse it", "connectors/debezium/hidden_options.py",
        "return bool(rest.strip())\n", "return rest == value\n", "tests/unit/connectors/debezium/test_secrecy.py",
    ),
    Mutant(
        "leave the schema history without TLS and login", "connectors/debezium/kafka_clients.py",
        "        yield from _HISTORY_CLIENTS\n", "        yield from ()\n",
        "tests/unit/connectors/debezium/test_secrecy.py",
    ),
    Mutant(
        "take a connector that exists for a rebalance", "connectors/debezium/client.py",
        'words.endswith("already exists")', "False", "tests/unit/connectors/debezium/test_client.py",
    ),
    Mutant(
        "leave SQL Server's database out of a renamed topic", "connectors/debezium/assignments.py",
        "usual = tables.usual_topic(settings, spelled(table))", 'usual = f"{settings.name}.{table}"',
        "tests/unit/connectors/debezium/test_tables.py",
    ),
    Mutant(
        "let names that Debezium writes alike be parted", "connectors/debezium/assignments.py",
        "        yield from _unparted(settings, list(captured))\n", "",
        "tests/unit/connectors/debezium/test_assignments.py",
    ),
    Mutant(
        "let a router move on what one before it made", "connectors/debezium/assignments.py",
        "if other != table and meant[other] != topic:", "if False:",
        "tests/unit/connectors/debezium/test_assignments.py",
    ),
    Mutant(
        "give a table a topic that was another's", "cdc/kept_topics.py",
        "elif before is None and topic in known.topics:", "elif False:", "tests/unit/cdc/test_kept_topics.py",
    ),
    Mutant(
        "pass over a published table that joins", "connectors/connect/published.py",
        "not (str(table) in known.tables and _listed(listed, str(table)))", "False",
        "tests/unit/connectors/connect/test_published.py",
    ),
    Mutant(
        "take the topics of excluded tables", "connectors/debezium/captured_tables.py",
        "return not _meets(source.exclude, table) and _meets", "return _meets",
        "tests/unit/connectors/debezium/test_tables.py",
    ),
    Mutant(
        "send a snapshot's signal to a connector that passes it over", "connectors/connect/signal_rules.py",
        'if kind == "blocking" or running.get', 'if kind or running.get',
        "tests/unit/connectors/debezium/test_tables.py",
    ),
    Mutant(
        "keep the schemas of captured tables alone", "connectors/debezium/schema_history.py",
        'store.only.captured.tables.ddl": "false"', 'store.only.captured.tables.ddl": "true"',
        "tests/unit/connectors/debezium/test_config.py",
    ),
    Mutant(
        "deploy records that sinks cannot read", "connectors/debezium/connector_config.py",
        "    refuse_unreadable(settings, debezium)\n", "", "tests/unit/connectors/debezium/test_tables.py",
    ),
    Mutant(
        "take a proxy's page for a deed", "connectors/debezium/client.py",
        "            if document is None:\n", "            if False:\n",
        "tests/unit/connectors/debezium/test_client.py",
    ),
    Mutant(
        "believe a connector whose stored offsets stand still", "connectors/connect/streaming.py",
        "    if last.offsets != first.offsets:\n", "    if True:\n",
        "tests/unit/connectors/connect/test_streaming.py",
    ),
    Mutant(
        "pass another server with higher positions over in silence", "cdc/wire/debezium/falls.py",
        "                self.moved = ServerMove(self._last, origin.server)\n", "                pass\n",
        "tests/unit/cdc/wire/debezium/test_falls.py",
    ),
    Mutant(
        "begin no epoch in topics of a name of their own", "connectors/connect/connector_epochs.py",
        ' or topic in renamed]', ']', "tests/unit/connectors/connect/test_connector_epochs.py",
    ),
    Mutant(
        "deny a signal that is gone", "connectors/connect/asked_snapshots.py",
        "(signals[0][0] > 0 and signals[0][1] > since_ms)", "False",
        "tests/integration/log/test_asked_snapshots.py -k h221",
    ),
    Mutant(
        "deny a snapshot that begins by itself", "connectors/connect/asked_snapshots.py",
        "    return own or not known or", "    return not known or",
        "tests/integration/log/test_asked_snapshots.py -k h221",
    ),
    Mutant(
        "ask for the rows of what joined when it counts as known", "connectors/connect/connector.py",
        "                if there and self.offsets():\n"
        "                    asked = self._ask(waiting, added, published)\n"
        "                elif there and running is None:\n"
        "                    note_unread(self._settings, {})  # its first snapshot reads every table\n"
        "                prepare_topics(self._settings, published.tables)\n"
        "                if running is None or changes:\n"
        "                    self.client.put_config(self.name, wanted)\n",
        "                prepare_topics(self._settings, published.tables)\n"
        "                if running is None or changes:\n"
        "                    self.client.put_config(self.name, wanted)\n"
        "                if there and self.offsets():\n"
        "                    asked = self._ask(waiting, added, published)\n"
        "                elif there and running is None:\n"
        "                    note_unread(self._settings, {})  # its first snapshot reads every table\n",
        "tests/integration/debezium/test_joining.py -k waits_for_the_next",
    ),
    Mutant(
        "ask a connector that runs for the rows of what joined", "connectors/connect/connector.py",
        "            if known.running is not None:\n                self.stop()\n",
        "            if known.running is not None:\n                pass\n",
        "tests/integration/debezium/test_joining.py -k waits_for_the_next",
    ),
    Mutant(
        "leave a connector stopped behind a refused deploy", "connectors/connect/connector.py",
        "            if goes_on:\n", "            if False:\n",
        "tests/integration/debezium/test_joining.py -k refused_deploy",
    ),
    Mutant(
        "take every table for read where the connector is gone", "connectors/connect/published.py",
        "    if known is None:\n        return done\n",
        "    if known is None or running is None:\n        return done\n",
        "tests/unit/connectors/connect/test_published.py",
    ),
    Mutant(
        "take a configuration for the proof of a reading", "connectors/connect/joined.py",
        "    return tuple(dict.fromkeys([*newly_taken(settings, known.running), *new]))",
        "    return tuple(newly_taken(settings, known.running))",
        "tests/unit/connectors/connect/test_joined.py",
    ),
    Mutant(
        "take a request for a reading", "connectors/connect/unread_tables.py",
        "    return {table: at_ms for table, at_ms in waiting.items() if table not in read}", "    return {}",
        "tests/integration/debezium/test_joining.py -k forgotten",
    ),
    Mutant(
        "wait for older transactions in the deploy that publishes alone", "connectors/connect/published.py",
        "waits = bool(done.added or known.due) and", "waits = bool(added) and",
        "tests/integration/debezium/test_joining.py -k older_transaction",
    ),
    Mutant(
        "take a table for empty whose rows do not show yet", "connectors/connect/unread_tables.py",
        "    asked = [table for table, at_ms in waiting.items() if at_ms]", "    asked = [*waiting]",
        "tests/integration/debezium/test_joining.py -k do_not_show",
    ),
    Mutant(
        "leave a lone tombstone below its row in the store (H570)", "sinks/fill.py",
        'lifted(batch.pos[n], stood.get(batch.keys[n], ""))', "batch.pos[n]",
        "tests/contract/test_unplaced_deletes.py -k memory",
    ),
    Mutant(
        "delete the row of a later epoch by a lone tombstone (H570)", "cdc/wire/unplaced.py",
        "return max(pos, stored) if stored[:_EPOCH_CHARS] == pos[:_EPOCH_CHARS] else pos", "return max(pos, stored)",
        "tests/contract/test_unplaced_deletes.py -k memory",
    ),
    Mutant(
        "drop a lone tombstone below a floor (H570)", "sinks/batch_plan.py",
        "pc.or_(pc.greater_equal(rows[POS], floor), unplaced(rows))", "pc.greater_equal(rows[POS], floor)",
        "tests/contract/test_unplaced_deletes.py -k memory",
    ),
    Mutant(
        "remember a lone tombstone below a floor (H570)", "sinks/fill.py", "if pos < readable.floor}", "if not pos}",
        "tests/contract/test_unplaced_deletes.py -k memory",
    ),
    Mutant(
        "place a lone tombstone at a later row of its key (H570)", "spark/translate.py",
        "(min(pos, above) if key == change.key else above)", "above", "tests/unit/spark/test_lone_deletes.py",
    ),
    Mutant(
        "place a lone tombstone beyond a record unread (H570)", "spark/translate.py",
        "            behind.pop(place, None)\n", "            pass\n", "tests/unit/spark/test_lone_deletes.py",
    ),
    Mutant(
        "place a lone tombstone of an epoch in the one before (H570)", "cdc/wire/debezium/reading.py",
        "max(self.highest or lowest, lowest)", "self.highest or lowest",
        "tests/unit/cdc/wire/debezium/test_lone_tombstones.py",
    ),
    Mutant(
        "read a first tombstone's key without its schema (H570)", "cdc/wire/debezium/reading.py",
        "found if self._rows_read else self._by_its_schema(found, key)", "found",
        "tests/unit/cdc/wire/debezium/test_lone_tombstones.py",
    ),
    Mutant(
        "let sinks take a first tombstone for settled (H570)", "connectors/debezium/partition_reading.py",
        "lone=True", "lone=False",
        "tests/integration/spark/test_compacted_deletes.py",
    ),
    Mutant(
        "take a row read from its table for a lone tombstone's place (H576)", "spark/translate.py",
        " and row.told[1] != _READ", "", "tests/unit/spark/test_lone_deletes.py",
    ),
    Mutant(
        "place a lone tombstone above what is sent again (H576)", "spark/translate.py",
        "key == change.key else above)", "key == change.key else max(pos, above))",
        "tests/unit/spark/test_lone_deletes.py",
    ),
    Mutant(
        "let a lone tombstone lend its place (H576)", "cdc/wire/debezium/reading.py",
        "isinstance(found, DebeziumChange) and not found.lone", "isinstance(found, DebeziumChange)",
        "tests/unit/cdc/wire/debezium/test_lone_tombstones.py",
    ),
    Mutant(
        "settle a tombstone by a delete long before it (H576)", "cdc/wire/debezium/reading.py",
        "deleted == (key, offset - 1)", "deleted is not None and deleted[0] == key",
        "tests/unit/cdc/wire/debezium/test_lone_tombstones.py",
    ),
    Mutant(
        "let a letter's row win over its lone tombstone (H578)", "sinks/newest.py",
        "lifted(pos, highest.get(key, \"\"))", "pos", "tests/contract/test_unplaced_deletes.py -k memory",
    ),
    Mutant(
        "take the cleaner's gap for an older reading (H571)", "connectors/connect/connector_epochs.py",
        "return first is not None and (first.offset() or 0) < end", "return start < end",
        "tests/integration/log/test_table_readings.py -k h571",
    ),
    Mutant(
        "take an epoch for noted by one partition (H572)", "connectors/connect/connector_epochs.py",
        "if all(epochs.began(topic, p) >= start for p, start in starts[topic].items()):",
        "if epochs.began(topic, partition) >= offset:", "tests/integration/log/test_table_readings.py -k h572",
    ),
    Mutant(
        "take a first tombstone for settled (H570)", "cdc/wire/debezium/reading.py",
        "if self.highest is None and not self._lone:", "if self.highest is None:",
        "tests/unit/cdc/wire/debezium/test_lone_tombstones.py",
    ),
)  # fmt: skip
