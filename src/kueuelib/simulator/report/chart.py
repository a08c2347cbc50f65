"""Charts as SVG: a frame with axes, and its content."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

import attrs

from kueuelib.pages.markup import Markup, join, number, tag
from kueuelib.simulator.report.scales import Scale

TOP, RIGHT, BOTTOM = 10.0, 14.0, 40.0
"""Margins of a chart; the left one depends on its labels."""

Ticks = Sequence[tuple[float, str]]


@attrs.frozen
class Axis:
    """One side of a chart.

    Attributes:
        scale: the places of values.
        ticks: values with their labels.
        title: the meaning of the values; empty if the labels show it.
    """

    scale: Scale
    ticks: Ticks
    title: str = ""


class Names:
    """Gives unique ids to the elements of a page."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def next(self) -> str:
        """A new id."""
        return f"c{next(self._numbers)}"


def picture(
    names: Names, title: str, text: str, width: float, height: float, *marks: Markup
) -> Markup:
    """An SVG with a description in words.

    Args:
        names: of the page.
        title: what it shows, in a few words.
        text: a description of its content.
        width: in pixels, if there is enough room.
        height: in pixels.
        marks: the content.
    """
    name = names.next()
    return tag(
        "svg",
        tag("title", title, id=f"{name}t"),
        tag("desc", text, id=f"{name}d"),
        *marks,
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        aria_labelledby=f"{name}t {name}d",
    )


def axes(across: Axis, up: Axis, *, lines: bool = True) -> Markup:
    """The lines and labels of both axes; optionally with thin lines across the picture."""
    left, right = across.scale.start, across.scale.end
    top, bottom = up.scale.end, up.scale.start
    parts = []
    for value, label in up.ticks:
        y = up.scale(value)
        if lines:
            parts.append(tag("line", class_="grid", x1=left, x2=right, y1=y, y2=y))
        parts.append(tag("text", label, x=left - 6, y=y + 4, text_anchor="end"))
    for value, label in across.ticks:
        x = across.scale(value)
        parts.append(tag("line", class_="tick", x1=x, x2=x, y1=bottom, y2=bottom + 4))
        if lines is False:
            parts.append(tag("line", class_="grid", x1=x, x2=x, y1=top, y2=bottom))
        anchor = "end" if x > right - 12 else "middle"
        parts.append(tag("text", label, x=x, y=bottom + 17, text_anchor=anchor))
    parts.append(tag("line", class_="axis", x1=left, x2=right, y1=bottom, y2=bottom))
    if across.title:
        at = (left + right) / 2
        parts.append(tag("text", across.title, x=at, y=bottom + 33, text_anchor="middle"))
    return join(*parts)


def steps(
    borders: Sequence[float], values: Sequence[float | None], across: Scale, up: Scale, kind: str
) -> Markup:
    """A line that keeps each value for its interval; a gap where there is none.

    Args:
        borders: of the intervals, one more than values.
        values: by interval.
        across: the scale of the borders.
        up: the scale of the values.
        kind: the class of the line.
    """
    return tag("path", d=_stairs(borders, values, across, up), class_=f"line {kind}")


def area(
    borders: Sequence[float], values: Sequence[float], across: Scale, up: Scale, kind: str
) -> Markup:
    """The same as `steps`, filled down to 0."""
    if not values:
        return Markup()
    path = _stairs(borders, values, across, up)
    floor, back = number(up(0.0)), number(across(borders[0]))
    return tag("path", d=f"{path}V{floor}H{back}Z", class_=f"area {kind}")


def _stairs(
    borders: Sequence[float], values: Sequence[float | None], across: Scale, up: Scale
) -> str:
    parts: list[str] = []
    height: str | None = None
    for at, value in enumerate(values):
        now = None if value is None else number(up(value))
        if now != height:
            x = number(across(borders[at]))
            if height is not None:
                parts.append(f"H{x}")
            if now is not None:
                parts.append(f"M{x} {now}" if height is None else f"V{now}")
        height = now
    if height is not None:
        parts.append(f"H{number(across(borders[len(values)]))}")
    return "".join(parts)


def legend(entries: Iterable[tuple[str, str]]) -> Markup:
    """The legend of a figure: a sample of each class, and its name."""
    items = []
    for kind, label in entries:
        filled = kind.startswith("area")
        sample = (
            tag("rect", x=0, y=1, width=22, height=10, class_=kind)
            if filled
            else tag("path", d="M0 6H22", class_=f"line {kind}")
        )
        svg = tag("svg", sample, viewBox="0 0 22 12", width=22, height=12, aria_hidden="true")
        items.append(tag("li", svg, label))
    return tag("ul", *items, class_="legend")
