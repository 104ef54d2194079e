"""The checks of the source: pure, from :class:`SourceFacts` to findings."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from cdc.checks.events import check_histories, check_outbox
from cdc.checks.findings import CONNECTOR_SLOT_LOST, SLOT_LOST, Finding, fail, ok, warn
from cdc.process.errors import Exit
from cdc.process.sql_files import quote_identifier, quote_literal
from cdc.record.ports import Found, Unknown
from cdc.record.server_facts import (
    PLAIN,
    PublicationFacts,
    Refusal,
    ServerFacts,
    SlotFacts,
    SourceFacts,
    TableFacts,
)
from cdc.record.state import SlotState
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings

PART = "postgres"
OLDEST_VERSION = 140000
FIRST_SOUND_MINOR = {14: 18, 15: 13, 16: 9, 17: 5}
"""Before these, changes of transactions open across ALTER PUBLICATION could be lost."""
FREE_SENDERS = 1
FAILOVER_VERSION = 170000
"""The first that keeps logical slots on standbys."""


def check_source(
    facts: SourceFacts, settings: Settings, known: Found[SlotState], named: Collection[str] = ()
) -> Iterator[Finding]:
    """Every finding about Postgres. ``known``: the slot as ``cdc snapshot`` made it, if it has and the log says so.
    ``named``: tables of which a finding of their own says that they are not followed."""
    server = facts.server
    yield check_version(server)
    yield check_standby(server)
    yield check_wal_level(server)
    yield from check_wal_lsn(server)
    yield check_replication_right(server, facts.replication)
    yield check_encoding(server)
    yield from check_identity(server, known, facts.slot)
    yield from check_slot(facts.slot, server, settings, known)
    yield from check_failover(facts.slot, server, settings)
    yield check_free_slots(server, facts.slot)
    yield check_free_senders(server)
    yield check_wal_keep(server)
    yield check_synchronous_names(server)
    yield from check_transactions(facts)
    yield from check_missing(facts, named)
    yield from check_tables(facts.tables)
    yield from check_left_out(facts)
    if facts.unpublishable is not None and known is None:
        yield fail(PART, "publication", *facts.unpublishable)
    else:
        yield from check_publication(facts.publication, facts.tables, settings, known, named)
    yield from check_histories(facts, settings)
    if facts.outbox is not None:
        yield from check_outbox(facts.outbox, facts.publication, settings)


def check_version(server: ServerFacts) -> Finding:
    """Old servers lack what we rely on. Some minors lose changes around ALTER PUBLICATION."""
    major, minor = server.version // 10000, server.version % 10000
    if server.version < OLDEST_VERSION:
        message = f"PostgreSQL {server.version_text} is older than 14"
        return fail(PART, "version", message, "upgrade the server to PostgreSQL 14 or later")
    if minor < FIRST_SOUND_MINOR.get(major, 0):
        message = f"PostgreSQL {server.version_text} can lose changes of transactions open across ALTER PUBLICATION"
        return warn(PART, "version", message, f"upgrade to {major}.{FIRST_SOUND_MINOR[major]} or later")
    where = f" on {server.provider.name}" if server.provider is not PLAIN else ""
    return ok(PART, "version", f"PostgreSQL {server.version_text}{where}, database {server.database}")


def check_standby(server: ServerFacts) -> Finding:
    """A standby's slot depends on two servers, and its snapshot orders differ from the primary's."""
    if server.in_recovery:
        message = "this server is a standby; headrace reads the primary"
        return fail(PART, "standby", message, "point [source] dsn at the primary")
    return ok(PART, "standby", "the server is a primary")


def check_wal_level(server: ServerFacts) -> Finding:
    """Fail unless the server writes WAL for logical decoding, or begins to with the first logical slot."""
    if not server.decodes:
        message = f"wal_level is {server.wal_level}; logical decoding needs logical"
        return fail(PART, "wal_level", message, server.provider.logical)
    return ok(PART, "wal_level", f"wal_level is {server.wal_level}")


def check_wal_lsn(server: ServerFacts) -> Iterator[Finding]:
    """Fail where a primary with logical decoding refuses its insert LSN. Before decoding is on, some providers do."""
    if server.wal_lsn is None and server.decodes and not server.in_recovery:
        message = f"the role {server.role} cannot read the WAL insert LSN: pg_current_wal_insert_lsn() fails"
        yield fail(PART, "wal_lsn", message, "connectors/postgres/PROVIDERS.md says what a provider has to offer")


def check_replication_right(server: ServerFacts, refused: Refusal | None) -> Finding:
    """Fail where the server refused a replication session. Attributes say only why: providers have their own ways."""
    if refused is None:
        return ok(PART, "replication_right", f"the role {server.role} may replicate: a session was opened")
    if refused.passing:
        message = f"not known whether the role {server.role} may replicate: {refused.message}"
        return warn(PART, "replication_right", message, refused.fix)
    if refused.by_right and server.granted_replication:
        message = f"{refused.message}, though the catalog says that the role {server.role} may replicate"
        return fail(PART, "replication_right", message, "see the server's log")
    right = server.provider.right.format(role=quote_identifier(server.role))
    return fail(PART, "replication_right", refused.message, right if refused.by_right else refused.fix)


def check_encoding(server: ServerFacts) -> Finding:
    """Text reaches us as UTF-8. A database of another encoding may hold what cannot be converted."""
    if server.encoding == "UTF8":
        return ok(PART, "encoding", "the database is in UTF8")
    if server.encoding == "SQL_ASCII":
        message = "the database is in SQL_ASCII: bytes that are not UTF-8 cannot be carried"
        return fail(PART, "encoding", message, "move the data to a database created with encoding 'UTF8'")
    message = f"the database is in {server.encoding}; the server converts every value to UTF-8"
    return warn(PART, "encoding", message, "a database created with encoding 'UTF8' saves that work")


def check_identity(server: ServerFacts, known: Found[SlotState], slot: SlotFacts | None = None) -> Iterator[Finding]:
    """Another server behind the same address: its LSNs mean nothing to the stores."""
    if isinstance(known, Unknown):
        message = "not known whether this is the server that the pipeline was made on: its state was not read"
        yield warn(PART, "identity", message, _WITH_STATE)
        return
    if known is None:
        return
    was = {
        "system identifier": (known.system_identifier, server.system_identifier),
        "timeline": (str(known.timeline), str(server.timeline)),
        "database": (f"{known.database} ({known.database_oid})", f"{server.database} ({server.database_oid})"),
    }
    changed = [f"{what} {now}, not {before}" for what, (before, now) in was.items() if before != now]
    if len(changed) == 1 and server.timeline > known.timeline and slot is not None and slot.failover and slot.synced:
        message = f"a promoted standby answers (timeline {server.timeline}, not {known.timeline}), and it kept the slot"
        fix = "cdc run goes on there if the log holds nothing that this server lacks"
        yield warn(PART, "identity", message, fix)
    elif changed:
        message = f"another system answers behind the dsn: {'; '.join(changed)}"
        fix = "point [source] dsn at the server the pipeline was made on; if this one took its place with the same "
        fix += "history: cdc init --accept-promotion"
        yield fail(PART, "identity", message, fix, exit=Exit.IDENTITY)
    else:
        yield ok(PART, "identity", f"system {server.system_identifier}, timeline {server.timeline}, as at the start")


def check_slot(
    slot: SlotFacts | None, server: ServerFacts, settings: Settings, known: Found[SlotState]
) -> Iterator[Finding]:
    """The slot's state, and whether it is ours.

    Advice that ends in a dropped slot needs to know whose it is, so without the state topic there is none.
    """
    name = settings.slot
    if isinstance(known, Unknown):
        yield _slot_of_somebody(slot, settings)
        return
    if settings.source.kind == "debezium":
        yield _connectors_slot(slot, server, name, known)
        return
    if slot is None:
        if known is not None and known.slot == name:
            message = f"the slot {name} is gone; changes since then are not in the log"
            yield fail(PART, "slot", message, SLOT_LOST, exit=Exit.SLOT)
        else:
            yield ok(PART, "slot", f"the slot {name} is free to be made by cdc snapshot")
        return
    lost = slot.wal_status == "lost" or slot.invalidation_reason is not None
    if slot.plugin != "pgoutput" or slot.database != server.database:
        message = f"a slot {name} exists for {slot.plugin or 'physical'} in {slot.database or 'no database'}"
        yield fail(PART, "slot", message, "set [source] slot to another name", exit=Exit.SLOT)
    elif lost and known is None:
        message = f"a slot {name} exists that the server gave up, but cdc snapshot did not make it"
        yield fail(PART, "slot", message, "set [source] slot to another name", exit=Exit.SLOT)
    elif lost:
        message = f"the server gave up the slot {name}: {slot.invalidation_reason or 'its WAL was removed'}"
        yield fail(PART, "slot", message, SLOT_LOST, exit=Exit.SLOT)
    elif slot.active_pid is not None:
        yield _active(slot, known)
    elif known is None:
        message = f"a slot {name} exists, but cdc snapshot did not make it"
        fix = (
            "set [source] slot to another name; or, if nobody needs that slot: "
            f"select pg_drop_replication_slot({quote_literal(name)});"
        )
        yield fail(PART, "slot", message, fix, exit=Exit.SLOT)
    else:
        yield ok(PART, "slot", f"the slot {name} is {slot.wal_status or 'usable'} and waits for cdc run")


_WITH_STATE = "run cdc check again when Kafka answers"


def _slot_of_somebody(slot: SlotFacts | None, settings: Settings) -> Finding:
    """The slot as the server has it, while nobody says who made it."""
    whose = "whether this pipeline made one is not known: its state was not read"
    if slot is None:
        return warn(PART, "slot", f"the server has no slot {settings.slot}; {whose}", _WITH_STATE)
    use = f"is in use by process {slot.active_pid}" if slot.active_pid is not None else "is read by nobody"
    stands = slot.invalidation_reason or slot.wal_status or "usable"
    whose = "whether this pipeline made it is not known: its state was not read"
    return warn(PART, "slot", f"the slot {slot.slot} is {stands} and {use}; {whose}", _WITH_STATE)


def _connectors_slot(slot: SlotFacts | None, server: ServerFacts, name: str, known: SlotState | None) -> Finding:
    """The slot that Debezium makes and reads. ``known``: it was taken over from the native capture."""
    if slot is None and known is not None and known.slot == name:
        message = f"the slot {name} is gone; changes since then are not in the log"
        return fail(PART, "slot", message, CONNECTOR_SLOT_LOST, exit=Exit.SLOT)
    if slot is None:
        return ok(PART, "slot", f"the slot {name} is free to be made by the connector")
    if slot.plugin != "pgoutput" or slot.database != server.database:
        message = f"a slot {name} exists for {slot.plugin or 'physical'} in {slot.database or 'no database'}"
        return fail(PART, "slot", message, "set [source] slot to another name", exit=Exit.SLOT)
    if slot.wal_status == "lost" or slot.invalidation_reason is not None:
        message = f"the server gave up the slot {name}: {slot.invalidation_reason or 'its WAL was removed'}"
        fix = CONNECTOR_SLOT_LOST
        return fail(PART, "slot", message, fix, exit=Exit.SLOT)
    if slot.active_pid is not None:
        return ok(PART, "slot", f"the slot {name} is in use by process {slot.active_pid}, as it is while Debezium runs")
    return warn(PART, "slot", f"nobody reads the slot {name}, and it keeps WAL", "cdc connect status")


def _active(slot: SlotFacts, known: SlotState | None) -> Finding:
    if known is not None:
        return ok(PART, "slot", f"the slot {slot.slot} is in use by process {slot.active_pid}, as it is while cdc runs")
    message = f"the slot {slot.slot} is in use by process {slot.active_pid}, and this pipeline did not make it"
    return fail(PART, "slot", message, "set [source] slot to another name", exit=Exit.ACTIVE)


def check_failover(slot: SlotFacts | None, server: ServerFacts, settings: Settings) -> Iterator[Finding]:
    """Whether a promoted standby could be gone on with, where that is wanted."""
    if not settings.source.failover:
        return
    if server.version < FAILOVER_VERSION:
        message = f"[source] failover = true needs PostgreSQL 17 or later, this is {server.version_text}"
        yield fail(PART, "failover", message, "set [source] failover = false, or upgrade the server")
        return
    if slot is not None and slot.temporary:
        message = f"the slot {slot.slot} is temporary: it ends with its session, and standbys do not keep it"
        yield fail(PART, "failover", message, "let cdc snapshot make the slot", exit=Exit.SLOT)
    elif slot is not None and not slot.failover:
        message = f"the slot {slot.slot} was made without failover: standbys do not keep it"
        yield warn(PART, "failover", message, "stop cdc run and start it again: it alters the slot")
    elif not server.synchronized_standby_slots:
        message = "synchronized_standby_slots is empty: capture may read changes that a promoted standby never had"
        fix = (
            "alter system set synchronized_standby_slots = '<slot of the standby>'; select pg_reload_conf();"
            "   and see connectors/postgres/README.md, failover"
        )
        yield warn(PART, "failover", message, fix)
    elif server.standbys_away:
        away = ", ".join(server.standbys_away)
        message = f"no standby reads {away}, named in synchronized_standby_slots: no change is sent meanwhile"
        fix = (
            f"start the standby again, or take {away} out: "
            "alter system set synchronized_standby_slots = '<the others>'; select pg_reload_conf();"
        )
        yield warn(PART, "failover", message, fix)
    else:
        yield ok(PART, "failover", f"capture reads what {server.synchronized_standby_slots} has received, and no more")


def check_free_slots(server: ServerFacts, slot: SlotFacts | None) -> Finding:
    """Fail when a slot has to be made and fewer than two are free. ``slot``: None while there is none."""
    # Two: the slot is made under a temporary name, and keeps that one as long as its snapshot is read.
    if slot is None and server.slots_used + 2 > server.slots_max:
        message = f"{server.slots_used} of {server.slots_max} replication slots are taken, and a snapshot needs two"
        fix = server.provider.changing("max_replication_slots", server.slots_max + 2)
        return fail(PART, "free_slots", message, fix)
    return ok(PART, "free_slots", f"{server.slots_used} of {server.slots_max} replication slots are taken")


def check_free_senders(server: ServerFacts) -> Finding:
    """Snapshot and stream need one walsender at a time."""
    if server.senders_max - server.senders_used < FREE_SENDERS:
        message = f"all {server.senders_max} walsenders are taken"
        fix = server.provider.changing("max_wal_senders", server.senders_max + 2)
        return fail(PART, "free_senders", message, fix)
    return ok(PART, "free_senders", f"{server.senders_used} of {server.senders_max} walsenders are taken")


def check_wal_keep(server: ServerFacts) -> Finding:
    """A slot nobody reads fills the source's disk."""
    if server.max_slot_wal_keep_bytes is None:
        message = "max_slot_wal_keep_size is -1: while capture stands still, WAL grows until the disk is full"
        return warn(PART, "wal_keep", message, server.provider.keep)
    return ok(PART, "wal_keep", f"a slot may keep {server.max_slot_wal_keep_bytes // 1024**2} MB of WAL")


def check_synchronous_names(server: ServerFacts) -> Finding:
    """A name that matches ours makes every commit wait for us."""
    names = server.synchronous_standby_names
    if "*" in names:
        message = f"synchronous_standby_names is '{names}': commits would wait for capture as for a standby"
        return warn(PART, "synchronous_names", message, "name the real standbys in synchronous_standby_names")
    return ok(PART, "synchronous_names", "no commit waits for capture")


def check_transactions(facts: SourceFacts) -> Iterator[Finding]:
    """Creating a slot waits for every transaction that is open."""
    for one in facts.transactions:
        if one.pid is None:
            what, fix = f"the prepared transaction {one.name}", f"rollback prepared {quote_literal(one.name)};"
        else:
            what, fix = f"process {one.pid} ({one.name})", f"select pg_terminate_backend({one.pid});"
        wait = "cdc snapshot would wait for it" if facts.slot is None else "it holds back vacuum and WAL"
        message = f"{what} of {one.role} has a transaction open for {one.age_s / 60:.0f} min; {wait}"
        yield warn(PART, "transactions", message, fix)
    server = facts.server
    if facts.hidden:
        message = f"not known how long other roles' transactions have been open: {server.role} may not see them"
        fix = f"grant {server.provider.statistics} to {quote_identifier(server.role)};   it shows their queries, too"
        yield warn(PART, "transactions", message, fix)
    elif not facts.transactions:
        yield ok(PART, "transactions", "no transaction has been open for long")


def check_missing(facts: SourceFacts, named: Collection[str]) -> Iterator[Finding]:
    """Fail for each entry of the settings that no table meets. ``named``: as for :func:`check_source`."""
    for message, fix in facts.missing:
        if message not in {f"the table {table} does not exist" for table in named}:
            yield fail(PART, "table", message, fix)


def check_tables(tables: tuple[TableFacts, ...]) -> Iterator[Finding]:
    """Key, replica identity and rights of each table. Generated columns are named."""
    for table in tables:
        for message, fix in table.problems:
            yield fail(PART, "table", message, fix)
        if not table.problems:
            yield ok(PART, "table", f"{table.table} has the key ({', '.join(table.key)}) and can be captured")
        if table.generated:
            message = f"{table.table}: generated columns stay out: {', '.join(table.generated)}"
            yield ok(PART, "table", message)
        if table.children and not table.problems:
            message = f"{table.table} is captured without the rows of {', '.join(map(str, table.children))}"
            yield ok(PART, "table", f"{message}, which inherit from it")


def check_left_out(facts: SourceFacts) -> Iterator[Finding]:
    """Warn of each table that a pattern names and that is not captured, with the reason."""
    for table, reason in facts.left_out:
        yield warn(PART, "left_out", f"{table} matches a pattern but stays out: {reason}", "")


def check_publication(
    publication: PublicationFacts | None,
    tables: tuple[TableFacts, ...],
    settings: Settings,
    known: Found[SlotState],
    named: Collection[str] = (),
) -> Iterator[Finding]:
    """Its contents against the settings. A slot cannot pass a change made before its publication was.
    ``named``: as for :func:`check_source`."""
    name = settings.publication
    if publication is None:
        if isinstance(known, Unknown):
            message = f"there is no publication {name}; whether cdc init made one is not known: its state was not read"
            yield warn(PART, "publication", message, _WITH_STATE)
        elif known is None:
            maker = "cdc connect deploy" if settings.source.kind == "debezium" else "cdc init"
            yield ok(PART, "publication", f"the publication {name} will be made by {maker}")
        else:
            message = f"the publication {name} is gone, and the slot {known.slot} cannot go on without it"
            fix = "a publication made anew does not serve older changes: see connectors/postgres/README.md"
            yield fail(PART, "publication", message, fix, exit=Exit.SLOT)
        return
    quoted, wanted = quote_identifier(name), {table.table for table in tables}
    ours = {TableName(*settings.outbox.table.rsplit(".", 1))} if settings.outbox and settings.outbox.table else set()
    # Debezium passes TRUNCATE over.
    needed = {"insert", "update", "delete"} | ({"truncate"} if settings.source.kind == "postgres" else set())
    missing = needed - publication.operations
    if missing:
        message = f"the publication {name} leaves out {', '.join(sorted(missing))}"
        fix = f"alter publication {quoted} set (publish = 'insert, update, delete, truncate');"
        yield fail(PART, "publication", message, fix)
    for table in sorted(table for table in wanted - publication.tables if str(table) not in named):
        fix = f"alter publication {quoted} add table only {_sql_name(table)};"
        yield fail(PART, "publication", f"the publication {name} does not hold {table}", fix)
    for table in sorted(publication.tables - wanted - ours):
        fix = f"alter publication {quoted} drop table only {_sql_name(table)};"
        yield warn(PART, "publication", f"the publication {name} holds {table}, which the settings do not name", fix)
    if wanted <= publication.tables and not missing:
        yield ok(PART, "publication", f"the publication {name} holds the {len(wanted)} tables")


def _sql_name(table: TableName) -> str:
    return f"{quote_identifier(table.schema)}.{quote_identifier(table.table)}"
