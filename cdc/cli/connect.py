"""``cdc connect``: Debezium on Kafka Connect, by its REST API."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import orjson
import typer

from cdc.cli import completion
from cdc.cli.terminal import echo
from cdc.process.errors import ConfigError, DifferenceFound, UsageError
from cdc.record.ports import Unknown, look
from cdc.record.position import Lsn
from cdc.wiring.debezium import open_connector, open_handover

_READS = {
    "reads": "it reads the slot",
    "idle": "it reads the slot; no captured table was written meanwhile",
    "restarts": "no session has had the slot for 15 s",
    "unstored": "captured tables were written, and its stored offsets did not move within a minute",
}

connect = typer.Typer(name="connect", help="Debezium through Kafka Connect's REST API.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Tables = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TABLE]...", help="Tables, as schema.table.", autocompletion=completion.tables),
]


@connect.command("config")
def config(context: typer.Context) -> None:
    """Print the connector's configuration, as Kafka Connect takes it."""
    _print_json(_connector(context).wanted())


@connect.command("validate")
def validate(context: typer.Context, as_json: Json = False) -> None:
    """Let the server check the configuration: every option that does not fit, and why. Exit code 78 if one does not."""
    errors = _connector(context).validate()
    if as_json:
        _print_json(errors)
    for option, words in errors.items():
        for word in words if not as_json else ():
            echo(f"{option}: {word}")
    if errors:
        raise ConfigError(
            f"Kafka Connect refuses {len(errors)} option{'s' if len(errors) > 1 else ''}",
            hint="mend [source], [debezium] or [debezium.options]",
        )
    _say(context, "the configuration is good")


@connect.command("deploy")
def deploy(context: typer.Context, as_json: Json = False) -> None:
    """Create the connector or bring it to the settings, and wait until it runs. Safe to repeat."""
    done = _connector(context).deploy()
    if as_json:
        _print_json(
            {
                "action": done.action,
                "changes": done.changes,
                "added": done.added,
                "snapshot": done.snapshot,
                "unread": done.unread,
                "exact": done.exact,
                "status": done.status.document(),
            }
        )
        return
    if done.action == "updated":
        _print_changes(done.changes)
    _say(context, f"{done.status.name}: {done.action}, {_tasks(done.status)}")
    if not done.exact:
        _say(
            context,
            "warning: the worker has no exactly.once.source.support: a record that a killed worker sends late stays "
            "until cdc verify finds it",
        )
    for table in done.added:
        if reason := done.unread.get(table):
            _say(context, f"{table} is captured; its existing rows are not read: {reason}")
        else:
            _say(context, f"{table} is captured; its existing rows are asked for (snapshot {done.snapshot})")


@connect.command("status")
def status(context: typer.Context, as_json: Json = False) -> None:
    """Show the connector, its tasks, what went wrong, lag and offsets. Exit code 1 unless all of it runs and reads.

    A connector that says RUNNING is watched for up to 66 s: one that begins anew again and again says so, too.
    """
    connector = _connector(context)
    found = connector.status()
    reads = connector.streaming() if found.runs and found.lag is not None else None
    unread = look(connector.unread)
    cautions = [message for message, _ in unread] if not isinstance(unread, Unknown) else None
    if as_json:
        _print_json({**found.document(), "reads": reads, "unread": cautions})
    else:
        echo(f"{found.name}  {found.state}  {found.worker}{_trouble(found.trace)}")
        for task in found.tasks:
            echo(f"  task {task.task}  {task.state}  {task.worker}{_trouble(task.trace, task.cause)}")
        if found.lag is not None:
            lag = found.lag
            echo(
                f"  slot {lag.slot}  {'active' if lag.active else 'inactive'}  lag {_bytes(lag.lag_bytes)}"
                f"  retained {_bytes(lag.retained_bytes)}  wal {lag.wal_status or '-'}"
            )
            if reads is not None:
                echo(f"  {_READS[reads]}")
        else:
            echo(f"  lag unknown: {found.lag_unknown}")
        if words := connector.waiting_snapshot(found):
            echo(f"  {words}")
        for caution in cautions if cautions is not None else [f"rows that are still to be read: unknown: {unread}"]:
            echo(f"  {caution}")
        for entry in found.offsets:
            echo(f"  offset {orjson.dumps(entry['offset']).decode()}")
    if not found.runs:
        raise DifferenceFound(f"the connector {found.name} is {_state(found)}", hint=_next_step(found))
    if reads is not None and not reads.good:
        raise DifferenceFound(
            f"the connector {found.name} says RUNNING and does not get on: {_READS[reads]}",
            hint="the worker's log says why; cdc connect deploy brings publication and configuration to the settings",
        )


@connect.command("restart")
def restart(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Also what runs well.")] = False,
) -> None:
    """Restart the tasks that failed, and wait until the connector runs."""
    connector = _connector(context)
    tasks = connector.restart(failed_only=not everything)
    _say(context, f"restarted: {', '.join(f'task {n}' for n in tasks)}" if tasks else "nothing had failed")


@connect.command("resume")
def resume(context: typer.Context) -> None:
    """Go on after a stop."""
    _say(context, f"{_connector(context).resume().name} runs")


@connect.command("stop")
def stop(context: typer.Context) -> None:
    """End the tasks. Connector and offsets stay. The source has to keep its log: a slot of Postgres does."""
    connector = _connector(context)
    connector.stop()
    _say(context, f"{connector.name} is stopped; {_keeping(connector)} until cdc connect resume")


@connect.command("resnapshot")
def resnapshot(context: typer.Context, yes: Yes = False) -> None:
    """Read every table again, into new topics: the former ones are deleted. Safe to repeat. Then run cdc rebuild.

    For a connector whose place in the source is lost: its slot or binlog is gone, or the source was restored.
    """
    connector = _connector(context)
    _confirm(connector.name, "delete the topics of", yes)
    connector.resnapshot()
    _say(context, f"{connector.name} runs, and reads every table into new topics")
    for sink in context.obj.settings().sinks:
        _say(context, f"cdc rebuild {sink} fills the store from them; until then it is served as it was")


@connect.command("signal")
def signal(
    context: typer.Context,
    word: Annotated[str, typer.Argument(help="snapshot, stop, pause or resume (a snapshot).")],
    tables: Tables = None,
    blocking: Annotated[bool, typer.Option("--blocking", help="Hold the stream while the snapshot is read.")] = False,
    where: Annotated[str, typer.Option(help="SQL condition: only these rows, of one table.")] = "",
) -> None:
    """Read tables again (snapshot), or end (stop), pause or resume such a reading.

    Without --blocking the connector stops for some seconds. Prints the id of the snapshot, or of the signal.
    """
    connector = _connector(context)
    if word == "snapshot":
        echo(connector.snapshot(tables or [], blocking=blocking, where=where))
    elif identifier := connector.snapshot_control(word, tables or []):
        echo(identifier)
    else:
        _say(context, f"{connector.name} goes on without the rest of {', '.join(tables or []) or 'the snapshot'}")


@connect.command("delete")
def delete(context: typer.Context, yes: Yes = False) -> None:
    """Remove the connector and its offsets. Topics, slot and publication stay: cdc drop removes the last two."""
    connector = _connector(context)
    _confirm(connector.name, "remove", yes)
    connector.delete()
    left = "; its slot keeps WAL until it is dropped" if connector.database == "postgres" else ""
    _say(context, f"{connector.name} is removed{left}")


@connect.command("handover")
def handover(context: typer.Context, as_json: Json = False) -> None:
    """Let the native capture go on where Debezium stops: same topics, same slot, no new snapshot. Safe to repeat.

    Refused, before anything is stopped, where the two would write other keys, and while rows are read that were asked
    for. The sinks run on. Afterwards set [source] kind and start them again.
    """
    done = open_handover(context.obj.settings(), partial(_say, context)).run()
    if as_json:
        _print_json({"step": done.step, "lsn": str(Lsn(done.lsn)), "ends": done.ends})


def _connector(context: typer.Context) -> Any:
    return open_connector(context.obj.settings())


def _say(context: typer.Context, words: str) -> None:
    context.obj.console.print(words, highlight=False, markup=False, soft_wrap=True)


def _print_json(document: Any) -> None:
    typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())


def _print_changes(changes: dict[str, tuple[str | None, str | None]]) -> None:
    for option, (was, now) in changes.items():
        echo(f"{option}: {'(unset)' if was is None else was} -> {'(unset)' if now is None else now}")


def _confirm(name: str, deed: str, yes: bool) -> None:
    if yes:
        return
    typed = typer.prompt(f"type {name} to {deed} the connector", default="", show_default=False, err=True)
    if typed != name:
        raise UsageError("the name was not typed back: nothing was done", hint="--yes does not ask")


def _keeping(connector: Any) -> str:
    """A sentence on what the source keeps for a connector that does not read."""
    if connector.database == "postgres":
        return "its slot keeps WAL"
    return f"{connector.database} has to keep its log, which no slot holds back,"


def _tasks(status: Any) -> str:
    return f"{len(status.tasks)} task{'s' if len(status.tasks) != 1 else ''} running"


def _trouble(trace: str, cause: str = "") -> str:
    return "".join(f"\n    {words}" for words in (trace, cause) if words)


def _bytes(count: int | None) -> str:
    if count is None:
        return "-"
    for unit, size in (("GB", 1024**3), ("MB", 1024**2), ("kB", 1024)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _state(status: Any) -> str:
    return f"running with {len(status.failed)} failed tasks" if status.failed else str(status.state).lower()


def _next_step(status: Any) -> str:
    if status.failed or status.state == "FAILED":
        return str(status.error().hint)
    if status.state == "RUNNING":
        return "it has no task yet: look again in some seconds, then cdc connect restart --all"
    return "cdc connect resume"
