"""The manual's settings files are good, and give the configuration that is said."""

import re
import tomllib
from pathlib import Path

import pytest

from cdc.settings.model import parse
from connectors.debezium.config import connector_config

MANUAL = (Path(__file__).parents[4] / "connectors" / "debezium" / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", MANUAL, re.DOTALL)


def test_every_database_has_an_example() -> None:
    classes = {connector_config(parse(tomllib.loads(text)))["connector.class"].split(".")[3] for text in EXAMPLES}
    assert classes == {"postgresql", "mariadb", "mongodb", "oracle", "sqlserver"}


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_reads_the_tables_it_names(example: str) -> None:
    settings = parse(tomllib.loads(example))
    config = connector_config(settings)
    listed = config.get("table.include.list") or config["collection.include.list"]
    assert len(listed.split(",")) == len(settings.source.tables)
    assert config["topic.prefix"] == "shop"
