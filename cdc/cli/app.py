"""The ``cdc`` command: its commands in life-cycle order, its global options, and how errors are shown."""

from __future__ import annotations

import difflib
import inspect
import logging
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
import typer.core
from rich.console import Console
from rich.markup import escape

from cdc.cli.terminal import TerminalConsole, report
from cdc.process import __version__, logs
from cdc.process.errors import ConfigError, Exit, UsageError
from cdc.process.interrupted_imports import ending_at_once
from cdc.settings.model import Settings
from sinks.contract.kinds import load_settings


class Entry(NamedTuple):
    """A command's name and the heading that ``cdc --help`` shows it under."""

    name: str
    panel: str


COMMANDS: tuple[Entry, ...] = (
    Entry("config", "Set up"),
    Entry("check", "Set up"),
    Entry("init", "Set up"),
    Entry("up", "Run"),
    Entry("snapshot", "Run"),
    Entry("run", "Run"),
    Entry("sink", "Run"),
    Entry("view", "Run"),
    Entry("stream", "Run"),
    Entry("events", "Look"),
    Entry("status", "Look"),
    Entry("diff", "Look"),
    Entry("verify", "Look"),
    Entry("wait", "Look"),
    Entry("dead", "Mend"),
    Entry("rebuild", "Mend"),
    Entry("forget", "Mend"),
    Entry("connect", "Mend"),
    Entry("drop", "Mend"),
    Entry("stack", "Try"),
    Entry("demo", "Try"),
)
"""Every command, in life-cycle order. Each stands in ``cdc/cli/<name>.py`` as a function or a Typer of its name."""


_EVERYTHING = 2
"""``-vv``."""


class Invocation:
    """The global options of one call. A command finds it in ``context.obj``."""

    def __init__(self, config: Path, verbosity: int = 0, console: Console | None = None) -> None:
        self.config = config
        self.verbosity = verbosity
        self.console = console or TerminalConsole(stderr=True)
        """Talk for people: stderr."""
        self._settings: Settings | None = None

    def settings(self) -> Settings:
        """The settings file, read at the first call. ConfigError says what is wrong with it."""
        if self._settings is None:
            self._settings = load_settings(self.config)
        return self._settings


class LifeCycleGroup(typer.core.TyperGroup):
    """Lists the commands in their order and imports only the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands that are installed, in the order of a pipeline's life."""
        return [entry.name for entry in COMMANDS if find_spec(f"cdc.cli.{entry.name}")]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command. Returns None where there is none of the name."""
        entry = next((entry for entry in COMMANDS if entry.name == cmd_name), None)
        if entry is None or find_spec(f"cdc.cli.{entry.name}") is None:
            return None
        return _command(entry)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command of the arguments. UsageError with the nearest name where there is none."""
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            close = difflib.get_close_matches(args[0], known, n=1)
            hint = f"did you mean cdc {close[0]}?" if close else "cdc --help lists the commands"
            raise UsageError(f"there is no command {args[0]}", hint=hint)
        return super().resolve_command(ctx, args)


def _command(entry: Entry) -> Any:
    with ending_at_once():
        module = import_module(f"cdc.cli.{entry.name}")
    made = getattr(module, entry.name, None) or module.app
    if isinstance(made, typer.Typer):
        command: Any = typer.main.get_group(made)
    else:
        single = typer.Typer(add_completion=False)
        single.command(entry.name, no_args_is_help=False)(made)
        command = typer.main.get_command(single)
    command.name = entry.name
    command.rich_help_panel = entry.panel
    return as_written(command)


app = typer.Typer(
    name="cdc",
    cls=LifeCycleGroup,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    config: Annotated[
        Path, typer.Option("--config", "-c", envvar="CDC_CONFIG", help="Settings file.", show_default=True)
    ] = Path("cdc.toml"),
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="Log more, given twice everything.", show_default=False)
    ] = 0,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Postgres changes, in order, in a compacted Kafka topic. Search, cache and warehouse kept true from it."""
    invocation = context.obj if isinstance(context.obj, Invocation) else Invocation(config)
    invocation.config = config
    invocation.verbosity = verbose
    context.obj = invocation
    check_packages()
    _configure_logs(verbose)


def _configure_logs(verbosity: int) -> None:
    """Warnings alone, unless asked for more. ``cdc run`` and ``cdc sink`` say more by themselves."""
    logs.configure(max(0, verbosity - 1))
    if verbosity < _EVERYTHING:
        # Clients that are written in Rust log to stderr by themselves. An error comes back as an exception.
        os.environ.setdefault("RUST_LOG", "off")
    if not verbosity:
        for name in logs.OURS:
            logging.getLogger(name).setLevel(logging.WARNING)
        # A Kafka client retries most failures by itself, and returns the others as errors.
        logging.getLogger("connectors.kafka.clients").setLevel(logging.CRITICAL)
        logging.getLogger("headrace.sinks").setLevel(logging.CRITICAL)


def run(arguments: Sequence[str]) -> int:
    """Run one command line. Returns its exit code, having printed an error as a sentence and a hint."""
    invocation = Invocation(Path("cdc.toml"))
    command = as_written(typer.main.get_command(app))
    try:
        code = command.main(hoisted(arguments) or ["--help"], prog_name="cdc", standalone_mode=False, obj=invocation)
        return code if isinstance(code, int) else Exit.OK
    except (typer.Abort, KeyboardInterrupt) as ended:
        if not isinstance(ended.__context__, EOFError):
            return 130
        invocation.console.print()
        hint = "answer in a terminal. --help says how to go without"
        return report(
            UsageError("this asks for an answer, and there is nobody to give one", hint=hint), invocation.console
        )
    except BrokenPipeError:
        # The reader of our output left, as `head` does. Nothing more can be printed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except typer.TyperException as misuse:
        words = misuse.format_message().rstrip(".") or f"{_path(misuse)} takes one of the commands above"
        wrong = UsageError(words[:1].lower() + words[1:], hint=f"{_path(misuse)} --help shows how")
        return report(wrong, invocation.console)
    except Exception as failure:
        return report(failure, invocation.console)


def hoisted(arguments: Sequence[str]) -> list[str]:
    """The command line with the global options moved to the front: they may stand behind the command as well.

    >>> hoisted(["run", "-v", "--config", "shop.toml"])
    ['-v', '--config', 'shop.toml', 'run']
    """
    words = list(arguments)
    end = words.index("--") if "--" in words else len(words)
    front: list[str] = []
    behind: list[str] = []
    while words and len(front) + len(behind) < end:
        count = _global(words[0])
        taken = [words.pop(0) for _ in range(min(count or 1, end - len(front) - len(behind)))]
        (front if count == len(taken) else behind).extend(taken)
    return [*front, *behind, *words]


_VERBOSE = re.compile("-v+|--verbose|-c.+|--config=.*")


def _global(word: str) -> int:
    """How many words the global option takes that begins with this one. 0 where none does."""
    return 2 if word in ("--config", "-c") else int(_VERBOSE.fullmatch(word) is not None)


def _path(misuse: typer.TyperException) -> str:
    """The command that was misused, as typed: ``cdc verify``."""
    context = getattr(misuse, "ctx", None)
    return context.command_path if context is not None else "cdc"


SIBLINGS = ("connectors", "snapshot", "sinks", "spark")


def check_packages(home: Path | None = None) -> None:
    """ConfigError when a folder of the user's hides one of the packages that live beside ``cdc``.

    The five packages are flat, so somebody's own ``connectors/`` earlier on the path would be taken for ours.
    """
    home = home or Path(__file__).resolve().parents[2]
    for name in SIBLINGS:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ConfigError(f"headrace's package {name} is not installed beside cdc", hint="install headrace again")
        found = Path(spec.origin).resolve().parent
        if found.parent != home:
            raise ConfigError(
                f"another package called {name}, in {found}, hides headrace's own",
                hint="start cdc from another folder, or take that one off PYTHONPATH",
            )


# Help that reads as it was written.
#
# Rich takes words in square brackets for markup and leaves them out, and keeps the line ends of docstrings, so that at
# another width a paragraph breaks twice.


def as_written(command: Any) -> Any:
    """The same Typer command. Its help, and that of its subcommands, shows every word, in whole paragraphs."""
    command.help = paragraphs(command.help or "")
    for parameter in command.params:
        if getattr(parameter, "help", None):
            parameter.help = escape(parameter.help)
    for below in getattr(command, "commands", {}).values():
        as_written(below)
    return command


def paragraphs(text: str) -> str:
    """Each paragraph in one line, in rich's markup.

    >>> paragraphs("Read [spark] conf,\\nand more.\\n\\nThe end.")
    'Read \\\\[spark] conf, and more.\\n\\nThe end.'
    """
    each = inspect.cleandoc(text).split("\n\n")
    return escape("\n\n".join(" ".join(one.split()) for one in each))
