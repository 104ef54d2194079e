"""Rules of ``connectors/debezium``."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "let a login in a connector's URL pass", "connectors/debezium/secrecy.py",
        "if _has_login(rest) or", "if", "tests/unit/connectors/debezium/test_secrecy.py",
    ),
    Mutant(
        "let a reference beside a secret excuse it", "connectors/debezium/secrecy.py",
        "return bool(rest.strip())\n", "return rest == value\n", "tests/unit/connectors/debezium/test_secrecy.py",
    ),
    Mutant(
        "leave the schema history without TLS and login", "connectors/debezium/config.py",
        "for prefix in (*signals, *history) if", "for prefix in signals if",
        "tests/unit/connectors/debezium/test_secrecy.py",
    ),
    Mutant(
        "take a connector that exists for a rebalance", "connectors/debezium/client.py",
        'words.endswith("already exists")', "False", "tests/unit/connectors/debezium/test_client.py",
    ),
    Mutant(
        "leave SQL Server's database out of a topic", "connectors/debezium/databases.py",
        '        schema = f"{_database(settings)}.{schema}"\n', "        pass\n",
        "tests/unit/connectors/debezium/test_tables.py",
    ),
    Mutant(
        "let names that Debezium writes alike be parted", "connectors/debezium/config.py",
        "    yield from ((one, alike) for one in", "    yield from ((one, alike) for one in () or",
        "tests/unit/connectors/debezium/test_assignments.py",
    ),
    Mutant(
        "let a router move on what one before it made", "connectors/debezium/config.py",
        'if topic.startswith((f"{settings.name}.", "__debezium-heartbeat.")):', "if False:",
        "tests/unit/connectors/debezium/test_assignments.py",
    ),
    Mutant(
        "take a pattern where nobody is asked what it meets", "connectors/debezium/config.py",
        "for text in filter(is_pattern, settings.source.tables):", "for text in ():",
        "tests/unit/connectors/debezium/test_tables.py",
    ),
    Mutant(
        "give a table a topic that was another's", "cdc/capture/topic_specs.py",
        "elif before is None and topic in known.topics:", "elif False:", "tests/unit/cdc/capture/test_kept_topics.py",
    ),
    Mutant(
        "take every table for read where the connector is gone", "connectors/debezium/tables.py",
        "if running is not None and includes(running, table)}", "if running is None or includes(running, table)}",
        "tests/unit/connectors/debezium/test_joined.py",
    ),
    Mutant(
        "take a configuration for the proof of a reading", "connectors/debezium/tables.py",
        "for table in tables if str(table) not in read)", "for table in () if str(table) not in read)",
        "tests/unit/connectors/debezium/test_joined.py",
    ),
    Mutant(
        "send a snapshot's signal to a connector that passes it over", "connectors/debezium/snapshots.py",
        'if not by_log and not running.get("signal.data.collection"):', "if False:",
        "tests/unit/connectors/debezium/test_tables.py",
    ),
    Mutant(
        "keep the schemas of captured tables alone", "connectors/debezium/databases.py",
        'store.only.captured.tables.ddl": "false"', 'store.only.captured.tables.ddl": "true"',
        "tests/unit/connectors/debezium/test_config.py",
    ),
    Mutant(
        "deploy records that sinks cannot read", "connectors/debezium/config.py",
        "    _refuse_unreadable(settings, debezium)\n", "", "tests/unit/connectors/debezium/test_tables.py",
    ),
    Mutant(
        "take a proxy's page for a deed", "connectors/debezium/client.py",
        "            if document is None:\n", "            if False:\n",
        "tests/unit/connectors/debezium/test_client.py",
    ),
    Mutant(
        "believe a connector whose stored offsets stand still", "connectors/debezium/offsets.py",
        "return Streaming.READS if last.offsets != first.offsets else", "return Streaming.READS if True else",
        "tests/unit/connectors/debezium/test_streaming.py",
    ),
    Mutant(
        "ask for the rows of what joined when it counts as known", "connectors/debezium/connector.py",
        "                if there:\n"
        "                    snapshot = self._ask(waiting, asked, unread, gone=running is None)\n"
        "                topics.prepare_topics(self._settings, tables)\n"
        "                if running is None or changes:\n"
        "                    self.client.put_config(self.name, wanted)\n",
        "                topics.prepare_topics(self._settings, tables)\n"
        "                if running is None or changes:\n"
        "                    self.client.put_config(self.name, wanted)\n"
        "                if there:\n"
        "                    snapshot = self._ask(waiting, asked, unread, gone=running is None)\n",
        "tests/integration/debezium/test_joining.py -k waits_for_the_next",
    ),
    Mutant(
        "ask a connector that runs for the rows of what joined", "connectors/debezium/connector.py",
        "            if there:\n                self._stop_or_make()\n",
        "            if there:\n                pass\n",
        "tests/integration/debezium/test_joining.py -k waits_for_the_next",
    ),
    Mutant(
        "go on reading a table that is captured no more", "connectors/debezium/offsets.py",
        'kept = [each for each in reading if keep(text(each[f"{_COLLECTIONS}_id"]))]', "kept = reading",
        "tests/unit/connectors/debezium/test_stored_offsets.py",
    ),
    Mutant(
        "forget what is read already where more is asked for", "connectors/debezium/offsets.py",
        "_COLLECTIONS: orjson.dumps([*kept, *asked]).decode()", "_COLLECTIONS: orjson.dumps(asked).decode()",
        "tests/unit/connectors/debezium/test_stored_offsets.py",
    ),
    Mutant(
        "ask for a table that cannot be read in parts", "connectors/debezium/snapshots.py",
        "    problems = unparted_tables(settings, tables)\n", "    problems = unparted_tables(settings, ())\n",
        "tests/integration/debezium/test_joining.py -k compare",
    ),
    Mutant(
        "leave a connector stopped behind a refused deploy", "connectors/debezium/connector.py",
        "            if goes_on:\n", "            if False:\n",
        "tests/integration/debezium/test_joining.py -k refused_deploy",
    ),
    Mutant(
        "take a request for a reading", "connectors/debezium/snapshots.py",
        "    return {table: at_ms for table, at_ms in waiting.items() if table not in read}", "    return {}",
        "tests/integration/debezium/test_joining.py -k without_its_rows",
    ),
    Mutant(
        "wait for older transactions in the deploy that publishes alone", "connectors/debezium/connector.py",
        "self._askable(added) if there and added else", "self._askable(added) if there and joined else",
        "tests/integration/debezium/test_joining.py -k older_transaction",
    ),
    Mutant(
        "take a table for empty whose rows do not show yet", "connectors/debezium/snapshots.py",
        "    asked = [table for table, at_ms in waiting.items() if at_ms]", "    asked = [*waiting]",
        "tests/integration/debezium/test_joining.py -k do_not_show",
    ),
    Mutant(
        "take a record behind a handover's end for one of the log", "spark/records/debezium_records.py",
        "if offset >= handed_over.get(topic, {}).get(partition, offset + 1):", "if False:",
        "tests/unit/spark/test_debezium.py -k h91",
    ),
    Mutant(
        "give a record under another key before it is noted", "spark/records/debezium_records.py",
        "                self._keyed_anew(topic)\n", "                pass\n",
        "tests/unit/spark/test_debezium.py -k h230",
    ),
    Mutant(
        "take the key of a topic made anew for another one", "spark/records/debezium_records.py",
        "newest.oid == shape.oid and ", "", "tests/unit/spark/test_debezium.py -k h230",
    ),
    Mutant(
        "read a lone tombstone's key as it stands", "cdc/wire/debezium/reading.py",
        "names if newest is None else readable_key(newest, names, precise=self._precise)", "names",
        "tests/unit/cdc/wire/debezium/test_read.py -k h570",
    ),
    Mutant(
        "pass a row on that lacks values", "cdc/wire/debezium/reading.py",
        "    if lacking:\n", "    if False:\n", "tests/unit/cdc/wire/debezium/test_read.py -k h125",
    ),
    Mutant(
        "apply a batch of a topic that was made anew", "spark/stores/place_check.py",
        "if found is None or found.topic_id != self._topics.ids.get(topic, found.topic_id):", "if found is None:",
        "tests/unit/spark/test_its_place.py",
    ),
    Mutant(
        "go on behind another leader", "spark/stores/place_check.py",
        "if found != self._known.setdefault(topic, found):", "if False:", "tests/unit/spark/test_its_place.py",
    ),
    Mutant(
        "switch to a generation before the snapshot is over", "cdc/operate/rebuild.py",
        "            if whole is None or not has_read", "            if whole is not None and not has_read",
        "tests/unit/cdc/operate/test_rebuild.py",
    ),
    Mutant(
        "count what moves as a difference by offsets", "cdc/verification/passes.py",
        "return difference.key in seen and seen[difference.key] == difference.pos", "return difference.key in seen",
        "tests/unit/cdc/verification/test_looks.py",
    ),
    Mutant(
        "write a row of Debezium's above its next change", "cdc/verification/repair.py",
        "pos if at is None else at", "pos", "tests/unit/cdc/verification/test_repair.py",
    ),
    Mutant(
        "hand over beside a reading that began meanwhile", "cdc/operate/handover.py",
        "            if unread:\n", "            if False:\n", "tests/unit/cdc/operate/test_handover.py",
    ),
)  # fmt: skip
