"""Signs of a declared kind that contradict each other, or that no object can show.

With such a declaration, pods would seem never to run, never to be ready, or never to fail: quota
would be free while pods run, or held forever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from kueuelib.jobs.contract.paths import ANY, steps_of
from kueuelib.jobs.declared.signs import (
    Differs,
    Enough,
    Equals,
    Every,
    HasCondition,
    Sign,
    never,
)

_NEEDED = {
    "active": "give the sign that a pod runs or may run",
    "ready": "give the sign that all pods are ready",
}

Signs = Sign | Sequence[Sign]


def check_together(signs: Mapping[str, Signs], suspended: HasCondition | None) -> None:
    """Check that objects can show the signs, and that none of them means two things.

    Args:
        signs: by argument of `declare`; each is valid by itself.
        suspended: the condition that shows that a stop was seen, or None.

    Raises:
        ValueError: they do not fit together; the message names the argument.
    """
    for argument, sign in signs.items():
        for each in _each(sign):
            if isinstance(each, Every) and _is_impossible(each):
                raise ValueError(
                    f"{argument}: every(...) has signs that no object shows together; give a list "
                    "if one of them is enough"
                )
    for argument, fix in _NEEDED.items():
        if all(each is never for each in _each(signs[argument])):
            raise ValueError(f"{argument} is never shown; {fix}")
        for path in (path for each in _each(signs[argument]) for path in _paths_of(each)):
            if path[0] == "spec":
                field = ".".join(path)
                raise ValueError(f"{argument}: {field!r} does not show what pods do; {fix}")
    for each in _each(signs["active"]):
        if suspended is not None and each == suspended:
            raise ValueError(
                f"active: {each.type!r} is also the condition that shows that a stop was seen; "
                f"{_NEEDED['active']}"
            )
    good = list(_each(signs["succeeded"]))
    for each in _each(signs["failed"]):
        if each is not never and each in good:
            raise ValueError(
                f"failed: {each!r} is also a sign of success, which counts first; give different "
                "ones"
            )


def _each(sign: Signs) -> Iterator[Sign]:
    """The signs one of which is enough."""
    if isinstance(sign, Sequence) and not isinstance(sign, str):
        for each in sign:
            yield from _each(each)
    else:
        yield sign


def _all(sign: Sign) -> Iterator[Sign]:
    """The signs all of which are needed."""
    if isinstance(sign, Every):
        for each in sign.signs:
            yield from _all(each)
    else:
        yield sign


def _is_impossible(sign: Every) -> bool:
    parts = tuple(_all(sign))
    return never in parts or any(_exclude(*pair) for pair in combinations(parts, 2))


def _exclude(one: Sign, other: Sign) -> bool:
    """Whether no object shows both."""
    if isinstance(one, HasCondition) and isinstance(other, HasCondition):
        if (one.type, one.path) != (other.type, other.path):
            return False
        apart = one.reasons and other.reasons and not {*one.reasons} & {*other.reasons}
        return one.status != other.status or bool(apart)
    path = _path_of(one)
    if path is None or path != _path_of(other) or ANY in path:
        return False
    values = [value for sign in (one, other) if isinstance(sign, Equals) for value in sign.wanted]
    return bool(values) and not any(_shows(one, value) and _shows(other, value) for value in values)


def _shows(sign: Sign, value: Any) -> bool:
    """Whether a sign with a path is shown by a value there."""
    if isinstance(sign, Equals):
        return value in sign.wanted
    return bool(value) and not (isinstance(sign, Differs) and value in sign.others)


def _paths_of(sign: Sign) -> Iterator[tuple[str, ...]]:
    if isinstance(sign, Enough):
        yield from map(steps_of, sign.paths)
    elif (path := _path_of(sign)) is not None:
        yield path


def _path_of(sign: Sign) -> tuple[str, ...] | None:
    if isinstance(sign, Equals | Differs):
        return steps_of(sign.path)
    return steps_of(sign) if isinstance(sign, str) else None
