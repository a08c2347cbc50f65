"""The rules for declarations of kinds of jobs; all are checked before anything runs.

A mistake that only shows up in a webhook or a reconciler is seen by a user who did not make it. So
every broken rule is a `ValueError` that names the argument.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kueuelib.api.meta import Resource
from kueuelib.api.names import is_dns1123_label, is_dns1123_subdomain
from kueuelib.jobs.declared.pod_shape import Pods

_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_VERSION = re.compile(r"v[0-9]+((alpha|beta)[0-9]+)?")


def check_resource(resource: Any) -> None:
    """Check the resource of a kind of jobs.

    Raises:
        ValueError: it cannot be a kind of jobs.
    """
    if not isinstance(resource, Resource):
        raise ValueError(  # noqa: TRY004 - one kind of error for whatever is wrong
            f"resource={resource!r} is not a Resource(group, version, plural, kind, "
            "namespaced=True)"
        )
    wrong = [
        f"{field}={value!r} {problem}"
        for field, value, holds, problem in (
            ("kind", resource.kind, _KIND.fullmatch, "is not a kind such as Training"),
            ("version", resource.version, _VERSION.fullmatch, "is not a version such as v1"),
            ("plural", resource.plural, is_dns1123_label, "is not a plural such as trainings"),
            ("group", resource.group or "core", is_dns1123_subdomain, "is not a group such as a.b"),
        )
        if not isinstance(value, str) or not holds(value)
    ]
    if not resource.namespaced:
        wrong.append("namespaced=False, but jobs are queued in namespaces")
    if wrong:
        raise ValueError(f"resource: {'; '.join(wrong)}")


def check_versions(resource: Resource, versions: Any) -> None:
    """Check the further versions of a kind.

    Raises:
        ValueError: one of them is not valid, or occurs twice.
    """
    if not isinstance(versions, list | tuple):
        raise ValueError(f"other_versions={versions!r} is not a tuple of versions")  # noqa: TRY004
    known = {resource.version}
    for version in versions:
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            raise ValueError(f"other_versions: {version!r} is not a version such as v1")
        if version in known:
            raise ValueError(f"other_versions: {version!r} is given twice")
        known.add(version)


def check_shapes(pods: Any) -> None:
    """Check that there are pods, and that the names of shapes differ.

    Raises:
        ValueError: there are none, or two have one name.
    """
    if not isinstance(pods, Sequence) or isinstance(pods, str):
        fix = "; write pods=[Pods(...)]" if isinstance(pods, Pods) else ""
        raise ValueError(f"pods={pods!r} is not a list of Pods(...){fix}")  # noqa: TRY004
    if not pods:
        raise ValueError("pods is empty: say where the pod templates are")
    names: set[str] = set()
    templates: set[str] = set()
    for index, each in enumerate(pods):
        if not isinstance(each, Pods):
            raise ValueError(f"pods[{index}]={each!r} is not Pods(...)")  # noqa: TRY004
        if each.each:
            continue
        name = each.name
        if name in names:
            raise ValueError(f"pods[{index}]: the name {name!r} is given twice")
        names.add(name)
        if each.when is None and each.template in templates:
            raise ValueError(f"pods[{index}]: the template {each.template!r} is given twice")
        templates |= {each.template} if each.when is None else set()


def check_rest(name: Any, validate: Any) -> None:
    """Check the other arguments of a declaration.

    Raises:
        ValueError: one of them is not valid.
    """
    if not isinstance(name, str) or name != "".join(name.split()) or "," in name:
        raise ValueError(f"name={name!r} is not a name such as example.com/training")
    if not callable(validate):
        raise ValueError(f"validate={validate!r} is not a function")  # noqa: TRY004
