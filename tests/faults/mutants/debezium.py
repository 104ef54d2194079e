"""Rules of ``connectors/debezium`` and ``connectors/connect``."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "let a login in a connector's URL pass", "connectors/debezium/connector_status.py",
        "if _has_login(rest) or", "if", "tests/unit/connectors/debezium/test_secrecy.py",
    ),
    Mutant(
        "let a reference beside a secret excuse it", "connectors/debezium/connector_status.py",
        "return bool(rest.strip())\n", "return rest == value\n", "tests/unit/connectors/debezium/test_secrecy.py",
    ),
    Mutant(
        "leave the schema history without TLS and login", "connectors/debezium/connector_config.py",
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
        "give a table a topic that was another's", "cdc/capture/topic_specs.py",
        "elif before is None and topic in known.topics:", "elif False:", "tests/unit/cdc/test_kept_topics.py",
    ),
    Mutant(
        "pass over a published table that joins", "connectors/connect/connector_publication.py",
        "not (str(table) in known.tables and _listed(listed, str(table)))", "False",
        "tests/unit/connectors/connect/test_published.py",
    ),
    Mutant(
        "take the topics of excluded tables", "connectors/debezium/captured_tables.py",
        "return not _meets(source.exclude, table) and _meets", "return _meets",
        "tests/unit/connectors/debezium/test_tables.py",
    ),
    Mutant(
        "send a snapshot's signal to a connector that passes it over", "connectors/connect/signalling.py",
        'if kind == "blocking" or running.get', 'if kind or running.get',
        "tests/unit/connectors/debezium/test_tables.py",
    ),
    Mutant(
        "keep the schemas of captured tables alone", "connectors/debezium/binlog.py",
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
        "ask for the rows of what joined when it counts as known", "connectors/connect/connector.py",
        "                if there and self.offsets():\n"
        "                    asked = self._ask(waiting, added, published)\n"
        "                elif there and running is None:\n"
        "                    self._refuse_former_rows()\n"
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
        "                    self._refuse_former_rows()\n"
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
        "take every table for read where the connector is gone", "connectors/connect/connector_publication.py",
        "    if known is None:\n        return done\n",
        "    if known is None or running is None:\n        return done\n",
        "tests/unit/connectors/connect/test_published.py",
    ),
    Mutant(
        "take a configuration for the proof of a reading", "connectors/connect/connector_states.py",
        "    return tuple(dict.fromkeys([*newly_taken(settings, known.running), *new]))",
        "    return tuple(newly_taken(settings, known.running))",
        "tests/unit/connectors/connect/test_joined.py",
    ),
    Mutant(
        "take a request for a reading", "connectors/connect/joined_tables.py",
        "    return {table: at_ms for table, at_ms in waiting.items() if table not in read}", "    return {}",
        "tests/integration/debezium/test_joining.py -k forgotten",
    ),
    Mutant(
        "wait for older transactions in the deploy that publishes alone", "connectors/connect/connector_publication.py",
        "waits = bool(done.added or known.due) and", "waits = bool(added) and",
        "tests/integration/debezium/test_joining.py -k older_transaction",
    ),
    Mutant(
        "take a table for empty whose rows do not show yet", "connectors/connect/joined_tables.py",
        "    asked = [table for table, at_ms in waiting.items() if at_ms]", "    asked = [*waiting]",
        "tests/integration/debezium/test_joining.py -k do_not_show",
    ),
    Mutant(
        "take a record behind a handover's end for one of the log", "spark/records/translate.py",
        "if offset >= handed_over.get(topic, {}).get(partition, offset + 1):", "if False:",
        "tests/unit/spark/test_debezium.py -k h91",
    ),
    Mutant(
        "give a record under another key before it is noted", "spark/records/translate.py",
        "                self._keyed_anew(topic)\n", "                pass\n",
        "tests/unit/spark/test_debezium.py -k h230",
    ),
    Mutant(
        "take the key of a topic made anew for another one", "spark/records/translate.py",
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
        "tests/unit/cdc/rebuild/test_run.py",
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
        "            if unread:\n", "            if False:\n", "tests/unit/cdc/handover/test_run.py",
    ),
)  # fmt: skip
