"""Figures as values: axes, lines and tables, which the templates of the report draw."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kueuelib.pages.templates import number
from kueuelib.simulator.report.scales import Scale

TOP, RIGHT, BOTTOM = 10.0, 14.0, 40.0
"""Margins of a chart; the left one depends on its labels."""

Values = Sequence[float | None]


@attrs.frozen
class Axis:
    """One side of a chart.

    Attributes:
        scale: the places of values.
        ticks: values with their labels.
        title: the meaning of the values; empty if the labels show it.
    """

    scale: Scale
    ticks: Sequence[tuple[float, str]]
    title: str = ""


@attrs.frozen
class Bar:
    """A bar from left to right: its class, what it shows, its place and its size."""

    kind: str
    text: str
    x: float
    y: float
    width: float
    height: float


@attrs.frozen
class Picture:
    """A chart with a description in words.

    Attributes:
        title: what it shows, in a few words.
        text: a description of its content.
        width: in pixels, if there is enough room.
        height: in pixels.
        across: the axis at the bottom.
        up: the axis at the left.
        paths: what is drawn, each with its class; empty ones are not.
        rows: bars below each other: the height and the text of a name, and the bars.
    """

    title: str
    text: str
    width: float
    height: float
    across: Axis
    up: Axis
    paths: Sequence[tuple[str, str]] = ()
    rows: Sequence[tuple[float, str, Sequence[Bar]]] = ()


@attrs.frozen
class Table:
    """The same as a picture in numbers.

    Attributes:
        title: what it shows.
        head: the names of the columns.
        rows: the cells; the first one of a row names it.
        texts: how many columns at the left are texts; the others are numbers.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1


@attrs.frozen
class ChartPanel:
    """A picture in a figure, below its title, with a table if it has one of its own."""

    title: str
    picture: Picture
    table: Table | None = None


def steps(borders: Sequence[float], values: Values, across: Axis, up: Axis) -> str:
    """A path that keeps each value for its interval; a gap where there is none.

    Args:
        borders: of the intervals, one more than values.
        values: by interval.
        across: the axis of the borders.
        up: the axis of the values.
    """
    parts: list[str] = []
    height: str | None = None
    for at, value in enumerate(values):
        now = None if value is None else number(up.scale(value))
        if now != height:
            x = number(across.scale(borders[at]))
            if height is not None:
                parts.append(f"H{x}")
            if now is not None:
                parts.append(f"M{x} {now}" if height is None else f"V{now}")
        height = now
    if height is not None:
        parts.append(f"H{number(across.scale(borders[len(values)]))}")
    return "".join(parts)


def area(borders: Sequence[float], values: Values, across: Axis, up: Axis) -> str:
    """The same as `steps`, filled down to 0."""
    path = steps(borders, values, across, up)
    return path and f"{path}V{number(up.scale(0.0))}H{number(across.scale(borders[0]))}Z"
