"""Signs in the status of a declared kind of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import attrs

from kueuelib.api.meta import Obj, find_condition
from kueuelib.jobs.contract.paths import ANY, check_path, steps_of, value, values


@attrs.frozen
class HasCondition:
    """A condition of the object with a status and, optionally, one of several reasons.

    Attributes:
        type: for example `Complete`.
        status: `True`, `False` or `Unknown`.
        reasons: the condition must have one of them; empty: any reason.
        path: where the conditions are.
    """

    type: str
    status: str = "True"
    reasons: tuple[str, ...] = ()
    path: str = "status.conditions"

    def shown_by(self, obj: Mapping[str, Any], _count: int) -> bool:
        """Whether the object shows it."""
        condition = find_condition(value(obj, self.path), self.type)
        if condition.get("status") != self.status:
            return False
        return not self.reasons or condition.get("reason") in self.reasons


@attrs.frozen
class Equals:
    """A field has one of several values, at any place that the path leads to."""

    path: str
    wanted: tuple[Any, ...]

    def shown_by(self, obj: Mapping[str, Any], _count: int) -> bool:
        """Whether the object shows it."""
        return any(actual in self.wanted for actual in values(obj, self.path))


@attrs.frozen
class Differs:
    """A field has a non-empty value other than those listed."""

    path: str
    others: tuple[Any, ...]

    def shown_by(self, obj: Mapping[str, Any], _count: int) -> bool:
        """Whether the object shows it."""
        return any(actual and actual not in self.others for actual in values(obj, self.path))


@attrs.frozen
class Enough:
    """The sum of some fields is at least the number of the job's pods, or other units.

    Attributes:
        paths: of the numbers.
        units: the path of the number of units in each part of the job, if units other than pods are
            counted; an absent number counts as 1.
    """

    paths: tuple[str, ...]
    units: str = ""

    def shown_by(self, obj: Mapping[str, Any], count: int) -> bool:
        """Whether the object shows it; `count` is how many pods the job has."""
        if self.units:
            parts, _, number = self.units.rpartition(".")
            wanted = [value(part, number) for part in values(obj, parts)]
            count = sum(1 if units is None else int(units) for units in wanted)
        return sum(int(amount) for path in self.paths for amount in values(obj, path)) >= count


@attrs.frozen
class Every:
    """Several signs, all of which must be shown."""

    signs: tuple[Sign, ...]

    def shown_by(self, obj: Obj, count: int) -> bool:
        """Whether the object shows them all."""
        return all(shows(obj, sign, count) for sign in self.signs)


@attrs.frozen
class Outdated:
    """The kind's controller has not seen the present spec yet.

    Attributes:
        path: of the `metadata.generation` that it has seen; an absent one is 0.
    """

    path: str

    def shown_by(self, obj: Mapping[str, Any], _count: int) -> bool:
        """Whether the object shows it."""
        return int(value(obj, self.path) or 0) < int(value(obj, "metadata.generation") or 0)


Sign = str | HasCondition | Equals | Differs | Enough | Every | Outdated | Callable[[Obj], bool]
"""A path to a value that is true or greater than zero, one of the classes above, or a function."""


def equals(path: str, *wanted: Any) -> Equals:
    """Short for `Equals`."""
    return Equals(path, wanted)


def differs(path: str, *others: Any) -> Differs:
    """Short for `Differs`."""
    return Differs(path, others)


def enough(*paths: str, units: str = "") -> Enough:
    """Short for `Enough`."""
    return Enough(paths, units)


def every(*signs: Sign) -> Every:
    """Short for `Every`."""
    return Every(signs)


def outdated(path: str = "status.observedGeneration") -> Outdated:
    """Short for `Outdated`."""
    return Outdated(path)


def never(_obj: Obj) -> bool:
    """A sign that is never shown."""
    return False


def shows(obj: Obj, sign: Sign | Sequence[Sign], count: int) -> bool:
    """Whether an object shows a sign, or one of several.

    Args:
        obj: the raw object.
        sign: the sign, or several.
        count: how many pods the job has.
    """
    if isinstance(sign, str):
        return any(map(bool, values(obj, sign)))
    if isinstance(sign, HasCondition | Equals | Differs | Enough | Every | Outdated):
        return sign.shown_by(obj, count)
    if callable(sign):
        return sign(obj)
    return any(shows(obj, each, count) for each in sign)


def message_of(obj: Obj, sign: Sign | Sequence[Sign]) -> str:
    """The message of the condition that shows a sign; empty when no condition does."""
    if isinstance(sign, HasCondition):
        condition = find_condition(value(obj, sign.path), sign.type)
        return str(condition.get("message") or "") if sign.shown_by(obj, 0) else ""
    if isinstance(sign, list | tuple):
        return next(filter(None, (message_of(obj, each) for each in sign)), "")
    return ""


def check_sign(argument: str, sign: Any) -> None:
    """Check that an object can show a declared sign.

    Raises:
        ValueError: it cannot; the message names the argument.
    """
    if isinstance(sign, list | tuple):
        if not sign:
            raise ValueError(f"{argument} is empty: no object could ever show it")
        for index, each in enumerate(sign):
            check_sign(f"{argument}[{index}]", each)
    elif isinstance(sign, str):
        check_path(argument, sign, many=True, rooted=True)
    elif isinstance(sign, HasCondition):
        _check_condition(argument, sign)
    elif isinstance(sign, Every):
        check_sign(argument, sign.signs)
    elif isinstance(sign, Outdated):
        check_path(argument, sign.path, rooted=True)
    elif isinstance(sign, Differs):
        check_path(argument, sign.path, many=True, rooted=True)
    elif isinstance(sign, Equals):
        check_path(argument, sign.path, many=True, rooted=True)
        if not isinstance(sign.wanted, tuple) or not sign.wanted:
            raise ValueError(f"{argument}: equals({sign.path!r}, ...) needs the wanted values")
        if any(each is None for each in sign.wanted):
            raise ValueError(
                f"{argument}: equals({sign.path!r}, None): absent fields equal nothing"
            )
    elif isinstance(sign, Enough):
        if not isinstance(sign.paths, tuple) or not sign.paths:
            raise ValueError(f"{argument}: enough(...) needs the paths of the numbers")
        for path in sign.paths:
            check_path(argument, path, many=True, rooted=True)
        if sign.units:
            check_path(argument, sign.units, many=True, rooted=True)
    elif sign in (equals, differs, enough, every, outdated):
        made = f"{sign.__name__}(...)"
        raise ValueError(
            f"{argument}={sign.__name__} is the function that makes a sign; call {made}"
        )
    elif isinstance(sign, type) or not callable(sign):
        wanted = (
            "a path, HasCondition(...), equals(...), differs(...), enough(...), every(...), "
            "outdated(...), a function, or a list of these"
        )
        raise ValueError(f"{argument}={sign!r} is not a sign; give {wanted}")


def check_suspended(sign: Any) -> None:
    """Check the condition that shows that a stop was seen; it is removed before the stop.

    Raises:
        ValueError: it is not a condition, or not one that can be removed.
    """
    if sign is None:
        return
    if not isinstance(sign, HasCondition):
        raise ValueError(f"suspended={sign!r} is not HasCondition(...)")  # noqa: TRY004
    check_sign("suspended", sign)
    if sign.status != "True" or sign.reasons or not sign.path.startswith("status."):
        raise ValueError("suspended: give the type of a condition in the status that becomes True")


def _check_condition(argument: str, sign: HasCondition) -> None:
    check_path(argument, sign.path, rooted=True)
    if not isinstance(sign.type, str) or not sign.type:
        raise ValueError(f"{argument}: HasCondition({sign.type!r}) needs the type of the condition")
    if sign.status not in ("True", "False", "Unknown"):
        raise ValueError(
            f"{argument}: a condition has the status True, False or Unknown, as a text, "
            f"not {sign.status!r}"
        )
    if not isinstance(sign.reasons, list | tuple):
        raise ValueError(f"{argument}: reasons={sign.reasons!r} is not a tuple")  # noqa: TRY004


# ---- signs of a declared kind that contradict each other, or that no object can show -------------
# With such a declaration, pods would seem never to run, never to be ready, or never to fail: quota
# would be free while pods run, or held forever.

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
