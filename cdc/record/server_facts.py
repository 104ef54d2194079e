"""Facts that the edges read for the checks and for ``cdc status``: plain values, as the servers say them. Pure.

What capture needs is called otherwise by each provider of Postgres: their words, with the pages that they are from.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from cdc.record.ports import Found, Unknown
from cdc.record.schema import Identity
from cdc.record.state import SlotIntent, SlotState
from cdc.record.topic_names import TableName


class Provider(NamedTuple):
    """Whose server it is, and how it is set up there.

    ``marks``: prefixes of settings and names of roles that only its servers have. ``logical``: how logical decoding is
    switched on. ``change``: how another setting is, of ``{name}`` and ``{value}``. ``right``: the SQL by which
    ``{role}`` may replicate. ``attribute``: what a role that may is made with. ``keep``: how the WAL of a slot that
    nobody reads is limited. ``statistics``: the predefined role that sees other roles' sessions, of those that the
    provider's administrator may grant. ``password``: how ``{role}`` gets one, a sentence.
    """

    name: str
    marks: frozenset[str]
    logical: str
    change: str
    right: str = "alter role {role} replication;"
    attribute: str = "replication"
    keep: str = "set an alert on the server's storage, and drop a slot that nobody will read again"
    statistics: str = "pg_monitor"
    password: str = "Then give the role a password (in psql: \\password {role})."

    def changing(self, name: str, value: object) -> str:
        """How a setting is changed that only a start of the server takes over."""
        return self.change.format(name=name, value=value)


# https://www.postgresql.org/docs/current/logical-replication-config.html
PLAIN = Provider(
    name="PostgreSQL",
    marks=frozenset(),
    logical="alter system set wal_level = 'logical';   then restart the server",
    change="alter system set {name} = {value};   then restart the server",
    keep="alter system set max_slot_wal_keep_size = '50GB'; select pg_reload_conf();",
    statistics="pg_read_all_stats",
)
_MANAGED = (
    # https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/PostgreSQL.Concepts.General.FeatureSupport.LogicalReplication.html
    # https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/AuroraPostgreSQL.Replication.Logical.Configure.html
    Provider(
        name="Amazon RDS or Aurora",
        marks=frozenset({"rds", "rds_superuser"}),
        logical="set rds.logical_replication = 1 in the parameter group (Aurora: the cluster's), then reboot",
        change="set {name} = {value} in the parameter group (Aurora: the cluster's), then reboot",
        right="grant rds_replication to {role};",
        attribute="",
        keep="set max_slot_wal_keep_size in the parameter group, in MB",
    ),
    # https://cloud.google.com/sql/docs/postgres/replication/configure-logical-replication
    Provider(
        name="Google Cloud SQL",
        marks=frozenset({"cloudsql", "cloudsqlsuperuser"}),
        logical="set the instance's flag cloudsql.logical_decoding = on, which restarts it",
        change="set the instance's flag {name} = {value}, which restarts it",
    ),
    # https://learn.microsoft.com/en-us/azure/postgresql/flexible-server/concepts-logical
    # https://learn.microsoft.com/en-us/azure/postgresql/parameters/parameters-replication-sending-servers
    Provider(
        name="Azure Database for PostgreSQL",
        marks=frozenset({"azure", "azure_pg_admin"}),
        logical="set the server parameter wal_level = logical, save, and restart the server",
        change="set the server parameter {name} = {value}, save, and restart the server",
    ),
    # https://supabase.com/docs/guides/database/postgres/setup-replication-external
    # https://supabase.com/docs/guides/database/custom-postgres-config
    Provider(
        name="Supabase",
        marks=frozenset({"supabase_admin"}),
        logical="Supabase runs with wal_level = logical: see that [source] dsn leads to the project's database",
        change="supabase --experimental postgres-config update --config {name}={value}, which restarts the database",
        keep="supabase --experimental postgres-config update --config max_slot_wal_keep_size=50GB",
    ),
    # https://neon.com/docs/guides/logical-replication-neon
    # https://neon.com/docs/manage/roles: a role needs a password when it is made, and psql's \password hashes it
    Provider(
        name="Neon",
        marks=frozenset({"neon", "neon_superuser"}),
        logical="enable logical replication in the project's settings, which restarts its computes",
        change="ask Neon's support for {name} = {value}",
        password="Before that, create role {role} login replication password '...'; Neon makes none without.",
    ),
)

MARKS = tuple(sorted({mark for provider in _MANAGED for mark in provider.marks}))


def provider_of(settings: Set[str], roles: Set[str]) -> Provider:
    """Whose the server is, :data:`PLAIN` where nothing tells. ``settings``: what stands before the dot of their names.

    Settings are the surer sign: roles come along with a dump.

    >>> provider_of({"rds", "auto_explain"}, {"rds_superuser"}).name, provider_of(set(), {"app"}).name
    ('Amazon RDS or Aurora', 'PostgreSQL')
    """
    for names in (settings, roles):
        for provider in _MANAGED:
            if provider.marks & names:
                return provider
    return PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """A Postgres server and the role we are on it.

    ``version``: as server_version_num. ``granted_replication``: whether the catalog says that the role may replicate,
    which decides nothing: see ``replication`` of :class:`SourceFacts`. ``max_slot_wal_keep_bytes``: None for
    unlimited. ``wal_lsn``: the insert position, None on a standby and where the server does not tell.
    ``synchronized_standby_slots``: empty before PostgreSQL 17 too. ``standbys_away``: its
    names whose slot no standby reads, or that are none.
    """

    version: int
    version_text: str
    database: str
    database_oid: int
    role: str
    granted_replication: bool
    in_recovery: bool
    encoding: str
    wal_level: str
    system_identifier: str
    timeline: int
    wal_lsn: int | None
    slots_max: int
    slots_used: int
    senders_max: int
    senders_used: int
    max_slot_wal_keep_bytes: int | None
    synchronous_standby_names: str
    synchronized_standby_slots: str = ""
    standbys_away: tuple[str, ...] = ()
    provider: Provider = PLAIN

    @property
    def decodes(self) -> bool:
        """Whether a logical slot can be made. From 19 on the first one raises a wal_level of replica by itself."""
        return self.wal_level == "logical" or (self.wal_level == "replica" and self.version >= 190000)


class Refusal(NamedTuple):
    """The server's refusal of a replication session, with the fix that goes with it. ``by_right``: for want of the
    right. ``passing``: of this moment, so that nobody knows whether the role may."""

    message: str
    fix: str
    by_right: bool
    passing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFacts:
    """A row of pg_replication_slots. ``retained_bytes``: WAL the server keeps for it.

    ``xmin_age``, ``catalog_xmin_age``: of the oldest row version that it keeps, in transactions. None for none.
    ``catalog_xmin``: a 32-bit transaction id, where the slot was made the next one of that time.
    ``failover``: standbys keep it too. ``synced``: it came to this server so. Both from PostgreSQL 17 on.
    """

    slot: str
    plugin: str | None
    database: str | None
    active_pid: int | None
    wal_status: str | None
    restart_lsn: int | None
    confirmed_flush_lsn: int | None
    retained_bytes: int | None
    safe_wal_bytes: int | None
    invalidation_reason: str | None
    failover: bool = False
    synced: bool = False
    temporary: bool = False
    xmin_age: int | None = None
    catalog_xmin_age: int | None = None
    catalog_xmin: int | None = None


class Sent(NamedTuple):
    """How a publication sends a table. ``sends``: its column list and row filter, as text that is equal while they are.

    ``born``: the catalog entries that publish it, each with the transaction that wrote it. It is another one after
    something was changed and changed back. ``listed``: the publication names the table itself, not its schema.
    """

    oid: int
    sends: str
    born: str
    listed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationFacts:
    """A publication and the tables it sends, by the names it sends them under. ``filtered``: with a row filter."""

    publication: str
    operations: frozenset[str]
    via_root: bool
    tables: frozenset[TableName]
    filtered: frozenset[TableName] = frozenset()
    sent: Mapping[TableName, Sent] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFacts:
    """A transaction that has been open for long. Slot creation waits for it. ``pid`` None: a prepared one."""

    pid: int | None
    name: str
    role: str
    age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """A captured table. ``problems``: sentence and fix, from the catalog. ``generated``: columns that the stream leaves
    out. ``children``: tables that inherit from it, whose rows are not among its own."""

    table: TableName
    topic: str
    identity: Identity
    key: tuple[str, ...]
    problems: tuple[tuple[str, str], ...] = ()
    generated: tuple[str, ...] = ()
    children: tuple[TableName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxFacts:
    """The outbox. ``table``: None where messages alone are events, or it is not there. ``problems``: sentence and fix.
    ``open_functions``: those that write logical messages and that every role may call."""

    table: TableName | None
    problems: tuple[tuple[str, str], ...] = ()
    open_functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """Everything read from Postgres, in one session.

    ``hidden``: whether a transaction of another role is open, and hidden from ours: it is not in ``transactions``.
    ``replication``: the refusal of a replication session, None where one was opened. ``unpublishable``: why our role
    cannot make the publication that is missing, and the fix. ``missing``: of each entry of the settings that no table
    meets, the sentence and the fix.
    """

    server: ServerFacts
    slot: SlotFacts | None
    publication: PublicationFacts | None
    tables: tuple[TableFacts, ...]
    left_out: tuple[tuple[TableName, str], ...] = ()
    transactions: tuple[TransactionFacts, ...] = ()
    hidden: bool = False
    replication: Refusal | None = None
    unpublishable: tuple[str, str] | None = None
    missing: tuple[tuple[str, str], ...] = ()
    outbox: OutboxFacts | None = None


class TopicFault(NamedTuple):
    """Where a topic is not as it has to be. ``fatal``: capture must not run with it."""

    message: str
    fix: str
    fatal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRights:
    """The principals that may write to a topic. ``checked``: whether the brokers check rights at all, None where they
    do not tell.

    ``writers``: principals that an ACL lets write, sorted. Super users need none, and are not among them.
    """

    topic: str
    checked: bool | None
    writers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """A Kafka cluster: its id, which of the pipeline's topics exist and which do not, and what is wrong with them.

    ``rights``: on the state topic. None where they were not asked for. ``unused``: options of ``[log.client]`` that no
    client gets.
    """

    cluster_id: str
    present: tuple[str, ...]
    missing: tuple[str, ...]
    faults: tuple[TopicFault, ...] = ()
    rights: TopicRights | None = None
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFacts:
    """A store that answered. ``product`` and ``version`` as it names itself. ``notes``: what its kind adds."""

    product: str
    version: str
    notes: Mapping[str, str] = field(default_factory=dict)


class Owner(Enum):
    """The maker of a slot, as far as the pipeline's state says."""

    OURS = "this pipeline made it"
    OTHER = "this pipeline did not make it: its state names another slot, server or database"
    NOBODY = "this pipeline's state names no slot"
    UNKNOWN = "whether this pipeline made it is not known, because its state was not read"


def owner_of(slot: SlotFacts, server: ServerFacts, made: Found[SlotState], intent: Found[SlotIntent] = None) -> Owner:
    """Judge a slot by what ``cdc snapshot`` has noted: of the one that it made, or was about to make."""
    if isinstance(made, Unknown) or isinstance(intent, Unknown):
        return Owner.UNKNOWN
    noted = made if made is not None else intent
    if noted is None:
        return Owner.NOBODY
    here = (slot.slot, server.system_identifier, slot.database)
    return Owner.OURS if (noted.slot, noted.system_identifier, noted.database) == here else Owner.OTHER
