"""The place of the pods of one shape in a declared kind of jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from kueuelib.api.meta import Obj
from kueuelib.api.names import is_dns1123_label
from kueuelib.jobs.contract.generic_job import DEFAULT_POD_SET
from kueuelib.jobs.contract.paths import check_path
from kueuelib.jobs.declared.pod_counts import AtMost, Done, Factor
from kueuelib.jobs.declared.signs import Sign, check_sign


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
