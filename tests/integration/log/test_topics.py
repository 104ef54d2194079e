"""Topics that go while they are looked at."""

from __future__ import annotations

from collections.abc import Iterable

from cdc.settings import parse
from cdc.topic_specs import table_topic_spec
from connectors.kafka.admin import TopicAdmin
from tests.waiting import wait_until


def test_h62_a_topic_goes_while_it_is_described(kafka: str, topic_prefix: str) -> None:
    """A description asks twice, for the topic and for its settings. One that goes in between is none, and no error."""
    document = {
        "name": topic_prefix,
        "source": {"dsn": "host=none", "tables": ["public.*"]},
        "log": {"bootstrap_servers": kafka, "partitions": 1},
    }
    log = parse(document).log
    goes, stays = f"{topic_prefix}.public.goes", f"{topic_prefix}.public.stays"
    other = TopicAdmin(log)
    other.create(table_topic_spec(log, topic) for topic in (goes, stays))

    class Between(TopicAdmin):
        """Another client deletes one of them between the two questions."""

        def _configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
            other.delete([goes])
            wait_until(lambda: goes not in other.names(), 60)
            return super()._configs(topics)

    assert sorted(Between(log).describe([goes, stays])) == [stays]
    assert not other.describe([goes])
