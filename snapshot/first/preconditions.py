"""The preconditions of a snapshot, at its beginning and whenever it goes on. Each refusal names the remedy."""

from __future__ import annotations

from cdc.checks.postgres import FAILOVER_VERSION
from cdc.process.errors import ConfigError, SlotError, UsageError
from cdc.process.sql_files import quote_literal
from cdc.record.progress import FIRST_EPOCH, require_begun
from cdc.record.server_facts import ServerFacts, SlotFacts
from cdc.record.state import SlotIntent, TopicsState
from cdc.settings.model import Settings
from snapshot.first.manifest import Manifest
from snapshot.first.slot_creation import remove_slot
from snapshot.source.edges import Edges, Reporter, Session

MAX_LSN = (1 << 64) - 1


def topics(manifest: Manifest, settings: Settings) -> TopicsState:
    """The topics that ``cdc init`` made. ConfigError when it did not, or made them for another encoding."""
    found = manifest.topics
    if found is None:
        raise ConfigError(f"the topics of {settings.name} have not been made", hint="cdc init makes them")
    if found.encoding != settings.log.encoding:
        raise ConfigError(
            f'the topics were made for [log] encoding = "{found.encoding}", the settings say "{settings.log.encoding}"',
            hint=f'set it back to "{found.encoding}": one topic holds one encoding',
        )
    return found


def epoch(manifest: Manifest, *, rows: bool) -> None:
    """ConfigError when a new epoch's beginning was cut short. UsageError when it would begin without its rows."""
    require_begun(manifest.epochs, manifest.slot)
    if not rows and manifest.epochs.latest > FIRST_EPOCH and not manifest.complete:
        raise UsageError(
            f"epoch {manifest.epochs.latest} cannot begin without its rows: nothing else tells what changed in the gap",
            hint="cdc snapshot, without --none",
        )


def server(edges: Edges, session: Session) -> None:
    """Return for a primary with logical decoding and the publication: a slot made before it never works.

    Raises ConfigError for a standby, another wal_level, a missing publication, and for failover slots before version
    17.
    """
    facts, _, publication = edges.source.facts(session)
    if facts.in_recovery:
        raise ConfigError("the source is a read-only standby", hint="point [source] dsn at its primary")
    if not facts.decodes:
        raise ConfigError(
            f"wal_level is {facts.wal_level}, which keeps no logical changes",
            hint=facts.provider.logical,
        )
    if edges.settings.source.failover and facts.version < FAILOVER_VERSION:
        raise ConfigError(
            f"[source] failover = true needs PostgreSQL 17 or later, this is {facts.version_text}",
            hint="set it to false, or upgrade the server",
        )
    if publication is None:
        raise ConfigError(
            f"there is no publication {edges.settings.publication}, and it has to be there before the slot",
            hint="cdc init makes it",
        )


def slot(edges: Edges, session: Session, manifest: Manifest, *, rows: bool) -> None:
    """Return where the slot of an earlier run is there, unmoved, or where no run made one.

    Raises what the source raises for a slot that is lost or moved, and for another server. Raises
    UsageError when ``rows`` is false though a snapshot has begun.
    """
    if manifest.slot is None:
        return
    # Nobody reads from it before the snapshot is complete. Afterwards capture knows where it has to be.
    position = MAX_LSN if manifest.complete else manifest.slot.consistent_point
    edges.source.require(session, manifest.slot, position)
    if not rows and not manifest.complete:
        raise UsageError(
            "the snapshot has begun already, so its rows cannot be left out any more",
            hint="cdc snapshot goes on with it; to begin anew: cdc drop --topics, cdc init, cdc snapshot --none",
        )


def no_slot(edges: Edges, session: Session, manifest: Manifest, reporter: Reporter) -> None:
    """Return where no slot has the wanted name. One that a killed run left is removed first.

    Raises SlotError for a slot that this pipeline did not make.
    """
    here, found, _ = edges.source.facts(session)
    if found is None:
        return
    if not _ours(manifest.intent, found, here):
        raise SlotError(
            f"a slot {found.slot} is there already, and this pipeline did not make it",
            hint=f"drop it if nobody needs it: select pg_drop_replication_slot({quote_literal(found.slot)});"
            '   or name another one: [source] slot = "..."',
        )
    reporter.say(f"an earlier run left the slot {found.slot} before it was noted: it is removed and made again")
    remove_slot(session, found.slot)


def _ours(intent: SlotIntent | None, found: SlotFacts, here: ServerFacts) -> bool:
    """Whether a slot is the one that an earlier run made: it stands where that one began, in the same place."""
    if intent is None or not intent.consistent_point:
        return False
    made = (intent.slot, intent.system_identifier, intent.database, intent.consistent_point)
    stands = (found.slot, here.system_identifier, found.database, found.confirmed_flush_lsn)
    return made == stands and found.plugin == "pgoutput"
