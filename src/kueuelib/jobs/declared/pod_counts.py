"""Counts the pods of a declared kind of jobs, and those that are done."""

from __future__ import annotations

import json
from collections.abc import Sequence

import attrs

from kueuelib.api.meta import Obj
from kueuelib.errors import InvalidJob
from kueuelib.jobs.contract.paths import value


@attrs.frozen
class AtMost:
    """A number that is limited by another one.

    Attributes:
        path: of the number; an absent one counts as 1.
        limit: the path of the limit; an absent one does not limit.
    """

    path: str
    limit: str


Factor = str | AtMost
"""A factor in the number of pods: its path, or a number with a limit."""


@attrs.frozen
class Done:
    """The number of succeeded pods of a shape, if it is in another part of the object.

    Attributes:
        each: the path, starting at the object, of a list with one element per pod set.
        count: the path within the element of the number of units that have succeeded.
        name: the path within the element of the name of the pod set.
        pods: how many pods a unit has, within the element that has the template.
    """

    each: str
    count: str = "succeeded"
    name: str = "name"
    pods: tuple[Factor, ...] = ()


def product_of(place: Obj, factors: Sequence[Factor]) -> int:
    """The product of all numbers; 1 if there are none.

    Raises:
        InvalidJob: one of them is not a whole number.
    """
    product = 1
    for factor in factors:
        path = factor.path if isinstance(factor, AtMost) else factor
        number = number_at(place, path)
        number = 1 if number is None else number
        limit = number_at(place, factor.limit) if isinstance(factor, AtMost) else None
        product *= number if limit is None else min(number, limit)
    return product


def number_at(place: Obj, path: str) -> int | None:
    """A number of at least 0; None if it is absent.

    Raises:
        InvalidJob: the value is not such a number.
    """
    number = value(place, path)
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InvalidJob(path, f"{json.dumps(number)} is not a whole number of at least 0")
    return number
