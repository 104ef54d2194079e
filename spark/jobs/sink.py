"""The same as ``cdc sink``, for ``spark-submit``: ``spark-submit … spark/jobs/sink.py --config cdc.toml [NAME]…``"""

from __future__ import annotations

import sys

from cdc.cli.app import run


def arguments(given: list[str]) -> list[str]:
    """``cdc``'s arguments for the job's: global options stand before the command, whatever their order here.

    >>> arguments(["cache", "--config", "cdc.toml", "--until-caught-up", "-v"])
    ['--config', 'cdc.toml', '-v', 'sink', 'cache', '--until-caught-up']
    """
    before: list[str] = []
    after: list[str] = []
    rest = iter(given)
    for argument in rest:
        if argument in ("--config", "-c"):
            before += [argument, next(rest, "")]
        elif argument.startswith("--config=") or set(argument) == {"-", "v"}:
            before.append(argument)
        else:
            after.append(argument)
    return [*before, "sink", *after]


if __name__ == "__main__":
    sys.exit(run(arguments(sys.argv[1:])))
