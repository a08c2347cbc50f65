"""Cells, times and amounts of the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kueuelib.api.ages import duration
from kueuelib.api.meta import ObjectKey, format_time
from kueuelib.api.phrases import some
from kueuelib.api.quantity import format_amount
from kueuelib.pages.markup import Markup, Node, join, tag
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.simulator.figures import shown
from kueuelib.simulator.report import readable

MOST_NAMES = 3
"""Objects that a cell names before it counts them."""
MOST_DIGITS = 7
"""The longest amount that is not rounded; what members of a cohort lend has any value."""
NONE = tag("span", "-", class_="soft")


def age(at: float | None, now: float | None) -> Markup:
    """How long ago something was; if `now` is None, the script of the page fills it in.

    Args:
        at: in seconds since the epoch; None if that is not known.
        now: the same.
    """
    if at is None:
        return NONE
    moment = format_time(at)
    text = "" if now is None else duration(max(0.0, now - at))
    return tag("time", text, datetime=moment, title=moment)


def amount(pair: FlavorResource, value: int) -> str:
    """An amount of a resource as in manifests, or rounded if that has too many digits."""
    exact = format_amount(pair.resource, value)
    if len(exact) <= MOST_DIGITS:
        return exact
    return readable.amount(shown(pair.resource, value), pair.resource)


def names(keys: Sequence[ObjectKey]) -> str:
    """The first of some objects, and how many more there are."""
    return some(keys, MOST_NAMES)


def unfolded(short: str, whole: str) -> Node:
    """A short text that opens to a long one, or only the short one if they are the same."""
    if not whole or whole == short:
        return short
    return tag("details", tag("summary", short), tag("p", whole))


def lines(texts: Iterable[Node]) -> Markup:
    """Texts below each other."""
    return join(*(tag("div", text) for text in texts))
