"""Whether the connector has passed a place: GTIDs of both servers against sets of single transactions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.mysql.gtid import mariadb_covers, mysql_covers

SERVERS = st.sampled_from(["3e11fa47-71ca-11e1-9e33-c80aa9429562", "0-db58b0ae", "3e11fa47:tag"])
TRANSACTIONS = st.sets(st.tuples(SERVERS, st.integers(1, 12)))


def mysql_text(transactions: set[tuple[str, int]], joined: bool) -> str:
    """As a server prints it, or with each transaction an interval of its own."""
    parts = []
    for server in sorted({server for server, _ in transactions}):
        numbers = sorted(number for of, number in transactions if of == server)
        spans: list[list[int]] = []
        for number in numbers:
            if joined and spans and spans[-1][1] + 1 == number:
                spans[-1][1] = number
            else:
                spans.append([number, number])
        parts.append(":".join([server, *(f"{a}-{b}" if a < b else str(a) for a, b in spans)]))
    return ",\n".join(parts)


@given(TRANSACTIONS, TRANSACTIONS, st.booleans(), st.booleans())
def test_h131_a_set_of_mysql_covers_what_it_holds_and_no_more(
    passed: set[tuple[str, int]], wanted: set[tuple[str, int]], one: bool, other: bool
) -> None:
    assert mysql_covers(mysql_text(passed, one), mysql_text(wanted, other)) == (wanted <= passed)


@given(st.dictionaries(st.integers(0, 3), st.integers(0, 9)), st.dictionaries(st.integers(0, 3), st.integers(0, 9)))
def test_h131_mariadbs_numbers_rise_in_a_domain_over_servers(passed: dict[int, int], wanted: dict[int, int]) -> None:
    def text(held: dict[int, int], server: int) -> str:
        return ",".join(f"{domain}-{server}-{number}" for domain, number in held.items())

    covered = all(passed.get(domain, -1) >= number for domain, number in wanted.items())
    assert mariadb_covers(text(passed, 2), text(wanted, 1)) == covered


@pytest.mark.parametrize("text", ["x", "0-1", "0-1-x", "0-1-2-3"])
def test_what_is_no_gtid_of_mariadb_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not|unpack"):
        mariadb_covers(text, "")


@pytest.mark.parametrize("text", ["uuid", "uuid:", ":1", "uuid:1-x"])
def test_what_is_no_set_of_mysql_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a GTID set|invalid literal"):
        mysql_covers(text, "")
