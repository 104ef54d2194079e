"""The words of each provider of Postgres for what capture needs, with the pages that they are from. Pure."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple


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
