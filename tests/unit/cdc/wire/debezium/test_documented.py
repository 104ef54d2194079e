"""Records of SQL Server and Oracle as Debezium's manuals document them, where no server of theirs can be had here."""

from typing import Any

import orjson

from cdc.wire.debezium.reading import DebeziumChange, DebeziumReader
from tests.unit.cdc.wire.debezium.recorded import after


def struct(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "optional": True, "name": name, "fields": list(fields)}


def record(row: dict[str, Any], after_row: dict[str, Any] | None, source: dict[str, Any], op: str) -> bytes:
    schema = struct(
        "Envelope",
        {**row, "field": "before"},
        {**row, "field": "after"},
        {"type": "struct", "field": "source"},
        {"type": "string", "field": "op"},
    )
    payload = {"before": None, "after": after_row, "source": source, "op": op, "ts_ms": 1559729471739}
    return orjson.dumps({"schema": schema, "payload": payload})


SQL_SERVER_ROW = struct(
    "server1.testDB.dbo.customers.Value",
    {"type": "int32", "optional": False, "field": "id"},
    {"type": "string", "optional": False, "field": "first_name"},
    {"type": "int64", "optional": True, "name": "io.debezium.time.NanoTimestamp", "version": 1, "field": "changed"},
)
SQL_SERVER_SOURCE = {
    "version": "3.7.0.Final",
    "connector": "sqlserver",
    "name": "server1",
    "ts_ms": 1559729468470,
    "snapshot": "false",
    "db": "testDB",
    "schema": "dbo",
    "table": "customers",
    "change_lsn": "00000027:00000758:0003",
    "commit_lsn": "00000027:00000758:0005",
    "event_serial_no": "1",
}


def test_sql_server() -> None:
    reader = DebeziumReader()
    row = {"id": 1005, "first_name": "john", "changed": 1_500_000_001}
    found = reader.read(
        "server1.testDB.dbo.customers", 0, b'{"id":1005}', record(SQL_SERVER_ROW, row, SQL_SERVER_SOURCE, "c")
    )
    assert isinstance(found, DebeziumChange)
    assert after(found) == {**row, "changed": "1970-01-01T00:00:01.500000001Z"}
    assert found.schema is not None
    assert str(found.schema.table) == "dbo.customers"
    later = SQL_SERVER_SOURCE | {"change_lsn": "00000027:00000ac0:0002", "commit_lsn": "00000027:00000ac0:0007"}
    updated = reader.read("server1.testDB.dbo.customers", 1, b'{"id":1005}', record(SQL_SERVER_ROW, row, later, "u"))
    assert isinstance(updated, DebeziumChange)
    assert updated.pos > found.pos


ORACLE_ROW = struct(
    "server1.DEBEZIUM.CUSTOMERS.Value",
    {
        "type": "bytes",
        "optional": False,
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "0", "connect.decimal.precision": "9"},
        "field": "ID",
    },
    {
        "type": "struct",
        "optional": True,
        "name": "io.debezium.data.VariableScaleDecimal",
        "fields": [],
        "field": "AMOUNT",
    },
    {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp", "field": "AT"},
)


def test_oracle() -> None:
    source = {
        "version": "3.7.0.Final",
        "name": "server1",
        "ts_ms": 1520085154000,
        "ts_us": 1520085154000000,
        "txId": "6.28.807",
        "scn": "2122185",
        "commit_scn": "2122185",
        "snapshot": False,
        "connector": "oracle",
        "db": "FREE",
        "schema": "DEBEZIUM",
        "table": "CUSTOMERS",
    }
    row = {"ID": "A+w=", "AMOUNT": {"scale": 4, "value": "AYr3"}, "AT": 1520085154000000}
    found = DebeziumReader().read(
        "server1.DEBEZIUM.CUSTOMERS", 0, b'{"ID":"A+w="}', record(ORACLE_ROW, row, source, "c")
    )
    assert isinstance(found, DebeziumChange)
    # A number key reads the same in every record, whatever its bytes.
    assert found.key == b'{"ID":"1004"}'
    assert after(found) == {"ID": "1004", "AMOUNT": "10.1111", "AT": "2018-03-03T13:52:34Z"}
