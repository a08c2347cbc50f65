"""What a declaration of a kind of jobs may say; all of it is checked before anything runs.

A mistake that shows up in a webhook or a reconciler is met by somebody who did not make it. Here
every broken rule is a `ValueError` that names the argument.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kueuelib.api.meta import Resource
from kueuelib.api.names import is_dns1123_label, is_dns1123_subdomain
from kueuelib.jobs.contract.paths import check_path
from kueuelib.jobs.declared.pod_counts import AtMost, Done
from kueuelib.jobs.declared.signs import check_sign

if TYPE_CHECKING:
    from kueuelib.jobs.declared.declarative import Pods

_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_VERSION = re.compile(r"v[0-9]+((alpha|beta)[0-9]+)?")


def check_resource(resource: Any) -> None:
    """The kind can be that of jobs.

    Raises:
        ValueError: it cannot.
    """
    if not isinstance(resource, Resource):
        raise ValueError(  # noqa: TRY004 - one kind of error for whatever is wrong
            f"resource={resource!r} is no Resource(group, version, plural, kind, namespaced=True)"
        )
    wrong = [
        f"{field}={value!r} {problem}"
        for field, value, holds, problem in (
            ("kind", resource.kind, _KIND.fullmatch, "is no kind such as Training"),
            ("version", resource.version, _VERSION.fullmatch, "is no version such as v1"),
            ("plural", resource.plural, is_dns1123_label, "is no plural such as trainings"),
            ("group", resource.group or "core", is_dns1123_subdomain, "is no group such as a.b"),
        )
        if not isinstance(value, str) or not holds(value)
    ]
    if not resource.namespaced:
        wrong.append("namespaced=False, but jobs are queued in namespaces")
    if wrong:
        raise ValueError(f"resource: {'; '.join(wrong)}")


def check_versions(resource: Resource, versions: Any) -> None:
    """Further versions of a kind can be.

    Raises:
        ValueError: one of them cannot, or is there twice.
    """
    if not isinstance(versions, list | tuple):
        raise ValueError(f"other_versions={versions!r} is no tuple of versions")  # noqa: TRY004
    known = {resource.version}
    for version in versions:
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            raise ValueError(f"other_versions: {version!r} is no version such as v1")
        if version in known:
            raise ValueError(f"other_versions: {version!r} is there twice")
        known.add(version)


def check_shapes(pods: Any, shape: type) -> None:
    """There are pods, each shape with a name of its own.

    Raises:
        ValueError: there are none, or two have one name.
    """
    if not isinstance(pods, Sequence) or isinstance(pods, str):
        raise ValueError(f"pods={pods!r} is no list of Pods(...)")  # noqa: TRY004
    if not pods:
        raise ValueError("pods is empty: say where the pod templates are")
    names: set[str] = set()
    for index, each in enumerate(pods):
        if not isinstance(each, shape):
            raise ValueError(f"pods[{index}]={each!r} is no Pods(...)")  # noqa: TRY004
        if each.each:  # type: ignore[attr-defined]
            continue
        name = each.name  # type: ignore[attr-defined]
        if name in names:
            raise ValueError(f"pods[{index}]: the name {name!r} is there twice")
        names.add(name)


def check_rest(name: Any, validate: Any) -> None:
    """The other arguments of a declaration.

    Raises:
        ValueError: one of them cannot be.
    """
    if not isinstance(name, str) or name != "".join(name.split()) or "," in name:
        raise ValueError(f"name={name!r} is no name such as example.com/training")
    if not callable(validate):
        raise ValueError(f"validate={validate!r} is no function")  # noqa: TRY004


def check_pods(pods: Pods) -> None:
    """What is said about pods of one shape can be.

    Raises:
        ValueError: it cannot; the argument is named.
    """
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
        raise ValueError(f"name={pods.name!r} is no DNS label such as workers")
    keys: Any = pods.order
    if not isinstance(keys, list | tuple) or not all(isinstance(key, str) for key in keys):
        raise ValueError(f"order={pods.order!r} is no tuple of keys")
    if pods.order and not pods.each:
        raise ValueError("order is of no use without each")
    check_path("template", pods.template)
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
    elif isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ValueError(f"count={count!r} is no number of pods and no path of one")
    if not pods.min_count:
        return
    if not isinstance(count, str):
        raise ValueError("with min_count, count has to be one path")  # noqa: TRY004
    check_path("min_count", pods.min_count)
    if pods.min_count == count:
        raise ValueError("min_count is the path of count too")
