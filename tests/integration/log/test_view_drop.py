"""The end of a view on a real broker, cut short behind each of its steps and run again."""

from __future__ import annotations

from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from cdc.capture.topic_specs import table_topic_spec
from cdc.process.errors import UsageError
from cdc.record.topic_names import view_topic, views_topic
from cdc.settings.model import Settings, parse
from cdc.views.known_views import KnownView
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.views.view_ending import drop_view
from connectors.views.view_topics import known_views, state_path
from tests.waiting import wait_until


@pytest.fixture
def settings(kafka: str, topic_prefix: str, tmp_path: Path) -> Settings:
    document: dict[str, Any] = {
        "name": topic_prefix,
        "source": {"dsn": "host=none", "tables": ["public.*"]},
        "log": {"bootstrap_servers": kafka, "partitions": 1},
        "views": {"v": {"sql": "v.sql", "state": str(tmp_path)}},
    }
    return parse(document)


def made(settings: Settings) -> Path:
    """A view with a state, whose file it returns."""
    admin, topic = TopicAdmin(settings.log), view_topic(settings.name, "v", 1)
    admin.create([table_topic_spec(settings.log, name) for name in (topic, views_topic(settings.name))])
    topic_id = admin.describe([topic])[topic].topic_id
    known = KnownView(view="v", generation=1, topic=topic, topic_id=topic_id, partitions=1, digest="", shape="")
    KafkaCompactedTopic(settings.log, views_topic(settings.name)).write([(known.key, known.to_json())])
    state = state_path(settings, "v", 1)
    state.write_text("")
    return state


def gone(settings: Settings) -> bool:
    own = view_topic(settings.name, "v", 1)
    return own not in TopicAdmin(settings.log).describe([own])


@pytest.mark.slow
def test_h241_a_drop_that_was_killed_leaves_no_state(settings: Settings) -> None:
    state = made(settings)
    steps = len(list(drop_view(settings, "v")))
    assert steps == 3
    for done in range(1, steps):
        made(settings)
        killed = drop_view(settings, "v")
        assert len(list(islice(killed, done))) == done
        del killed  # Nothing more of it is carried out.
        assert not state.exists(), "it goes first: a view that is made again would go on from it"
        list(drop_view(settings, "v"))
        assert "v" not in known_views(settings).known
        # A busy broker answers for a moment as if what it has deleted were there.
        wait_until(partial(gone, settings), 30, "the topics to go")
    with pytest.raises(UsageError, match="no view v was published"):
        list(drop_view(settings, "v"))
