"""Small changes of JSON data, drawn at random: what the fuzz does to samples and to objects."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

Path = tuple[str | int, ...]
TEXTS = (
    *("", "x", "b", "UPPER", "a" * 64, "a" * 260, "-a", "a b", "ä", "1", "0.5", "true", "a/b"),
    *("example.com/a", "a.b.c", "Always", "Never", "100%", "10.0.0.1", "1Gi", "-1", "\n"),
)
NUMBERS = (0, 1, 2, 3, -1, 100, 65536, 2**31, 2**63, 1.5, 1e3)
OTHERS: tuple[Any, ...] = (None, "x", 7, 1.5, True, [], {}, [1], {"a": "b"}, ["x"], [None], [{}])
MEANT = {
    "type": ("ClusterIP", "NodePort", "Opaque", "Recreate", "OnDelete", "Normal", "Warning", "Pod"),
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "operator": ("In", "NotIn", "Exists", "DoesNotExist", "Equal"),
    "effect": ("NoSchedule", "NoExecute", "PreferNoSchedule"),
    "protocol": ("TCP", "UDP", "SCTP", "tcp"),
    "image": ("i:2", "j"),
    "pathType": ("Exact", "Prefix", "ImplementationSpecific"),
    "completionMode": ("Indexed", "NonIndexed"),
}


def paths(value: Any, prefix: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every place in the data with what is there, the outermost first."""
    if prefix:
        yield prefix, value
    inner = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        inner = enumerate(value)  # type: ignore[assignment]
    for key, each in inner:
        yield from paths(each, (*prefix, key))


def at(value: Any, path: Path) -> Any:
    """What is at a place; None when there is no such place."""
    for key in path:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            return None
    return value


def put(value: Any, path: Path, new: Any, *, drop: bool = False) -> None:
    """Writes to a place, or drops it; nothing happens where there is none."""
    outer = at(value, path[:-1])
    key = path[-1]
    if isinstance(outer, dict):
        if drop:
            outer.pop(key, None)
        else:
            outer[key] = new
    elif isinstance(outer, list) and isinstance(key, int):
        if drop:
            del outer[key : key + 1]
        else:
            outer[key : key + 1] = [new]


def odd(random: Random, value: Any, key: str | int = "") -> Any:
    """Another value, mostly of the same type."""
    if random.random() < 0.12:
        return copy.deepcopy(random.choice(OTHERS))
    if key in MEANT and random.random() < 0.6:
        return random.choice(MEANT[str(key)])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return random.choice(NUMBERS)
    if isinstance(value, str):
        return random.choice(TEXTS)
    if isinstance(value, list):
        return random.choice(([], [*value, *value[:1]], value[1:], [*value, "x"], [{}]))
    if isinstance(value, dict):
        key = random.choice(("a", "app", "odd", "", "a b", "x/y", "name"))
        return random.choice(({}, {**value, key: random.choice(TEXTS)}, {key: "x"}))
    return random.choice(TEXTS)


def edit(random: Random, obj: Any) -> tuple[str, Path, Any]:
    """One change: what, where, and the new value."""
    candidates = [(path, value) for path, value in paths(obj) if path[-1] not in ("name", "kind")]
    if not candidates or random.random() < 0.08:
        candidates = list(paths(obj)) or [(("x",), 1)]
    path, value = random.choice(candidates)
    how = random.random()
    if how < 0.2:
        return "drop", path, None
    if how < 0.3:
        return "set", path, None
    if how < 0.4:
        name = random.choice(("odd", "Name", "labels", "status", "spec", "replicas"))
        return "set", (*path[:-1], name), random.choice((1, "x", {}, None, True))
    if how < 0.5:
        meta = random.choice(("labels", "annotations", "finalizers", "ownerReferences"))
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u-1"}
        values = {"finalizers": ["example.com/x"], "ownerReferences": [owner]}
        new: Any = values.get(meta, {random.choice(("a", "app", "x/y")): random.choice(TEXTS[:9])})
        return "set", ("metadata", meta), new
    return "set", path, odd(random, value, path[-1])


def changed(obj: Any, edits: list[Any]) -> Any:
    """A copy of the object with the edits done."""
    obj = copy.deepcopy(obj)
    for how, path, new in edits:
        put(obj, tuple(path), copy.deepcopy(new), drop=how == "drop")
    return obj
