"""Rules of ``connectors/kafka``."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

_SCHEDULES = "tests/faults/test_schedules.py"
_COMPACTED = "tests/unit/connectors/kafka/test_compacted.py"
_DOUBTED = "tests/unit/connectors/kafka/test_broker_answers.py"

MUTANTS = (
    Mutant(
        "take a question that was never sent for a fault", "connectors/kafka/broker_answers.py",
        "    KafkaError._TIMED_OUT_QUEUE,\n", "", "tests/unit/connectors/kafka/test_compacted_feed.py",
    ),
    Mutant(
        "give a record up after a while", "connectors/kafka/clients.py",
        '"message.timeout.ms": 0,', '"message.timeout.ms": 300_000,', "tests/unit/connectors/kafka/test_clients.py",
    ),
    Mutant(
        "let a closed log's records arrive", "connectors/kafka/stream_log.py",
        "        self._producer.purge()\n", "", "tests/unit/connectors/kafka/test_log.py",
    ),
    Mutant(
        "send on behind a lane's first record", "connectors/kafka/stream_log.py",
        "            self._hand_over(behind)\n        self.settle()", "            self._hand_over(behind)",
        "tests/unit/connectors/kafka/test_log.py",
    ),
    Mutant(
        "send on behind a large record", "connectors/kafka/stream_log.py",
        'partial(self._large_delivered, lane, key))\n                self.settle()',
        "partial(self._large_delivered, lane, key))", "tests/unit/connectors/kafka/test_log.py",
    ),
    Mutant(
        "ask for the cluster by the call that librdkafka may end the process in", "connectors/kafka/admin.py",
        'return str(self._metadata("asking for the cluster").cluster_id)',
        "return str(self._client.describe_cluster(request_timeout=_TIMEOUT_S).result().cluster_id)",
        "tests/unit/connectors/kafka/test_cluster.py",
    ),
    Mutant(
        "look at no tail", "connectors/kafka/topic_ends.py",
        "return {**ahead, **look(tails)}", "return {**ahead}", _SCHEDULES,
    ),
    Mutant(
        "forget which partitions are ahead of the progress", "connectors/kafka/topic_ends.py",
        "return {**ahead, **look(tails)}", "return look(tails)", _SCHEDULES,
    ),
    Mutant(
        "forget after a restart which partitions are ahead", "connectors/kafka/stream_log.py",
        "self._newest[lane] = position.text().encode()", "pass", _SCHEDULES,
    ),
    Mutant(
        "take one partition's report for all", "connectors/kafka/stream_log.py",
        "group.left -= 1", "group.left = 0", _SCHEDULES,
    ),
    Mutant(
        "do not compare offsets", "connectors/kafka/stream_log.py",
        "if offset != expected - 1:", "if offset > expected:", "tests/unit/connectors/kafka",
    ),
    Mutant(
        "say nothing of a failed record", "connectors/kafka/stream_log.py",
        "            self._fail(refusal(error, topic, None, self._settings))\n            return\n",
        "            return\n", _SCHEDULES,
    ),
    Mutant(
        "call a topic well that lost its beginning", "connectors/kafka/topic_problems.py",
        "for topic, parts in first.items() if any(parts.values()))", "for topic, parts in first.items() if not parts)",
        "tests/unit/connectors/kafka/test_admin.py -k h166",
    ),
    Mutant(
        "say nothing of a topic with too few replicas in sync", "connectors/kafka/topic_problems.py",
        "if one.in_sync < (", "if one.in_sync < 0 * (",
        "tests/unit/connectors/kafka/test_topic_problems.py",
    ),
    Mutant(
        "believe a broker that has just started (H579)", "connectors/kafka/broker_answers.py",
        "if clock.monotonic() >= until_s:", "if True:", "tests/unit/connectors/kafka/test_broker_answers.py",
    ),
    Mutant(
        "believe a broker that names no topic (Y7)", "connectors/kafka/broker_answers.py",
        "if named or clock.monotonic() >= until_s:", "if True:", "tests/unit/connectors/kafka/test_passing_errors.py",
    ),
    Mutant(
        "take a broker that went for a refusal (H580)", "connectors/kafka/broker_answers.py",
        "    KafkaError._DESTROY_BROKER,\n", "", _COMPACTED,
    ),
    Mutant(
        "take a topic without a leader for none (H580)", "connectors/kafka/compacted_topic.py",
        "return stands(topic, where.partition) or _unsure(topic)", "return stands(topic, where.partition)", _COMPACTED,
    ),
    Mutant(
        "take partitions that are not known for none (H580)", "connectors/kafka/compacted_topic.py",
        "            if found is not None and error is None:\n", "            if found is not None:\n", _COMPACTED,
    ),
    Mutant(
        "take an end that is hidden for a read one (H581)", "connectors/session/late_records.py",
        "if end is not None and offset < end:", "if False:", "tests/integration/capture/test_visibility.py -k h581",
    ),
    Mutant(
        "believe a broker that stood still (H582)", "connectors/kafka/broker_answers.py",
        "while (missing := wanted - found.keys()) and clock.monotonic() < until_s:",
        "while (missing := wanted - found.keys()) and False:", _DOUBTED,
    ),
    Mutant(
        "believe a broker about the end of a new topic (H582)", "connectors/kafka/broker_answers.py",
        "            if clock.monotonic() >= until_s:\n                raise\n", "            raise\n", _DOUBTED,
    ),
    Mutant(
        "take a topic that is not known yet for a refused one (H583)", "connectors/kafka/broker_answers.py",
        "    if unknown:\n        raise LogError(", "    if unknown:\n        raise TopicError(", _DOUBTED,
    ),
    Mutant(
        "take a replica's end for the leader's (H584)", "connectors/kafka/compacted_topic.py",
        "return shown >= end or shown >= ask()[1]", "return True", _COMPACTED,
    ),
    Mutant(
        "wait for records that are gone (H584)", "connectors/kafka/compacted_topic.py",
        "return shown >= end or shown >= ask()[1]", "return shown >= end", _COMPACTED,
    ),
    Mutant(
        "go on with progress that hides a newer one (H592)", "connectors/kafka/topic_ends.py",
        "            raise hidden((topic, 0), shown, end)", "            return",
        "tests/unit/connectors/kafka/test_tail.py",
    ),
    Mutant(
        "look at no end of the progress topic (H592)", "connectors/kafka/topic_ends.py",
        "        require_shown(lambda: bounds(consumer, where, settings)[1], topic, end)", "        where.offset = 0",
        "tests/integration/capture/test_visibility.py -k h592",
    ),
    Mutant(
        "follow a topic to a replica's end (H584)", "connectors/kafka/feed.py",
        "return end is not None and self._shown >= end", "return True",
        "tests/unit/connectors/kafka/test_compacted_feed.py",
    ),
)  # fmt: skip
