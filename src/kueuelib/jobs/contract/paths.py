"""Paths into raw objects, for kinds of jobs that are declared instead of programmed.

A path is a text of field names with dots between them; `*` stands for every element of a list or
every value of a mapping: `status.replicaStatuses.*.active`. A number is the position of one element
of a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from kueuelib.api.meta import Obj

ANY = "*"
ROOTS = ("metadata", "spec", "status")
"""The fields at the top of nearly every object."""
_STEP = re.compile(r"[\w-]+|\*")


@lru_cache(maxsize=4096)
def steps_of(path: str) -> tuple[str, ...]:
    """The field names of a path; a leading dot is allowed, as in other tools.

    Each path is parsed only once; `declare` parses all paths of a kind.

    Raises:
        ValueError: a name is empty.
    """
    steps = tuple(path.removeprefix(".").split("."))
    if not all(steps):
        raise ValueError(f"{path!r} is not a path such as spec.template")
    return steps


def check_path(argument: str, path: Any, *, many: bool = False, rooted: bool = False) -> None:
    """Check a declared path.

    Args:
        argument: what it was given for.
        path: the path.
        many: whether it may lead to several places.
        rooted: whether it begins at the top of an object.

    Raises:
        ValueError: it is not; the argument is named.
    """
    if not isinstance(path, str):
        raise ValueError(f"{argument}={path!r} is not a path such as spec.template")  # noqa: TRY004
    try:
        steps = steps_of(path)
    except ValueError:
        raise ValueError(f"{argument}={path!r} is not a path such as spec.template") from None
    if path != "".join(path.split()):
        raise ValueError(f"{argument}={path!r} has blanks; write {''.join(path.split())!r}")
    if wrong := next((step for step in steps if not _STEP.fullmatch(step)), ""):
        raise ValueError(
            f"{argument}={path!r}: {wrong!r} is not a field; write names with dots between them, "
            "such as status.active"
        )
    if rooted and steps[0] not in ROOTS and (near := get_close_matches(steps[0], ROOTS, 1, 0.75)):
        meant = ".".join((near[0], *steps[1:]))
        raise ValueError(f"{argument}={path!r}: no object has {steps[0]!r}; write {meant!r}")
    if ANY in steps and not many:
        raise ValueError(f"{argument}={path!r} leads to several fields; exactly one is needed")


def values(obj: Any, path: str) -> tuple[Any, ...]:
    """All values at a path, without absent and null ones."""
    return tuple(_walk(obj, steps_of(path)))


def value(obj: Any, path: str) -> Any:
    """The first value at a path; None if there is none."""
    return next(_walk(obj, steps_of(path)), None)


def put(obj: Obj, path: str, new: Any) -> None:
    """Writes a field in place; missing mappings on the way are created.

    Raises:
        ValueError: the path has a `*`.
        TypeError: something on the way is not a mapping.
    """
    *way, last = steps_of(path)
    if ANY in (*way, last):
        raise ValueError(f"cannot write to {path}: it leads to several fields")
    current = obj
    for name in way:
        if current.get(name) is None:
            current[name] = {}
        current = current[name]
        if not isinstance(current, dict):
            raise TypeError(f"cannot write to {path}: {name} is not a mapping")
    current[last] = new


def drop(obj: Obj, path: str) -> None:
    """Removes a field in place, if it exists."""
    *way, last = steps_of(path)
    parent = value(obj, ".".join(way)) if way else obj
    if isinstance(parent, dict):
        parent.pop(last, None)


def elements(collection: Any) -> tuple[tuple[str, Any], ...]:
    """Keys and values of a mapping, in its order, or positions and elements of a list."""
    if isinstance(collection, Mapping):
        return tuple((str(key), item) for key, item in collection.items())
    if isinstance(collection, list | tuple):
        return tuple((str(index), item) for index, item in enumerate(collection))
    return ()


def _walk(current: Any, way: tuple[str, ...]) -> Iterator[Any]:
    if not way:
        if current is not None:
            yield current
        return
    name, rest = way[0], way[1:]
    if name == ANY:
        for _, item in elements(current):
            yield from _walk(item, rest)
    elif isinstance(current, Mapping):
        yield from _walk(current.get(name), rest)
    elif isinstance(current, list) and name.isdecimal() and int(name) < len(current):
        yield from _walk(current[int(name)], rest)
