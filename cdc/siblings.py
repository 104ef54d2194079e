"""Whether the packages that live beside ``cdc`` are headrace's own."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from cdc.errors import ConfigError

SIBLINGS = ("connectors", "snapshot", "sinks", "spark")


def check_packages(home: Path | None = None) -> None:
    """ConfigError when a folder of the user's hides one of the packages that live beside ``cdc``.

    The five packages are flat, so somebody's own ``connectors/`` earlier on the path would be taken for ours.
    """
    home = home or Path(__file__).resolve().parent.parent
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
