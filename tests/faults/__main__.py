"""``make faults ARGS="decoder --seconds 300"``: run experiments of the fault laboratory and count what held.

Each goes on at the seed where its last run ended, and adds to the figures in tests/faults/results, which belong to the
code that they were taken on. A promise that does not hold ends the run with exit code 1 and the seed, which later runs
try first; ``--seed N`` tries one again and counts nothing. ``--due`` lists what is to be run again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from connectors import debezium
from tests.faults import experiments, results
from tests.faults.lab import Lab, Limits
from tests.faults.reach import digest

_AT_ONCE = 4
"""Seeds a worker has waiting, so that it never runs dry."""

_SHOWN = 200
"""Characters of an error that are kept."""

WITHOUT_VIEWS = tuple(
    f"connectors.view_{name}" for name in ("asides", "ending", "looks", "planning", "running", "showing")
)
"""Modules of views. Experiments that define no view call nothing of them but what finds none."""

WITHOUT_CONNECTORS = tuple(module.name for module in iter_modules(debezium.__path__, f"{debezium.__name__}."))
"""Modules of Debezium's connectors. No experiment has one: each captures by itself, and asks them for nothing but
whether there may be one."""

WITHOUT_PAGES = ("cdc.figures.http_server", "spark.runner.wait_page")
"""What answers over HTTP, beside capture and sinks. Experiments that ask it say ``PAGES = True``."""

Trial = Callable[[int], Mapping[str, int]]


def names() -> list[str]:
    """Every experiment, by its module's name."""
    return sorted(module.name for module in iter_modules(experiments.__path__))


def carry_out(lab: Lab, module: ModuleType) -> None:
    """One run of an experiment: ``trial`` by seed, in ``workers`` processes; or ``run``, which asks for its seeds."""
    trial: Trial | None = getattr(module, "trial", None)
    if trial is None:
        module.run(lab)
    elif lab.workers == 1 or lab.limits.seed is not None:
        for seed in lab.seeds():
            lab.count(**trial(seed))
    else:
        _again(lab, trial)
        _side_by_side(lab, trial)


def _again(lab: Lab, trial: Trial) -> None:
    """The seeds that failed before."""
    for failure in lab.figures.open_failures:
        lab.seed = failure.seed
        lab.count(**trial(failure.seed))
        lab.figures.held(failure.seed, lab.limits.mended)


def _side_by_side(lab: Lab, trial: Trial) -> None:
    """Seeds are counted in order, so that the next run goes on behind the last one that held."""
    block = lab.workers * _AT_ONCE
    start, first = lab.clock.monotonic(), lab.figures.next_seed
    with ProcessPoolExecutor(lab.workers) as pool:
        while lab.clock.monotonic() < start + lab.limits.seconds:
            left = block if lab.limits.count is None else min(block, first + lab.limits.count - lab.figures.next_seed)
            if left <= 0:
                break
            began, lab.seed = lab.clock.monotonic(), lab.figures.next_seed
            for figures in pool.map(trial, range(lab.seed, lab.seed + left)):
                lab.count(**figures)
                lab.seed += 1
            lab.tried(lab.seed, lab.clock.monotonic() - began)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names())}; all unless named")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each goes on at least (default 60)")
    parser.add_argument("--count", type=int, help="end after so many seeds")
    parser.add_argument("--seed", type=int, help="try this one only; nothing is counted")
    parser.add_argument("--workers", type=int, default=1, help="processes, for those that need no server")
    parser.add_argument("--stack-dir", type=Path, help="use the stack that runs in this folder")
    parser.add_argument("--results", type=Path, default=results.FOLDER, help="where the figures are kept")
    parser.add_argument("--mended", default="", help="what was wrong with the seeds that failed and hold now")
    parser.add_argument("--due", action="store_true", help="list the experiments whose code has changed, and end")
    parser.add_argument("--none-due", action="store_true", help="the same, with exit code 1 where there is one")
    parser.add_argument("--table", action="store_true", help="print the figures as Markdown and end")
    options = parser.parse_args(argv)
    if options.table:
        print(results.table(options.results), end="")
        return 0
    if options.due or options.none_due:
        found = _due(options.results)
        return int(options.none_due and found > 0)
    unknown = set(options.names) - set(names())
    if unknown:
        parser.error(f"there is no experiment {', '.join(sorted(unknown))}")
    return max([_one(name, options) for name in options.names or names()], default=0)


def _due(folder: Path) -> int:
    """List what is to be run again; returns how many."""
    due = []
    for name in names():
        module = import_module(f"{experiments.__name__}.{name}")
        why = _why_due(results.load(name, folder), module)
        due += [f"  {name}: {why}"] if why else []
    if due:
        print(f"{len(due)} of {len(names())} experiments are due (make faults ARGS=NAME):", *due, sep="\n")
    return len(due)


def _why_due(figures: results.Figures, module: ModuleType) -> str:
    if codes := _codes(module):
        return results.why_parts_due(figures, codes)
    return results.why_due(figures, _code(module))


def _code(module: ModuleType) -> str:
    """The digest of what the experiment reaches."""
    views = () if getattr(module, "VIEWS", False) else WITHOUT_VIEWS
    pages = () if getattr(module, "PAGES", False) else WITHOUT_PAGES
    return digest(module.__name__, without=(*WITHOUT_CONNECTORS, *pages, *views))


def _codes(module: ModuleType) -> Mapping[str, str]:
    """The parts of an experiment that has parts, each with the digest of its code."""
    codes: Callable[[], Mapping[str, str]] | None = getattr(module, "codes", None)
    return codes() if codes is not None else {}


def _one(name: str, options: argparse.Namespace) -> int:
    module = import_module(f"{experiments.__name__}.{name}")
    print(f"{name}: {(module.__doc__ or '').strip().splitlines()[0]}", flush=True)
    limits = Limits(seconds=options.seconds, count=options.count, seed=options.seed, mended=options.mended)
    figures = results.load(name, options.results)
    if codes := _codes(module):
        figures.begin_parts(results.commit_now(), codes)
    else:
        figures.begin(results.commit_now(), _code(module))
    with tempfile.TemporaryDirectory(prefix="cdc-faults-") as folder:
        lab = Lab(
            name=name, limits=limits, folder=Path(folder), figures=figures,
            results=options.results, workers=options.workers, stack_dir=options.stack_dir,
        )  # fmt: skip
        try:
            carry_out(lab, module)
        except Exception as error:
            if options.seed is not None:
                raise
            if not codes:
                lab.failed(f"{type(error).__name__}: {error}".splitlines()[0][:_SHOWN])
            for one in reversed(_chain(error)):
                print(f"  seed {lab.seed}: {type(one).__name__}: {one}", file=sys.stderr)
            if not codes:
                print(f'hint: make faults ARGS="{name} --seed {lab.seed}" tries it again', file=sys.stderr)
            return 1
        finally:
            lab.close()
    shown = ", ".join(f"{count:,} {what}" for what, count in lab.figures.sums.items())
    reached = f"{len(lab.figures.parts):,} parts" if codes else f"seeds to {lab.figures.next_seed:,}"
    print(f"  {reached}, {lab.figures.seconds:,.0f} s in all: {shown}", flush=True)
    return 0


def _chain(error: BaseException) -> list[BaseException]:
    """What was raised, and what it was raised upon: tidying up after a failure may fail, too."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return [error, *(_chain(before) if before is not None else [])]


if __name__ == "__main__":
    sys.exit(main())
