"""Rules of what joins the source with the log: ``connectors/session`` and its neighbours."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "open the session anew for a topic that Kafka never makes", "connectors/session/captured_topics.py",
        "            if error.retry is not Retry.NEVER:\n                raise\n", "            raise\n",
        "tests/integration/capture/test_refused_topics.py",
    ),
    Mutant(
        "take what was noted when the session began for what is", "connectors/session/session_stream.py",
        "aside=tables.asides.of,", "aside=tables.asides.documents.get,",
        "tests/integration/capture/test_aside.py",
    ),
    Mutant(
        "sweep a partition that is gone before its last change", "connectors/session/partitions.py",
        "after_lsn=found.insert_lsn", "after_lsn=0", "tests/unit/connectors/session/test_partitions.py",
    ),
    Mutant(
        "read a table again for each partition that a subtransaction makes", "connectors/session/partitions.py",
        "found.attached.values()", "found.links.values()", "tests/unit/connectors/session/test_partitions.py",
    ),
    Mutant(
        "take a partition that was attached again for the one that brought the change",
        "connectors/session/partitions.py", "if any(newer)", "if False",
        "tests/unit/connectors/session/test_partitions.py",
    ),
    Mutant(
        "forget partitions that no look has compared when capture dies", "connectors/session/partitions.py",
        "            if news:", "            if False:",
        "tests/unit/connectors/session/test_partition_notes.py",
    ),
    Mutant(
        "let the stream wait for a look's note of what it knows", "connectors/session/partitions.py",
        "        with self._lock:\n            if not self._is_news(",
        "        with self._writing, self._lock:\n            if not self._is_news(",
        "tests/unit/connectors/session/test_partition_notes.py",
    ),
    Mutant(
        "take partitions that a look has not seen for compared", "connectors/session/partitions.py",
        "return dict(self._new.get(table, {}).items() - links.items())", "return {}",
        "tests/unit/connectors/session/test_partition_notes.py",
    ),
    Mutant(
        "look for a partition only where its table can be read at once", "connectors/session/partitions.py",
        "            self._unread.setdefault(before, []).append((relation, xid))", "            pass",
        "tests/unit/connectors/session/test_partitions.py",
    ),
    Mutant(
        "follow a table whose partition logs other old keys", "connectors/session/partitions.py",
        "if found.below and not fits:", "if False:",
        "tests/unit/connectors/session/test_partitions.py",
    ),
    Mutant(
        "follow a table again though a partition logs other old keys", "connectors/session/aside_causes.py",
        "if (now.noted_masks or document.cause is Cause.CHANGED) and not self._agree(session, now, since_lsn):",
        "if False:",
        "tests/integration/capture/test_aside.py -k h147",
    ),
    Mutant(
        "keep a key that was dropped, where the message does not tell it",
        "connectors/postgres/server/catalog_shapes.py",
        "if now is None or now.key or message.identity != Identity.FULL else []", "if True else []",
        "tests/integration/capture/test_aside.py -k h149",
    ),
    Mutant(
        "compare the rest in silence where a listed table is gone", "connectors/operate/verify.py",
        "if table not in here and any(", "if table in here and any(",
        "tests/integration/capture/test_watch.py -k h143",
    ),
    Mutant(
        "let a history that is not published go on", "connectors/session/side_queries.py",
        "                self._fault = why", "                pass",
        "tests/integration/capture/test_aside.py -k h143",
    ),
    Mutant(
        "note that a table is read before it is asked for", "connectors/session/asides.py",
        "[*before, (document.key(), document.to_json())]", "[(document.key(), document.to_json()), *before]",
        "tests/unit/connectors/session/test_asides.py",
    ),
    Mutant(
        "take every later key of a table whose new key was taken once", "connectors/session/asides.py",
        "                self._remedied.pop(name, None)\n            self._accept(name, False)",
        "                self._remedied.pop(name, None)", "tests/unit/connectors/session/test_asides.py",
    ),
    Mutant(
        "keep the lock of what is set aside while the brokers are waited for", "connectors/session/asides.py",
        "        self._state.write([*before, (document.key(), document.to_json())])\n        with self._lock:\n",
        "        with self._lock:\n            self._state.write([*before, (document.key(), document.to_json())])\n",
        "tests/unit/connectors/session/test_aside_notes.py",
    ),
    Mutant(
        "write that a table waits behind why it is set aside", "connectors/session/asides.py",
        "            self._documents = {**self._documents, document.table: document}\n            self._unwritten.pop",
        "            self._documents = {**self._documents, document.table: document}\n            self._remedied.pop",
        "tests/unit/connectors/session/test_aside_notes.py",
    ),
    Mutant(
        "set a history aside", "connectors/session/asides.py",
        "            if self._histories(name):\n", "            if False:\n",
        "tests/unit/connectors/session/test_asides.py",
    ),
    Mutant(
        "read a table that is set aside", "connectors/session/asides.py",
        "        return known.sentence()\n\n    def asked", "        return \"\"\n\n    def asked",
        "tests/unit/connectors/session/test_asides.py",
    ),
    Mutant(
        "read the catalog before the DDL is visible", "connectors/session/relations.py",
        "if not known_so and not self._visible(xid, timeout_s):", "if False:",
        "tests/integration/capture/test_looks.py -k h97_h140",
    ),
    Mutant(
        "take a captured relation's new name for its own", "connectors/session/relations.py",
        "if not former or table in former or self._taken(table, oid):", "if True:",
        "tests/integration/capture/test_looks.py -k swap",
    ),
    Mutant(
        "keep a noted position that the source has not come to", "connectors/session/late_records.py",
        " if Position.parse(text).commit_lsn <= written_lsn", "", "tests/unit/connectors/session/test_mending.py",
    ),
    Mutant(
        "begin with a table whose topic is not noted", "connectors/session/known_tables.py",
        "if not topics.topics.keys() >= written:", "if False:", "tests/unit/connectors/session/test_known_state.py",
    ),
    Mutant(
        "let a bug in a look end its thread", "connectors/session/side_queries.py",
        "            except Exception:\n", "            except ArithmeticError:\n",
        "tests/unit/connectors/session/test_looks.py",
    ),
    Mutant(
        "call a capture well whose loop comes round", "connectors/session/side_queries.py",
        "figures.stuck_since_s = self._mark[1] if now_s - self._mark[1] > STALL_S else None",
        "figures.stuck_since_s = None", "tests/unit/connectors/session/test_looks.py",
    ),
    Mutant(
        "wait for a silent look without a limit", "connectors/session/side_queries.py",
        "_ANSWER_S = 20.0", "_ANSWER_S = 1e9", "tests/integration/capture/test_silent_look.py -k h225",
    ),
)  # fmt: skip
