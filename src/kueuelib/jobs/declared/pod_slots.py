"""Finds the pod templates of a declared kind of jobs, and the number of pods of each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from kueuelib.api.meta import Obj
from kueuelib.api.names import is_dns1123_label
from kueuelib.errors import InvalidJob
from kueuelib.jobs.contract import podset_info
from kueuelib.jobs.contract.paths import drop, elements, put, value
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.declared.pod_counts import number_at, product_of
from kueuelib.jobs.declared.pod_shape import Pods
from kueuelib.jobs.declared.signs import shows


@attrs.frozen
class Slot:
    """One pod set of one object; `place` and its template are parts of the object.

    Attributes:
        name: of the pod set.
        root: the raw object.
        place: the part of it that has the template.
        pods: the declaration.
    """

    name: str
    root: Obj
    place: Obj
    pods: Pods

    @property
    def template(self) -> Obj:
        """The template, or the default one."""
        template = value(self.place, self.pods.template)
        if template is None and self.pods.default is not None:
            template = self.pods.default(self.root)
        if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
            raise InvalidJob(self.pods.template, f"the pod set {self.name} needs a pod template")
        podset_info.check_template(self.pods.template, template)
        return template

    @property
    def added(self) -> Sequence[Obj]:
        """The containers that the controller adds to those of the template."""
        return () if self.pods.adds is None else self.pods.adds(self.root)

    @property
    def count(self) -> int:
        """How many pods there are."""
        given = self.pods.count
        if isinstance(given, int):
            return given
        return product_of(self.place, given if isinstance(given, tuple) else (given,))

    @property
    def min_count(self) -> int | None:
        """The fewest pods that the job can run with; None if it needs all."""
        return number_at(self.place, self.pods.min_count) if self.pods.min_count else None

    @property
    def succeeded(self) -> int:
        """How many pods are done."""
        given = self.pods.succeeded
        if not given:
            return 0
        if isinstance(given, str):
            return min(number_at(self.place, given) or 0, self.count)
        for _, element in elements(value(self.root, given.each)):
            if str(value(element, given.name)).lower() == self.name:
                units = number_at(element, given.count) or 0
                return min(units * product_of(self.place, given.pods), self.count)
        return 0

    def set_count(self, count: int) -> None:
        """Set the number of pods."""
        if self.pods.min_count and count != self.count:
            assert isinstance(self.pods.count, str)
            put(self.place, self.pods.count, count)

    def merge(self, info: PodSetInfo) -> None:
        """Add what admission adds.

        Raises:
            InvalidPodSetUpdate: it contradicts the template.
        """
        template = self.template
        podset_info.merge(template, info)
        put(self.place, self.pods.template, template)

    def restore(self, info: PodSetInfo) -> None:
        """Restore the template from an info."""
        template = self.template
        podset_info.restore(template, info)
        if self.pods.default is not None and template == self.pods.default(self.root):
            drop(self.place, self.pods.template)
        else:
            put(self.place, self.pods.template, template)


def slots_of(obj: Obj, pods: Pods) -> Iterator[Slot]:
    """The pod sets of an object for one declaration.

    Raises:
        InvalidJob: a name is missing, or cannot be that of a pod set.
    """
    if pods.when is not None and not shows(obj, pods.when, 0):
        return
    if not pods.each:
        if pods.default is not None or value(obj, pods.template) is not None:
            yield Slot(pods.name, obj, obj, pods)
        return
    for key, place in sorted(elements(value(obj, pods.each)), key=lambda item: _rank(pods, item)):
        if value(place, pods.template) is not None:
            name = value(place, pods.name) if pods.name else key
            path = ".".join(filter(None, (f"{pods.each}[{key}]", pods.name)))
            yield Slot(lowered(name, path), obj, place, pods)


def lowered(name: Any, path: str) -> str:
    """The name of a pod set in the object, in lower case.

    Raises:
        InvalidJob: it is missing, or not valid for a pod set; the message names `path`.
    """
    if name is None:
        raise InvalidJob(path, "a name is missing")
    if not isinstance(name, str) or not is_dns1123_label(name.lower()):
        raise InvalidJob(path, f"{json.dumps(name)} is not a DNS label, not even in lower case")
    return name.lower()


def _rank(pods: Pods, item: tuple[str, Any]) -> tuple[int, str]:
    """Elements of a list in their order, values of a mapping by the order of their keys."""
    key, _ = item
    if key.isdigit():
        return int(key), ""
    first = pods.order.index(key) if key in pods.order else len(pods.order)
    return first, key
