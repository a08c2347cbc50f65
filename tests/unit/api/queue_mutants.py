"""Objects of the queueing kinds with senseless values in places that exist."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

TEXTS = (
    *("", "a", "main", "side", "other", "A_b", "-a", "a/b", "x.y/z", "/a", "a" * 64, "a" * 300),
    *("True", "False", "Never", "Exists", "In", "NoSchedule", "PreferNoSchedule", "Bogus"),
    *("0", "1", "-1", "1n", "0.5n", "1Gi", "1e3", "9e99", "-0", "+1", "1.5", "1e-400", "é"),
    *("2024-01-01T00:00:00Z", "now", "cpu", "spot", "QuotaReserved", "PriorityClass", "Pending"),
)
NUMBERS = (0, 1, 2, -1, 64, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 1.5)
OTHERS: tuple[Any, ...] = (None, True, [], {}, [""], {"": ""}, [{}], {"a": None})
Place = tuple[Any, Any]


def mutant(chance: Random, obj: dict[str, Any]) -> dict[str, Any]:
    """A copy of a queueing object with one to three changes."""
    obj = copy.deepcopy(obj)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        parts = [part for part in ("spec", "status", "value") if part in obj]
        places = [place for part in parts for place in _places(obj, part)]
        if places:
            _change(chance, *chance.choice(places), places)
    return obj


def _places(parent: Any, key: Any) -> Iterator[Place]:
    """A value and every value inside it, as its parent and key."""
    yield parent, key
    value = parent[key]
    if isinstance(value, dict):
        for name in value:
            yield from _places(value, name)
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from _places(value, index)


def _change(chance: Random, parent: Any, key: Any, places: list[Place]) -> None:
    value = parent[key]
    roll = chance.random()
    if roll < 0.15:
        del parent[key]
    elif roll < 0.25 and isinstance(value, list) and value:
        value.append(copy.deepcopy(chance.choice(value)))
    elif roll < 0.32 and isinstance(value, dict):
        value[chance.choice(TEXTS)] = chance.choice(TEXTS)
    elif roll < 0.4 and isinstance(value, list):
        value.reverse()
    elif roll < 0.5:
        other, name = chance.choice(places)
        parent[key] = copy.deepcopy(other[name])
    elif roll < 0.56:
        parent[key] = copy.deepcopy(chance.choice(OTHERS))
    elif isinstance(value, int) and not isinstance(value, bool):
        parent[key] = chance.choice(NUMBERS)
    elif isinstance(value, str):
        parent[key] = chance.choice((*TEXTS, *NUMBERS[:4]))
    else:
        parent[key] = copy.deepcopy(chance.choice(OTHERS))
