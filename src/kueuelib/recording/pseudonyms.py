"""Replaces the names of objects in a recording.

The alphabetical order of names decides ties, so pseudonyms sort like the names that they replace,
and the plans stay the same. They reveal nothing else, and differ from recording to recording. Names
of resources, pod sets and node labels, and UIDs, stay.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

from kueuelib.api.meta import Obj

_STEP = 1000
_LIMIT = 10**6
_NAME = r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?"
_TOKEN = re.compile(_NAME)
_INTRODUCED = re.compile(
    rf"(?:\bflavor |\b(?:Cluster|Local)Queue (?!selector)|\bworkload (?={_NAME}/))"
    rf"({_NAME})(?:/({_NAME}))?"
)
"""The places of names in messages that the scheduler compares with its verdict."""

_NAMED = ("metadata.name", "metadata.namespace", "metadata.labels.*")
_FLAVORS = "spec.resourceGroups.*.flavors.*.name"
_PATHS: Mapping[str, tuple[str, ...]] = {
    "ClusterQueueSet": (
        *("spec.cohortName", _FLAVORS, "spec.admissionChecksStrategy.admissionChecks.*.name"),
        "spec.admissionChecksStrategy.admissionChecks.*.onFlavors.*",
        "spec.namespaceSelector.matchLabels.*",
        "spec.namespaceSelector.matchExpressions.*.values.*",
    ),
    "CohortChanged": ("spec.parentName", _FLAVORS),
    "LocalQueueSet": ("spec.clusterQueue",),
    "NamespaceSet": ("name", "labels.*"),
    "WorkloadSet": (
        *("spec.queueName", "spec.podSets.*.template.spec.runtimeClassName"),
        *("status.admission.clusterQueue", "status.admission.podSetAssignments.*.flavors.*"),
        "status.admissionChecks.*.name",
    ),
    "Assumed": ("key.*", "admission.clusterQueue", "admission.podSetAssignments.*.flavors.*"),
    "Forgotten": ("key.*",),
    "EvictionFailed": ("key.*",),
}
"""The places of names besides the metadata, by kind of fact; `*` is every item or value."""


class Pseudonyms:
    """Gives every name a fixed pseudonym."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._names: list[str] = []
        self._places: list[tuple[int, ...]] = []

    def of(self, name: str) -> str:
        """The pseudonym of a name."""
        pseudonym = self._known.get(name)
        if pseudonym is None:
            index = bisect_left(self._names, name)
            before = self._places[index - 1] if index else ()
            after = self._places[index] if index < len(self._places) else None
            place = between(before, after)
            self._names.insert(index, name)
            self._places.insert(index, place)
            pseudonym = self._known[name] = "n" + "-".join(f"{part:06d}" for part in place)
        return pseudonym

    def rename(self, line: Obj) -> Obj:
        """A line of a recording with pseudonyms; parts of the line may be changed."""
        if "fact" in line:
            return {**line, "of": self._fact(line["fact"], line["of"])}
        if "plan" in line:
            line = {**line, "plan": self._plan(line["plan"])}
            if "room" in line:
                line["room"] = [self._name(part) for part in line["room"]]
        return line

    def _fact(self, kind: str, of: Any) -> Any:
        if isinstance(of, str):
            return self._name(of)
        if isinstance(of, list):
            return [self._name(part) for part in of]
        paths = (*(_NAMED if "metadata" in of else ()), *_PATHS.get(kind, ()))
        for path in paths:
            of = _changed(of, path.split("."), self._name)
        if kind == "EvictionFailed":  # the words of the API server, which may name anything
            of = _changed(of, ["why"], lambda text: text and "refused")
        return _changed(of, ["status", "conditions", "*", "message"], self._text)

    def _plan(self, plan: Obj) -> Obj:
        renamed: Obj = {}
        if "admit" in plan:
            renamed["admit"] = [
                [self._key(key), self._name(queue), self._sets(sets), *rest]
                for key, queue, sets, *rest in plan["admit"]
            ]
        if "preempt" in plan:
            renamed["preempt"] = [
                [self._key(key), [[self._key(victim), why] for victim, why in victims]]
                for key, victims in plan["preempt"]
            ]
        if "wait" in plan:
            renamed["wait"] = [
                [self._key(key), self._name(queue), *rest] for key, queue, *rest in plan["wait"]
            ]
        return renamed

    def _sets(self, sets: list[Any]) -> list[Any]:
        return [
            [name, count, {resource: self._name(flavor) for resource, flavor in flavors.items()}]
            for name, count, flavors in sets
        ]

    def _name(self, text: str) -> str:
        return self.of(text) if text else text

    def _key(self, text: str) -> str:
        return "/".join(map(self._name, text.split("/")))

    def _text(self, text: str) -> str:
        """A message with its names replaced, including those of objects that appear later."""
        for match in _INTRODUCED.finditer(text):
            for name in filter(None, match.groups()):
                self.of(name)
        return _TOKEN.sub(lambda token: self._known.get(token[0], token[0]), text)


def _changed(data: Any, path: list[str], change: Callable[[str], str]) -> Any:
    """The data with the texts at a path replaced; a missing path is ignored."""
    if not path:
        return change(data) if isinstance(data, str) else data
    first, *rest = path
    if first == "*" and isinstance(data, list):
        return [_changed(one, rest, change) for one in data]
    if first == "*" and isinstance(data, dict):
        return {key: _changed(one, rest, change) for key, one in data.items()}
    if isinstance(data, dict) and first in data:
        return {**data, first: _changed(data[first], rest, change)}
    return data


def between(before: tuple[int, ...], after: tuple[int, ...] | None) -> tuple[int, ...]:
    """A tuple that sorts between two others and does not end with 0.

    Args:
        before: the smaller one; empty for the beginning.
        after: the larger one; None for the end.
    """
    digits: tuple[int, ...] = ()
    while True:
        depth = len(digits)
        low = before[depth] if depth < len(before) else 0
        high = after[depth] if after is not None and depth < len(after) else _LIMIT
        if high - low > 1:
            return (*digits, low + min(_STEP, (high - low) // 2))
        digits = (*digits, low)
        if low < high:
            after = None
