"""Stores over TLS: a batch there and back, and what is refused. TLS ends in front of the local servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from psycopg.conninfo import conninfo_to_dict

from cdc.process.errors import CdcError, Exit
from sinks.contract.batch import events_of
from sinks.contract.kinds import kind_named, spec_for
from sinks.contract.sink_spec import Option, SinkSpec, attribute, open_sink
from tests.contract.orders import SHAPES, order, statuses
from tests.contract.topics import Topic, at
from tests.tls import Certificate, encrypted, in_front_of, self_signed

KINDS = ("redis", "opensearch", "sql")
Place = Callable[[Certificate], SinkSpec]
"""A store behind TLS, as settings name it that trust an authority."""


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return self_signed(tmp_path)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, certificate: Certificate) -> Iterator[Place]:
    with ExitStack() as exits:

        def front(url: str) -> int:
            return exits.enter_context(in_front_of(urlsplit(url).port or 0, certificate))

        match request.param:
            case "redis":
                url = request.getfixturevalue("redis_url")
                port, number = front(url), urlsplit(url).path
                yield lambda trusted: spec(
                    "redis", {"url": f"rediss://127.0.0.1:{port}{number}?ssl_ca_certs={trusted.made}"}
                )
            case "opensearch":
                prefix = request.getfixturevalue("index_prefix")
                port = front(request.getfixturevalue("opensearch"))
                yield lambda trusted: spec(
                    "opensearch", {"url": f"https://127.0.0.1:{port}", "ca_certs": str(trusted.made)}, prefix
                )
            case _:
                dsn = exits.enter_context(encrypted(request.getfixturevalue("database"), certificate))
                to = conninfo_to_dict(dsn)
                rest = f"sslmode=verify-full&passfile={to['passfile']}"
                url = f"postgresql+psycopg://{to['user']}@127.0.0.1:{to['port']}/{to['dbname']}?{rest}"
                yield lambda trusted: spec("sql", {"url": f"{url}&sslrootcert={trusted.made}"})


def spec(kind: str, options: dict[str, Option], prefix: str = "shop") -> SinkSpec:
    return spec_for(kind, prefix=prefix, options=options)


@pytest.mark.slow
def test_a_batch_goes_over_tls_there_and_back(place: Place, certificate: Certificate) -> None:
    topic = Topic()
    topic.upsert(order(1), at(1))
    trusting = place(certificate)
    attribute(kind_named(trusting.kind).probe, trusting.kind)(trusting)
    with closing(open_sink(trusting)) as sink:
        assert sink.sink.apply(events_of(topic.events), SHAPES).applied == 1
        assert statuses(sink) == {"1": "open"}


def test_another_authority_is_refused(place: Place, tmp_path: Path) -> None:
    other = place(self_signed(tmp_path, "other"))
    with pytest.raises(CdcError) as refused:
        attribute(kind_named(other.kind).probe, other.kind)(other)
    assert refused.value.exit in (Exit.CONFIG, Exit.UNAVAILABLE)
    assert "certificate" in refused.value.message.lower()
    assert refused.value.hint
