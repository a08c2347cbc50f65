"""The pods of one shape in a declared kind of jobs: their place, templates and counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from kueuelib.api.meta import Obj
from kueuelib.api.names import is_dns1123_label
from kueuelib.errors import InvalidJob
from kueuelib.jobs.contract import podset_info
from kueuelib.jobs.contract.generic_job import DEFAULT_POD_SET
from kueuelib.jobs.contract.paths import check_path, drop, elements, put, value
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.contract.topology import Ranks
from kueuelib.jobs.declared.signs import Sign, check_sign, shows

# ---- counts the pods of a declared kind of jobs, and those that are done -------------------------


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


# --------------------------------------------------------------------------------------------------


@attrs.frozen
class Pods:
    """The place of the pods of one shape in a kind or, with `each`, of several shapes.

    Attributes:
        name: of the pod set, a DNS label; with `each`, a path within the element, or empty for the
            element's key in lower case.
        template: the path of the pod template; without a template there are no pods.
        count: how many pods: a number, the path of one, or several paths (or limited numbers)
            that are multiplied. An absent number counts as 1.
        min_count: the path of the fewest pods that the job can run with; then `count` must be one
            path; its value is changed if fewer pods are admitted.
        succeeded: how many of the pods are done and no longer need quota: a path, or `Done`.
        each: the path of a list or mapping with one shape of pods per element; the other paths are
            then relative to the element.
        order: the keys of the mapping at `each` that come first; others follow by name.
        when: a sign that the object has these pods.
        default: returns, for the object, the template that its controller uses if there is none; it
            is written at a start.
        adds: returns, for the object, the containers that its controller adds to these pods; they
            need quota, but are not written.
        ranks: the labels by which a topology keeps neighbours together; `groups` is a path.

    Raises:
        ValueError: one of these is not valid, or two contradict each other; the message names it.
    """

    name: str = DEFAULT_POD_SET
    template: str = "spec.template"
    count: int | Factor | tuple[Factor, ...] = 1
    min_count: str = ""
    succeeded: str | Done = ""
    each: str = ""
    order: tuple[str, ...] = ()
    when: Sign | Sequence[Sign] | None = None
    default: Callable[[Obj], Obj] | None = None
    adds: Callable[[Obj], Sequence[Obj]] | None = None
    ranks: Ranks | None = None

    def __attrs_post_init__(self) -> None:
        _check(self)


def _check(pods: Pods) -> None:
    try:
        _check_pods(pods)
    except ValueError as error:
        where = f"each={pods.each!r}" if pods.each else repr(pods.name)
        raise ValueError(f"Pods({where}): {error}") from None


def _check_pods(pods: Pods) -> None:
    if pods.each:
        check_path("each", pods.each)
        if pods.name:
            check_path("name", pods.name)
    elif not isinstance(pods.name, str) or not is_dns1123_label(pods.name):
        raise ValueError(f"name={pods.name!r} is not a DNS label such as workers")
    keys: Any = pods.order
    if not isinstance(keys, list | tuple) or not all(isinstance(key, str) for key in keys):
        raise ValueError(f"order={pods.order!r} is not a tuple of keys")
    if pods.order and not pods.each:
        raise ValueError("order has no effect without each")
    check_path("template", pods.template, rooted=not pods.each)
    _check_count(pods)
    _check_succeeded(pods.succeeded)
    if pods.when is not None:
        check_sign("when", pods.when)
    for argument, made in (("default", pods.default), ("adds", pods.adds)):
        if made is not None and not callable(made):
            raise ValueError(f"{argument}={made!r} is not a function of the object")
    if pods.default is not None and pods.each:
        raise ValueError("default cannot be combined with each")


def _check_succeeded(succeeded: Any) -> None:
    if isinstance(succeeded, Done):
        check_path("succeeded", succeeded.each)
        for path in (succeeded.count, succeeded.name):
            check_path("succeeded", path)
        _check_factors("succeeded", succeeded.pods)
    elif succeeded:
        check_path("succeeded", succeeded)


def _check_factors(argument: str, factors: Any) -> None:
    for factor in factors:
        for path in (factor.path, factor.limit) if isinstance(factor, AtMost) else (factor,):
            check_path(argument, path)


def _check_count(pods: Pods) -> None:
    count: Any = pods.count
    if isinstance(count, str | AtMost):
        _check_factors("count", (count,))
    elif isinstance(count, tuple):
        if not count:
            raise ValueError("count has no paths")
        _check_factors("count", count)
    elif isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"count={count!r} is neither a number of pods nor a path of one")
    if not pods.min_count:
        return
    if not isinstance(count, str):
        raise ValueError("with min_count, count has to be one path")  # noqa: TRY004
    check_path("min_count", pods.min_count)
    if pods.min_count == count:
        raise ValueError("min_count and count have the same path")


# ---- finds the pod templates of a declared kind of jobs, and the number of pods of each ----------


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
    def path(self) -> str:
        """Where the template is, for messages; an element of a list is shown by its name."""
        at = f"{self.pods.each}[{self.name}]." if self.pods.each else ""
        return f"{at}{self.pods.template}"

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
    def ranks(self) -> Ranks | None:
        """The labels with the ranks of its pods, and the number of groups if there are any."""
        ranks = self.pods.ranks
        if ranks is None or not isinstance(ranks.groups, str) or not ranks.groups:
            return ranks
        groups = number_at(self.place, ranks.groups)
        return attrs.evolve(ranks, groups=1 if groups is None else groups)

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
