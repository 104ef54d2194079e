"""HTML from values: every text is escaped unless it is HTML already. Pure."""

from __future__ import annotations

from html import escape


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: str | bool) -> Html:
    """An element with its children. Those that are no :class:`Html` are text, and escaped, as attributes are.

    An underscore in an attribute's name is a hyphen, and one at its end is left out. True stands alone, and False is
    left out.

    >>> element("b", "a<b", element("i"), class_="x", data_at='"', hidden=True)
    '<b class="x" data-at="&quot;" hidden>a&lt;b<i></i></b>'
    """
    said = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value))}"')
        for key, value in attributes.items()
        if value is not False
    )
    return Html(f"<{name}{said}>{together(*children)}</{name}>")


def together(*children: str) -> Html:
    """The children behind each other, escaped where they are text.

    >>> together("<", Html("<br>"))
    '&lt;<br>'
    """
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children))
