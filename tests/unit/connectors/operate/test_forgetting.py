"""What a sink's section tells the report of a forgotten key."""

from datetime import timedelta

from cdc.settings.model import Settings
from connectors.operate.forget import durations_of


def test_the_times_of_a_sink_are_those_of_its_section() -> None:
    lake = {"kind": "iceberg", "catalog": "https://lake.example", "prefix": "rest", "snapshots_for": "3h"}
    source, log = {"dsn": "host=db", "tables": ["public.*"]}, {"bootstrap_servers": "127.0.0.1:1"}
    settings = Settings.model_validate({"name": "shop", "source": source, "log": log, "sinks": {"lake": lake}})
    assert durations_of(settings, "lake") == {"snapshots_for": timedelta(hours=3)}
