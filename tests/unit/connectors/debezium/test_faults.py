"""Traces of tasks that failed, as they are shown."""

from __future__ import annotations

import pytest

from cdc.checks.findings import Level
from cdc.settings.model import parse
from connectors.debezium.checks import check_connect
from connectors.debezium.status import RESTART, advice, cause, first_line

UNPARSED = """\
org.apache.kafka.connect.errors.ConnectException: An exception occurred in the change event producer.
\tat io.debezium.pipeline.ErrorHandler.setProducerThrowable(ErrorHandler.java:52)
Caused by: io.debezium.DebeziumException: Error processing binlog event
\t... 8 more
Caused by: io.debezium.text.ParsingException: DDL statement couldn't be parsed. Please open a GitHub issue at \
https://github.com/debezium/dbz/issues with the statement 'alter table t
  drop system versioning'
no viable alternative at input 'alter table t drop system'
\tat io.debezium.antlr.ParsingErrorListener.syntaxError(ParsingErrorListener.java:43)
\t... 7 more
Caused by: org.antlr.v4.runtime.NoViableAltException
\tat org.antlr.v4.runtime.atn.ParserATNSimulator.noViableAlt(ParserATNSimulator.java:2028)
\t... 16 more
"""
GONE = f"""\
io.debezium.DebeziumException: The connector is trying to read change stream starting at \
BinlogOffsetContext({"a=1, " * 200}), but this is no longer available on the server. \
Reconfigure the connector to use a snapshot mode when needed.
\tat io.debezium.connector.common.BaseSourceTask.start(BaseSourceTask.java:1)
"""


def test_a_statement_that_debezium_cannot_parse_is_shown() -> None:
    assert cause(UNPARSED).startswith("ParsingException: DDL statement couldn't be parsed.")
    assert "with the statement 'alter table t drop system versioning'" in cause(UNPARSED)
    assert "skip.unparseable.ddl" in advice(cause(UNPARSED))
    assert first_line(UNPARSED).endswith("An exception occurred in the change event producer.")


def test_h127_a_statement_is_shown_without_its_password() -> None:
    told = cause(UNPARSED.replace("drop system versioning", "identified by 'hunter2'"))
    assert "hunter2" not in told
    assert told.endswith("identified by ***")


def test_a_log_that_is_gone_is_said_with_the_way_back() -> None:
    assert cause(GONE) == ""
    told = first_line(GONE)
    assert "but this is no longer available on the server. Reconfigure" in told
    assert len(told) < 410
    assert "resnapshot" in advice(told)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("Encountered change event for table two.b whose schema isn't known to this connector", "resnapshot"),
        (
            'NullPointerException: the return value of "IncrementalSnapshotContext.currentDataCollectionId()" is null',
            "cdc connect signal stop TABLE",
        ),
        ("Compacted topic cannot accept message without key in topic partition shop.two.nk-2", "no primary key"),
    ],
)
def test_a_fault_that_is_known_has_its_own_advice(fault: str, words: str) -> None:
    assert words in advice(fault)


@pytest.mark.parametrize(
    ("trace", "shown"),
    [
        ("", ("", "")),
        ("a.B: boom", ("a.B: boom", "")),
        ("a.B: boom\n\tat y\nCaused by: c.D\n\tat z", ("a.B: boom", "D")),
        (
            "a.B: boom\n\tat y\nCaused by: c.D: plover\nowl\n\tat z\nnot a message",
            ("a.B: boom", "D: plover owl"),
        ),
        ("a.B: " + "long" * 100, (("a.B: " + "long" * 100)[:200] + " ... " + "long" * 50, "")),
    ],
)
def test_any_trace_is_two_lines_at_most(trace: str, shown: tuple[str, str]) -> None:
    assert (first_line(trace), cause(trace)) == shown
    assert advice(shown[1]) == RESTART


def test_a_left_over_section_fails_no_native_pipeline() -> None:
    native = parse(
        {
            "name": "shop",
            "source": {"dsn": "host=h dbname=d user=u", "tables": ["public.a"]},
            "log": {"bootstrap_servers": "127.0.0.1:1"},
            "debezium": {"url": "http://127.0.0.1:1"},
        }
    )
    found = check_connect(native)
    assert {finding.level for finding in found} == {Level.WARN}
    assert "there is a [debezium] section though cdc run captures" in found[0].message
    assert "cannot be reached" in found[1].message
    debezium = native.model_copy(update={"source": native.source.model_copy(update={"kind": "debezium"})})
    assert [finding.level for finding in check_connect(debezium)] == [Level.FAIL]


def test_h154_a_connector_without_gtids_is_named_with_the_remedy() -> None:
    fault = 'NullPointerException: Cannot invoke "GtidSet.toString()" because "this.gtidSet" is null'
    assert "restart begins anew" in advice(fault)
