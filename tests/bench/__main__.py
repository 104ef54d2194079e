"""``make bench ARGS="capture latency --scale 0.1"``: run benchmarks on the local stack and print what they measured.

A benchmark is a module here with a function ``bench(bench: Bench) -> None`` and a docstring that says its method.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from cdc.stack.local import LocalStack, free_ports
from tests.bench.setting import Bench, machine

_HELPERS = ("setting", "encode_paths", "beside_commit", "family_cpu")
_COMPARING = ("encode",)
"""Those that can measure another commit's code beside ours."""


def names() -> list[str]:
    """Every benchmark, by its module's name."""
    found = [module.name for module in iter_modules([str(Path(__file__).parent)])]
    return sorted(name for name in found if name not in _HELPERS and not name.startswith("_"))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names())}; all unless named")
    parser.add_argument("--stack-dir", type=Path, help="use the stack that runs in this folder")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full size")
    parser.add_argument("--beside", metavar="COMMIT", help=f"beside another commit's code: {', '.join(_COMPARING)}")
    options = parser.parse_args(argv)
    unknown = set(options.names) - set(names())
    if unknown:
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    if options.beside and (not options.names or set(options.names) - set(_COMPARING)):
        parser.error(f"only {', '.join(_COMPARING)} can be measured beside another commit")
    with tempfile.TemporaryDirectory(prefix="cdc-bench-") as folder:
        # Who measures Debezium beside us lets its JVM compile as a server's does.
        os.environ.setdefault("KAFKA_JVM_PERFORMANCE_OPTS", "-server -Xms1g -Xmx2g")
        print(machine(), flush=True)
        stack = LocalStack(options.stack_dir or Path(folder) / "stack")
        if options.stack_dir is None:
            stack.start(ports=free_ports())
        try:
            for name in options.names or names():
                module = import_module(f"tests.bench.{name}")
                print(f"\n{name}: {(module.__doc__ or '').strip().splitlines()[0]}", flush=True)
                module.bench(Bench(stack, Path(folder), options.scale, options.beside))
        finally:
            if options.stack_dir is None:
                stack.wipe()
    return 0


if __name__ == "__main__":
    sys.exit(main())
