"""What a user may ask for, and what is refused in a sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import CdcError, ConfigError, UsageError
from cdc.record.position import Lsn
from spark.frames.options import NAMES, read_options

BASE = {"bootstrap_servers": "k:9092", "pipeline": "shop", "table": "public.orders"}


def refused(**options: str) -> CdcError:
    with pytest.raises(CdcError) as failed:
        read_options(BASE | options)
    assert failed.value.message
    assert failed.value.hint
    return failed.value


def test_options_become_what_was_asked_for() -> None:
    options = read_options(
        {
            **BASE,
            "Retyped": "cast",
            "as_of": "0/16B3D48",
            "slots": "8",
            "kafka.security.protocol": "ssl",
            "kafka.sasl.password": "env:PASSWORD",
            "kafka.sasl.username": "file:/run/user",
        }
    )
    assert (options.tables, options.retyped, options.as_of) == (("public.orders",), "cast", Lsn.parse("0/16B3D48"))
    assert options.slots == 8
    assert options.client == (("security.protocol", "ssl"),)
    assert options.secrets == (("sasl.password", "env:PASSWORD"), ("sasl.username", "file:/run/user"))


@pytest.mark.parametrize(
    "name",
    [
        "kafka.sasl.password",
        "kafka.ssl.key.password",
        "kafka.ssl.key.pem",
        "kafka.sasl.oauthbearer.client.secret",
        "kafka.sasl.oauthbearer.config",
        "kafka.sasl.jaas.config",
        "password",
        "TOKEN",
    ],
)
def test_h168_a_secret_as_itself_is_refused(name: str) -> None:
    error = refused(**{name: "hunter2"})
    assert isinstance(error, ConfigError)
    assert name.lower() in error.message
    assert "hunter2" not in error.message + error.hint


@pytest.mark.parametrize("value", ["http://cdc:hunter2@host:1", "host=h password=hunter2"])
def test_h168_a_login_within_a_value_is_refused(value: str) -> None:
    error = refused(bootstrap_servers=value)
    assert "hunter2" not in error.message + error.hint


def test_what_is_public_stands_as_itself() -> None:
    options = read_options(
        {**BASE, "kafka.ssl.ca.location": "/etc/ca.pem", "kafka.sasl.oauthbearer.token.endpoint.url": "https://h/t"}
    )
    assert dict(options.client)["ssl.ca.location"] == "/etc/ca.pem"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tabel": "x"}, "did you mean table"),
        ({"path": "public.orders"}, "without a path"),
        ({"table": "orders"}, 'write "public.orders"'),
        ({"tables": "public.a"}, "by the option table, or several by tables"),
        ({"raw": "yes"}, "true, false"),
        ({"retyped": "null"}, "fail, cast"),
        ({"as_of": "16B3D48"}, "no LSN"),
        ({"slots": "-1"}, "whole number"),
        ({"starting_offsets": "soon"}, "topic, partition and offset"),
        ({"starting_offsets": "[1]"}, "topic, partition and offset"),
        ({"starting_offsets": '{"t":{"0":-1}}'}, "topic, partition and offset"),
        ({"starting_offsets": '{"headrace":1,"topics":{"t":7}}'}, "topic, partition and offset"),
        ({"as_of": "0/1", "starting_offsets": "latest"}, "takes no offsets"),
        ({"pipeline": " "}, "the option pipeline is missing"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_makes_no_sense_is_refused(options: dict[str, str], words: str) -> None:
    error = refused(**options)
    assert words in f"{error.message} {error.hint}"


def test_several_tables_are_for_raw_alone() -> None:
    several = {"bootstrap_servers": "k:1", "pipeline": "shop", "tables": "public.a, public.b*"}
    with pytest.raises(UsageError, match="raw = true alone"):
        read_options(several)
    assert read_options(several | {"raw": "True"}).tables == ("public.a", "public.b*")


@pytest.mark.parametrize("name", ["as_of", "ending_offsets"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(UsageError, match="a stream has no end"):
        read_options(BASE | {name: "0/1" if name == "as_of" else "{}"}, streaming=True)


def test_offsets_may_be_those_of_a_streams_progress() -> None:
    place = '{"headrace":1,"pipeline":"shop","topics":{"t":{"id":"x","offsets":{"0":5,"1":-2}}}}'
    assert read_options(BASE | {"starting_offsets": place}).starting == {"t": {0: 5, 1: -2}}


@given(st.sampled_from(sorted(NAMES)), st.text())
def test_any_value_is_taken_or_refused_in_a_sentence(name: str, value: str) -> None:
    try:
        read_options(BASE | {name: value})
    except CdcError as error:
        assert error.message
