"""``cdc init``: the publication and the topics."""

from __future__ import annotations

import typer

from cdc.wiring.pipeline import prepare_pipeline


def init(context: typer.Context) -> None:
    """Make the publication (or check the one that exists) and the topics.

    Safe to run again: what is there is checked, what is missing is made.
    """
    invocation = context.obj
    settings = invocation.settings()
    if settings.debezium is not None and settings.debezium.database != "postgres":
        settings.require_native("cdc init")
    prepared = prepare_pipeline(settings)
    console = invocation.console
    made = "made" if prepared.publication_made else "checked"
    console.print(
        f"publication {settings.publication}: {made}, {len(prepared.tables)} tables", highlight=False, soft_wrap=True
    )
    for table, topic in prepared.tables.items():
        console.print(f"  {table} -> {topic}", highlight=False, soft_wrap=True, markup=False)
    checked = "" if prepared.topics_made else ", all there already"
    console.print(f"topics: {len(prepared.topics_made)} made{checked}", highlight=False, soft_wrap=True)
    for table in prepared.late:
        console.print(
            f"{table} came after the slot: the running cdc run reads its rows", highlight=False, soft_wrap=True
        )
    console.print("next: cdc snapshot", highlight=False, soft_wrap=True)
