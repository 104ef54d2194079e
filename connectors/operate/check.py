"""The questions of ``cdc check`` to Postgres and Kafka, and the facts that ``cdc diff`` compares the settings with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Self

from cdc.capture.topic_specs import TopicSpec, kept_topic_spec, pipeline_topic_specs, table_topic_spec
from cdc.checks.findings import Finding
from cdc.checks.secrecy import remote_brokers
from cdc.figures.process_status import Process
from cdc.freshness.bounded_ports import OpenedStore
from cdc.operate.diff import Followed, MadeFacts, ViewTexts
from cdc.process.errors import CdcError, TopicError
from cdc.record.ports import Found, Unknown, look
from cdc.record.progress import Watermark
from cdc.record.server_facts import LogFacts, SourceFacts, TopicFault, TopicRights
from cdc.record.state import SlotState, TopicsState
from cdc.record.tables_aside import Unfollowed, stopped_following
from cdc.record.topic_names import state_topic
from cdc.settings.client_options import unused_options
from cdc.settings.model import Settings, is_postgres
from cdc.settings.sink_settings import SinkSettings
from connectors.debezium.client import MissingConnector
from connectors.debezium.connector import Connector
from connectors.debezium.offsets import snapshot_state
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.broker_answers import require_broker
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.topic_problems import copy_problems, cut_problems, in_sync_problems, spec_problems, state_problems
from connectors.operate.status import read_fresh
from connectors.postgres.server.catalog_facts import read_publication, read_relations, read_source
from connectors.postgres.server.connections import LOOK_LIMITS, Connection, connect
from connectors.postgres.server.publication import refused_publication
from connectors.postgres.server.table_selection import takes
from connectors.spark_log.sink_log import NoTables, SinkLog
from connectors.views.view_planning import newest_shapes, plan_view
from connectors.views.view_topics import known_views, unfed_views


class ServerProbes:
    """:class:`cdc.checks.preflight.Probes` on the real servers. Connections open when first asked for."""

    def __init__(self, settings: Settings, store: Callable[[str], Iterable[Finding]]) -> None:
        self._settings = settings
        self.store = store
        self._admin: TopicAdmin | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin = None

    def state(self) -> Mapping[bytes, bytes]:
        self._topics()
        try:
            return KafkaCompactedTopic(self._settings.log, state_topic(self._settings.name)).read()
        except TopicError:
            return {}

    def source(self) -> SourceFacts:
        with closing(self._connect()) as connection:
            found = read_source(connection, self._settings)
            refused = refused_publication(connection, found, self._settings.publication)
            return replace(found, unpublishable=refused)

    def not_followed(self, documents: Mapping[bytes, bytes]) -> Mapping[str, Unfollowed]:
        settings = self._settings
        named = partial(takes, tables=settings.source.tables, exclude=settings.source.exclude)
        with closing(self._connect()) as connection:
            publication = partial(read_publication, connection, settings.publication)
            return stopped_following(documents, named, partial(read_relations, connection), publication)

    def _connect(self) -> Connection:
        return connect(self._settings.source, application_name="cdc", options=LOOK_LIMITS)

    def log(self, topics: list[str], known: TopicsState | None) -> LogFacts:

        log, admin = self._settings.log, self._topics()
        kept = list(_kept_specs(self._settings, known)) if known is not None else []
        events = {spec.topic for spec in kept}
        specs = [table_topic_spec(log, topic) for topic in topics if topic not in events]
        specs += [*pipeline_topic_specs(log, self._settings.name), *kept]
        facts = admin.describe([spec.topic for spec in specs] + list(known.topics if known is not None else ()))
        cluster_id = admin.cluster_id()
        problems = state_problems(known, facts, cluster_id) if known is not None else []
        by_offsets = self._settings.source.kind == "debezium"
        known_specs = [spec for spec in specs if spec.topic in facts]
        problems += [p for spec in known_specs for p in spec_problems(spec, facts[spec.topic], by_offsets=by_offsets)]
        first = admin.first_offsets({topic: facts[topic].partitions for topic in topics if topic in facts})
        problems += [
            *cut_problems(first, _reread(self._settings)),
            *in_sync_problems(facts),
            *copy_problems(facts, admin.brokers()),
        ]
        return LogFacts(
            cluster_id=cluster_id,
            present=tuple(sorted(facts)),
            missing=tuple(spec.topic for spec in specs if spec.topic not in facts),
            faults=tuple(TopicFault(p.message, p.hint, p.fatal) for p in problems),
            rights=self._rights(admin),
            unused=tuple(unused_options(self._settings.log.client)),
        )

    def processes(self) -> Sequence[Process]:
        return read_fresh(self._settings).processes

    def unfed_views(self) -> Sequence[str]:
        return unfed_views(self._settings)

    def _rights(self, admin: TopicAdmin) -> TopicRights | None:
        """Of the state topic. A broker on this machine alone need not check any."""
        rights = admin.rights(state_topic(self._settings.name))
        return rights if rights.checked or remote_brokers(self._settings) else None

    def _topics(self) -> TopicAdmin:
        """The administration client, after one answer: a silent cluster is found out here, once."""

        if self._admin is None:
            require_broker(self._settings.log)
            admin = TopicAdmin(self._settings.log)
            admin.cluster_id()
            self._admin = admin
        return self._admin


def _kept_specs(settings: Settings, known: TopicsState) -> Iterator[TopicSpec]:
    """Of topics of events and histories that were made. One that the settings have no time for keeps its own."""
    outbox = settings.outbox
    for topic in sorted(known.never_compacted):
        keep_ms = settings.history.keep_ms
        if topic in known.events:
            keep_ms = outbox.keep_ms if outbox is not None else 0
        spec = kept_topic_spec(settings.log, topic, keep_ms, known.topics[topic]["partitions"])
        if not keep_ms:
            spec = replace(spec, config={name: one for name, one in spec.config.items() if name != "retention.ms"})
        yield spec


def _reread(settings: Settings) -> str:
    """The command that reads a table again: it depends on the writer of its topic."""
    return "an incremental snapshot" if settings.source.kind == "debezium" else "cdc snapshot TABLE"


def ask_made(
    settings: Settings,
    probes: ServerProbes,
    open_store: Callable[[str], OpenedStore],
    sections: Callable[[str], SinkSettings],
) -> MadeFacts:
    """Ask each part once. One that does not answer is Unknown. ``sections``: of the sinks, by name."""
    documents = look(probes.state)
    topics: Found[TopicsState] = documents if isinstance(documents, Unknown) else TopicsState.find(documents)
    slot: Found[SlotState] = documents if isinstance(documents, Unknown) else SlotState.find(documents)
    source = look(probes.source) if is_postgres(settings) else None
    tables = [] if source is None or isinstance(source, Unknown) else [table.topic for table in source.tables]
    known = None if isinstance(topics, Unknown) else topics
    log = topics if isinstance(topics, Unknown) else look(lambda: probes.log(tables, known))
    stores, views = {}, None
    if known is not None:
        asked = SinkLog(settings, sections)
        stores = {name: followed(partial(_topics, asked, name), partial(open_store, name)) for name in settings.sinks}
        views = look(lambda: _views(settings))
    connector: Found[str] = look(lambda: _connector(settings)) if settings.source.kind == "debezium" else ""
    return MadeFacts(source=source, topics=topics, slot=slot, log=log, connector=connector, stores=stores, views=views)


def _connector(settings: Settings) -> str:
    try:
        return snapshot_state(Connector(settings).offsets())
    except MissingConnector:
        return "missing"


def _topics(log: SinkLog, name: str) -> Iterable[str]:
    return log.topics(name).ids


def followed(topics: Callable[[], Iterable[str]], open_store: Callable[[], OpenedStore]) -> Followed:
    """A store, and the topics that its settings take. Neither is taken for none because it cannot be told."""
    try:
        wanted = frozenset(topics())
    except NoTables:
        wanted = frozenset()
    except CdcError as failure:
        return Followed(watermark=Unknown(failure), wanted=frozenset())

    def watermark() -> Watermark | None:
        with closing(open_store()) as store:
            return store.watermarks.read()

    return Followed(watermark=look(watermark), wanted=wanted)


def _views(settings: Settings) -> ViewTexts:
    published = known_views(settings)
    known = published.known
    shapes = newest_shapes(settings) if settings.views else []
    both = settings.views.keys() & known.keys()
    changed = {name for name in both if plan_view(settings, name, shapes).digest != known[name].digest}
    return ViewTexts(
        published=frozenset(known),
        changed=frozenset(changed),
        unfed=unfed_views(settings),
        streams=frozenset(published.streams),
    )
