"""The function that ``[views.NAME] post`` names: imported, with the digest of its module's source."""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from cdc.clock import SYSTEM_CLOCK
from cdc.errors import ConfigError, Exit
from cdc.foreign import quoted
from cdc.views.post_functions import Post
from cdc.views.time_limits import TimeLimit, TookTooLong
from cdc.views.view_plan import ViewPlan

log = logging.getLogger(__name__)


IMPORT_LIMIT_S = 30.0
"""For so long the import of a module may take."""


def load_post(
    view: str, name: str, plan: ViewPlan, limit_s: float = 5.0, import_limit_s: float = IMPORT_LIMIT_S
) -> Post:
    """The function ``module:function`` on the documents of a view. The folder where the command runs is searched, too.

    ``limit_s``: for so long it may take for a document. ConfigError where there is no such function, or importing its
    module fails or takes too long, and where the view has masked values, with which a function would compute.
    """
    if plan.masked:
        raise ConfigError(
            f"the view {view} has masked values in {plan.masked[0]}, and [views.{view}] post would compute with them",
            hint="take such columns out of the view, or post out of its section",
        )
    module, _, function = name.partition(":")
    if not module or not function.isidentifier():
        raise ConfigError(f"[views.{view}] post is no function: {name}", hint='write it as "module:function"')
    _search_here()
    found = _imported(view, module, TimeLimit(import_limit_s, partial(_end, f"importing {module}"), SYSTEM_CLOCK))
    made = getattr(found, function, None)
    if not callable(made):
        raise ConfigError(f"[views.{view}] post: the module {module} has no function {function}", hint="see its source")
    return Post(name, made, _digest(view, found, name), plan, TimeLimit(limit_s, partial(_end, name), SYSTEM_CLOCK))


def _end(what: str) -> None:
    """A call that nothing interrupts holds up every view of the process, and would for ever."""
    log.error("view_post_stuck", extra={"function": what, "exit": int(Exit.CONFIG)})
    logging.shutdown()
    os._exit(Exit.CONFIG)


def _search_here() -> None:
    # Behind all others: a folder of the user's hides no package.
    here = str(Path.cwd())
    if not {here, ""}.intersection(sys.path):
        sys.path.append(here)


def _imported(view: str, module: str, limit: TimeLimit) -> ModuleType:
    try:
        return limit.call(lambda: import_module(module))
    except TookTooLong:
        hint = "a module that only defines the function is imported at once; see what it waits for"
        raise ConfigError(f"[views.{view}] post: importing {module} took longer than its limit", hint=hint) from None
    except Exception as failure:
        hint = "it has to be importable where cdc runs: its folder in PYTHONPATH, or the one that cdc is started in"
        why = quoted(failure) if isinstance(failure, ImportError) else type(failure).__name__
        raise ConfigError(f"[views.{view}] post cannot be imported: {why}", hint=hint) from None


def _digest(view: str, module: ModuleType, name: str) -> str:
    """Of the whole module: what the function calls may stand beside it."""
    spec = find_spec(module.__name__)
    try:
        source = Path(spec.origin).read_bytes() if spec is not None and spec.origin is not None else None
    except OSError:
        source = None
    if source is None:
        raise ConfigError(
            f"[views.{view}] post: the module of {name} has no file", hint="name a function of a module in a file"
        )
    return blake2b(source + name.encode(), digest_size=16).hexdigest()
