"""The check that holds for stores of every kind. A kind's own stand with it, see :class:`sinks.kinds.SinkKind`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cdc.checks.facts import StoreFacts
from cdc.checks.finding import Finding, fail, ok


def check_product(name: str, facts: StoreFacts, oldest: Mapping[str, int]) -> Finding:
    """``oldest``: by product in lower case, the major version below which it lacks what the sink uses."""
    found = re.match(r"\d+", facts.version)
    needed = oldest.get(facts.product.lower())
    if found and needed and int(found[0]) < needed:
        message = f"{facts.product} {facts.version} is older than {needed}"
        return fail(name, "version", message, f"upgrade to {facts.product} {needed} or later")
    return ok(name, "reachable", f"{facts.product} {facts.version}".strip() + " answers")
