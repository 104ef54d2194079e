"""Records about a whole table."""

from __future__ import annotations

import orjson
import pytest

from cdc.record.position import Position
from cdc.wire.records import Floor, read_floor, sweep_key, sweep_value, truncate_key

FLOOR = Position(1, 0xABCDEF8, 0).text()
POS = Position(1, 0x2000, 7).text()
ROWLESS = b'{"before":null,"op":"t"}'


def test_a_truncate_is_its_own_floor() -> None:
    assert read_floor(truncate_key("public.orders"), None, POS) == Floor(POS, 1)
    assert orjson.loads(truncate_key('a"b.orders')) == {"__truncate": 'a"b.orders'}
    assert orjson.loads(sweep_key('a"b.orders')) == {"__sweep": 'a"b.orders'}


def test_a_sweep_mark_says_its_floor_and_its_partitions() -> None:
    value = sweep_value(ROWLESS, FLOOR, 4)
    assert orjson.loads(value) == {"before": None, "op": "t", "sweep": {"floor": FLOOR, "partitions": 4}}
    assert read_floor(sweep_key("public.orders"), value, POS) == Floor(FLOOR, 4)
    assert read_floor(sweep_key("t"), sweep_value(ROWLESS, FLOOR, 1), POS) == Floor(FLOOR, 1), "of one partition"


SILENT = "a sweep mark does not say its floor and its partitions"
ELSEWHERE = "a sweep mark's floor is not a position"


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        (b"[]", None, "a floor's key is not a JSON object"),
        (b'"__sweep"', None, "a floor's key is not a JSON object"),
        (b'{"id":1}', None, "a floor's key says neither truncate nor sweep"),
        (sweep_key("t"), None, SILENT),
        (sweep_key("t"), b"[]", SILENT),
        (sweep_key("t"), b'{"sweep":{}}', SILENT),
        (sweep_key("t"), b'{"sweep":{"partitions":1}}', SILENT),
        (sweep_key("t"), b'{"sweep":{"floor":"' + FLOOR.encode() + b'"}}', SILENT),
        (sweep_key("t"), sweep_value(ROWLESS, "xyz", 1), SILENT),
        (sweep_key("t"), sweep_value(ROWLESS, "g" * len(POS), 1), SILENT),
        (sweep_key("t"), sweep_value(ROWLESS, "00", 1), ELSEWHERE),
        (sweep_key("t"), sweep_value(ROWLESS, FLOOR[:-1], 1), ELSEWHERE),
        (sweep_key("t"), sweep_value(ROWLESS, FLOOR, 0), ELSEWHERE),
    ],
)
def test_what_is_no_floor_is_refused(key: bytes, value: bytes | None, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        read_floor(key, value, POS)
