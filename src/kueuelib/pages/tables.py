"""Tables of pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kueuelib.pages.markup import Markup, tag


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, title: str, texts: int = 1
) -> Markup:
    """A table that can be scrolled to the side.

    Args:
        head: the names of the columns.
        rows: the cells; the first one of a row names it.
        title: what it shows.
        texts: how many columns at the left are texts; the others are numbers.
    """
    sides = ["text" if at < texts else None for at in range(len(head))]
    names = [
        tag("th", name, scope="col", class_=side) for name, side in zip(head, sides, strict=True)
    ]
    lines = []
    for first, *others in rows:
        cells = [tag("th", first, scope="row", class_="text")]
        cells += [tag("td", one, class_=side) for one, side in zip(others, sides[1:], strict=True)]
        lines.append(tag("tr", *cells))
    element = tag(
        "table", tag("caption", title), tag("thead", tag("tr", *names)), tag("tbody", *lines)
    )
    return tag("div", element, class_="wide", tabindex="0", role="region", aria_label=title)


def folded(content: Markup, summary: str = "As a table") -> Markup:
    """Content that is shown on demand."""
    return tag("details", tag("summary", summary), content)
