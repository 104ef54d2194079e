"""``cdc view``: documents over several tables."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from cdc.cli import completion
from cdc.cli.terminal import echo
from cdc.process.errors import CdcError, UsageError
from cdc.record.position import Lsn
from cdc.status.view_lines import size
from cdc.views.lookups import fan_outs, state_bytes_of
from cdc.views.view_plan import ViewPlan
from connectors.views.view_ending import drop_view, end_former_generations
from connectors.views.view_generations import ViewRebuild
from connectors.views.view_planning import (
    StatisticsOnce,
    imported_views,
    newest_shapes,
    plan_view,
    read_statistics,
    view_settings,
    write_text,
)
from connectors.views.view_running import run_views
from connectors.views.view_showing import View
from connectors.views.view_topics import known_views

if TYPE_CHECKING:
    from cdc.settings.model import Settings

view = typer.Typer(name="view", help="Keep documents over several tables true.", no_args_is_help=True)


@view.command()
def check(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(help="Views of the settings, all by default.", autocompletion=completion.views)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per view.")] = False,
) -> None:
    """Read each view's text and say how it would be kept: root, key, ties, indexes. Refuse what cannot be.

    By Postgres's statistics it says how many documents a change concerns, and about how large the state grows.

    Exit code 78 for a text that cannot be kept true, with the word, its line and its column.
    """
    settings = context.obj.settings()
    if not settings.views:
        view_settings(settings, "")
    shapes = newest_shapes(settings)
    statistics = StatisticsOnce(partial(read_statistics, settings))
    for name in names or settings.views:
        planned = plan_view(settings, name, shapes)
        described = _described(name, planned.plan) | _estimated(context, planned.plan, statistics)
        if as_json:
            typer.echo(orjson.dumps(described).decode())
        else:
            _print(described)


def _estimated(context: typer.Context, plan: ViewPlan, statistics: StatisticsOnce) -> dict[str, Any]:
    """Null where Postgres does not answer, or a table was never analyzed."""
    try:
        known = statistics.of(plan.relations)
    except CdcError as failure:
        _said(context, [f"sizes are not known: {failure.message}"])
        return {"state_bytes": None, "fan_out": []}
    outs = [
        {"as": f.occurrence.alias, "usual": round(f.usual, 1), "most": round(f.most)} for f in fan_outs(plan, known)
    ]
    size_bytes = state_bytes_of(plan, known)
    return {"state_bytes": None if size_bytes is None else round(size_bytes), "fan_out": outs}


def _described(name: str, plan: ViewPlan) -> dict[str, Any]:
    aliases = {o.number: o.alias for o in plan.occurrences}
    return {
        "view": name,
        "root": str(plan.root.table),
        "grouped": plan.grouping is not None,
        "key": {output: column for column, output in plan.key},
        "columns": {output: str(kind) for output, kind in plan.outputs},
        "ties": [
            {
                "table": str(o.table),
                "as": o.alias,
                "columns": list(o.tie.columns),
                "to": aliases[o.tie.above],
                "to_columns": list(o.tie.above_columns),
                "single": o.tie.single,
            }
            for o in plan.occurrences
            if o.tie is not None
        ],
        "indexes": {str(table): [list(i) for i in kept.indexed] for table, kept in plan.relations.items()},
        "notes": list(plan.notes),
    }


def _print(described: dict[str, Any]) -> None:
    key = ", ".join(described["key"].values())
    of_each = "group of rows" if described["grouped"] else "row"
    said = f"a document for each {of_each} of {described['root']}, by {key}" if key else "one document"
    echo(f"{described['view']}: {said}")
    columns = ", ".join(f"{name} {kind}" for name, kind in described["columns"].items())
    echo(f"  columns: {columns}")
    shown = dict.fromkeys(_tie_line(tie) for tie in described["ties"])
    for line in shown:
        echo(f"  {line}")
    for table, indexes in described["indexes"].items():
        for index in indexes:
            echo(f"  index on {table} ({', '.join(index)})")
    for out in described["fan_out"]:
        echo(f"  a change of one {out['as']}: {out['usual']:,.0f} documents, at most about {out['most']:,}")
    if described["state_bytes"] is not None:
        echo(f"  state: about {size(described['state_bytes'])}")
    for note in described["notes"]:
        echo(f"  note: {note}")


def _tie_line(tie: dict[str, Any]) -> str:
    pairs = " and ".join(
        f"{tie['as']}.{own} = {tie['to']}.{other}" for own, other in zip(tie["columns"], tie["to_columns"], strict=True)
    )
    return f"{tie['table']} by {pairs}{' (one row at most)' if tie['single'] else ''}"


@view.command()
def run(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(help="Views of the settings, all by default.", autocompletion=completion.views)
    ] = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="Stop when all that the log holds is published.")
    ] = False,
) -> None:
    """Keep views until SIGTERM or Ctrl-C: read the tables' topics, and publish each document that changed."""
    settings = context.obj.settings()
    run_views(settings, names or [], until_caught_up=until_caught_up)


@view.command("list")
def list_views(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per view.")] = False,
) -> None:
    """Show each view that was published: its generation, its topic, up to where it is true, and why it is held."""
    settings = context.obj.settings()
    views = known_views(settings)
    for name, known in views.known.items():
        progress = views.progress.get(name)
        lsn = str(Lsn(progress.lsn)) if progress is not None and progress.lsn else None
        held = progress.aside.get(known.topic) if progress is not None else None
        coming = views.coming.get(name)
        number = coming.generation if coming is not None and coming.generation != known.generation else None
        if as_json:
            found = {"view": name, "generation": known.generation, "topic": known.topic, "lsn": lsn, "held": held}
            found |= {"coming": number}
            typer.echo(orjson.dumps(found).decode())
        else:
            more = f"  held: {held}" if held else ""
            more += f"  generation {number} is built beside it" if number is not None else ""
            echo(f"{name}  generation {known.generation}  {known.topic}  {lsn or 'not published yet'}{more}")


@view.command()
def rebuild(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A view of the settings.", autocompletion=completion.views)],
) -> None:
    """Build a view anew from the topics, by the text that the settings have now.

    By a changed text, another generation is built beside the published one, which its runner keeps meanwhile. Then that
    runner follows or ends, and stores take the documents of the new one and let the others go. The former topic stays
    until the next one. Killed in between, run it again.

    By the same text the state is thrown away: the next cdc view run builds it anew, and sweeps what has left. Topic and
    stores stay as they are meanwhile. Exit code 83 while a runner keeps it.
    """
    settings = context.obj.settings()
    ViewRebuild(
        settings,
        mark=partial(_mark, settings),
        tell=lambda sentence: _said(context, [sentence]),
    ).run(name)


def _mark(settings: Settings) -> None:
    from connectors.operate.verify import open_cut  # noqa: PLC0415 - it loads clients, which no help needs

    with closing(open_cut(settings)) as source:
        source.fence()


@view.command()
def drop(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A view that was published.", autocompletion=completion.views)],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the view's name.")] = False,
    former: Annotated[bool, typer.Option("--former", help="Only the generations before the published one.")] = False,
) -> None:
    """Delete a view's topic, what is known of it, and its state. The view's name has to be typed back.

    With --former: the topics that rebuilds by changed texts have left, without a question: no sink reads them any more
    that has looked since.

    Stores keep the documents that they have until they are rebuilt. Exit code 83 while a runner keeps it.
    """
    settings = context.obj.settings()
    if former:
        _said(context, end_former_generations(settings, name))
        return
    if not yes:
        context.obj.console.print(f"This deletes the documents of the view {name} from the log.", highlight=False)
        typed = typer.prompt("Type the view's name to go on", default="", show_default=False, err=True)
        if typed.strip() != name:
            raise UsageError("that is not the view's name: nothing was dropped", hint=f"the view is {name}")
    _said(context, drop_view(settings, name))


def _said(context: typer.Context, sentences: Iterable[str]) -> None:
    for sentence in sentences:
        context.obj.console.print(sentence, highlight=False, soft_wrap=True, markup=False)


@view.command("import")
def import_views(
    context: typer.Context,
    schema: Annotated[Path, typer.Argument(help="pgsync's schema.json.", dir_okay=False)],
    into: Annotated[Path | None, typer.Option("--into", help="Write a file per view into this folder.")] = None,
) -> None:
    """Write a schema of pgsync as texts of views, by the source's columns and foreign keys.

    Prints each text, or the sections of the settings with --into. Notes say what is left out, or stands elsewhere.
    """
    for made in imported_views(context.obj.settings(), schema):
        if into is None:
            echo(f"-- view: {made.name}\n{made.sql}")
        else:
            path = into / f"{made.name}.sql"
            write_text(path, made.sql)
            echo(f"[views.{made.name}]\nsql = {orjson.dumps(str(path)).decode()}\n")
        _said(context, (f"{made.name}: {note}" for note in made.notes))


@view.command()
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A view of the settings.", autocompletion=completion.views)],
    key: Annotated[str, typer.Argument(help='The document\'s key: a value, or JSON such as {"id":42}.')],
    explain: Annotated[bool, typer.Option("--explain", help="Show the rows that it is made of instead.")] = False,
) -> None:
    """Print a document as the state has it now, computed from the rows that the runner keeps.

    With --explain: those rows, each with the LSN of its last change. The first one says why the document was last
    written, unless a row left it since.
    """
    view = View(context.obj.settings(), name)
    if not explain:
        shown, lacks = view.shown(key)
        typer.echo(shown)
        _said(context, lacks)
        return
    for part in view.parts(key):
        own = ":".join(map(str, part.key))
        echo(f"{Lsn(part.position.commit_lsn)}  {part.table}  {own}")
