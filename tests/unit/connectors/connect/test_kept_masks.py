"""Conditions of a signal, and views, beside masks."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.errors import ConfigError
from cdc.settings import Settings, parse
from connectors.connect.kept_masks import cautions_of, require_unmasked


def settings(**sections: Any) -> Settings:
    return parse(
        {
            "name": "shop",
            "source": {"kind": "debezium", "dsn": "host=h user=cdc dbname=app", "tables": ["public.a", "public.b"]},
            "log": {"bootstrap_servers": "127.0.0.1:9092"},
            "debezium": {},
            "tables": {"public.a": {"columns": {"ssn": "drop", "Note": "truncate:40"}}},
            **sections,
        }
    )


@pytest.mark.parametrize("where", ["ssn = '123-45'", "id = 1 or not (\"Note\" like 'x%')", "SSN is not null"])
def test_h323_a_condition_on_a_masked_column_is_refused(where: str) -> None:
    with pytest.raises(ConfigError, match="is masked, and a condition on it would stand in the topic of signals"):
        require_unmasked(settings(), ["public.a"], where)


@pytest.mark.parametrize("where", ["lower(ssn) = 'x'", "id in (select id from a where ssn = '1')", "id = 1 -- ssn"])
def test_h323_one_that_is_not_understood_may_show_a_value(where: str) -> None:
    with pytest.raises(ConfigError, match="is not understood, so that it may show a masked value"):
        require_unmasked(settings(), ["public.a"], where)


def test_other_conditions_and_other_tables_are_as_before() -> None:
    require_unmasked(settings(), ["public.a"], "id > 5 and v = 'x'")
    require_unmasked(settings(), ["public.b"], "lower(ssn) = 'x'")
    require_unmasked(settings(), ["public.a"], None)


def test_h326_a_view_that_runs_is_to_be_started_again() -> None:
    view = {"views": {"v": {"sql": "select id from a"}}}
    assert cautions_of(settings(), ["public.a"]) == () == cautions_of(settings(**view), [])
    (said,) = cautions_of(settings(**view), ["public.a", "public.b"])
    assert said.startswith("public.a, public.b: ") and "end cdc view run, and start it again" in said
