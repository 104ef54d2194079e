"""The checks of the outbox and of histories. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from cdc.checks.findings import Finding, fail, ok, warn
from cdc.process.sql_files import quote_identifier
from cdc.record.server_facts import OutboxFacts, PublicationFacts, SourceFacts
from cdc.record.topic_names import IN_QUOTES, starred
from cdc.settings.model import Settings
from cdc.settings.sink_settings import histories_in

PART = "postgres"


def check_histories(facts: SourceFacts, settings: Settings) -> Iterator[Finding]:
    """Warn of each entry of ``[history] tables`` that takes no captured table, and of each entry of a sink's
    ``history`` that takes none of theirs."""
    captured = {str(table.table) for table in facts.tables}
    kept: set[str] = set()
    for text in settings.history.tables:
        found = _taken(text, captured)
        kept |= found
        if not found:
            message = f'[history] tables: "{text}" takes no captured table, so nothing is kept by it'
            yield warn(PART, "history", message, "name a table that [source] tables takes, or take the entry out")
    for sink, section in settings.sinks.items():
        for text in histories_in(section):
            if not _taken(text, kept):
                message = f'[sinks.{sink}] history: "{text}" takes no table that [history] tables keeps'
                yield warn(sink, "history", message, "name the table under [history] tables, or take the entry out")


def _taken(text: str, names: Collection[str]) -> set[str]:
    """Those of some tables' names that an entry takes."""
    quoted = IN_QUOTES.fullmatch(text)
    named = ".".join(part.replace('""', '"') for part in quoted.groups()) if quoted is not None else ""
    return {name for name in names if name == named or starred(text).fullmatch(name)}


def check_outbox(outbox: OutboxFacts, publication: PublicationFacts | None, settings: Settings) -> Iterator[Finding]:
    """The outbox table can be published and is, and who else may write messages that are taken for events."""
    for message, fix in outbox.problems:
        yield fail(PART, "outbox", message, fix)
    table = outbox.table
    if table is not None and publication is not None and table not in publication.tables:
        message = f"the publication {settings.publication} does not hold the outbox {table}: its events are not sent"
        named = f"{quote_identifier(table.schema)}.{quote_identifier(table.table)}"
        fix = f"alter publication {quote_identifier(settings.publication)} add table only {named};"
        yield fail(PART, "outbox", message, fix)
    elif table is not None and not outbox.problems:
        yield ok(PART, "outbox", f"inserts into {table} are events")
    prefix = settings.outbox.message if settings.outbox is not None else ""
    if prefix and outbox.open_functions:
        message = f"every role of the database may write messages, so every role may write events ({prefix})"
        functions = ", ".join(outbox.open_functions)
        fix = f"revoke execute on function {functions} from public; then grant it to the roles that write events"
        yield warn(PART, "outbox", message, fix)
