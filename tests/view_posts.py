"""Functions on documents, for tests of ``[views.NAME] post``."""

from __future__ import annotations

from typing import Any

BROKEN = 13


def add_slug(document: dict[str, Any]) -> dict[str, Any]:
    """Fill ``slug`` from the customer."""
    customer = document["customer"] or {}
    return document | {"slug": f"{document['id']}-{customer.get('name')}"}


def refuse_one(document: dict[str, Any]) -> dict[str, Any]:
    """As :func:`add_slug`. Raises on one key."""
    if document["id"] == BROKEN:
        raise ValueError("a secret of the row")
    return document | {"slug": f"{document['id']}-{document['name']}"}
