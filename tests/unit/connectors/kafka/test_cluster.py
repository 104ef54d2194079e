"""What is asked of the cluster itself."""

from __future__ import annotations

from cdc.settings.model import LogSettings
from connectors.kafka.admin import TopicAdmin
from tests.unit.connectors.kafka.one_broker import CLUSTER, OneBroker


def test_h151_a_cluster_that_names_no_broker_ends_no_process() -> None:
    with OneBroker() as broker:
        admin = TopicAdmin(LogSettings(bootstrap_servers=f"127.0.0.1:{broker.port}"))
        assert admin.cluster_id() == CLUSTER
        broker.fenced = 5
        assert admin.cluster_id() == CLUSTER
        assert broker.fenced == 0
        broker.fenced = 5
        assert admin.names() == []
