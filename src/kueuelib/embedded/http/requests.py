"""What a request wants: its path, its query parameters, its attributes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from aiohttp import web

from kueuelib.embedded import failures
from kueuelib.embedded.access.attributes import Attributes
from kueuelib.embedded.admission.plugin import UserInfo
from kueuelib.embedded.builtins.fields import forbidden, invalid, not_supported, required, too_long
from kueuelib.embedded.builtins.metadata import MANAGER_LIMIT
from kueuelib.embedded.reading import UNLESS_VERSION
from kueuelib.embedded.schema.formats import BAD_ESCAPE
from kueuelib.embedded.schema.mismatch import HEAD, json_type
from kueuelib.embedded.verbs import (
    DeleteOptions,
    FieldValidation,
    ListOptions,
    Propagation,
    WatchOptions,
    WriteOptions,
)
from kueuelib.errors import BadRequest, FieldError, InvalidSelector
from kueuelib.machinery.selectors import parse_field_selector
from kueuelib.runtime.queries import PatchType

# ---- parses paths --------------------------------------------------------------------------------


def is_odd(text: str) -> bool:
    """Whether a part of a URL cannot be decoded."""
    return BAD_ESCAPE.search(text) is not None


def readable(query: str) -> str:
    """The pairs of a query that Go can read; it drops all others."""
    return "&".join(each for each in query.split("&") if ";" not in each and not is_odd(each))


@attrs.frozen
class Route:
    """A path below `/api/v1` or `/apis/<group>/<version>`.

    Attributes:
        group: empty for the core group.
        version: for example `v1`.
        namespace: empty for all namespaces and for cluster-scoped kinds.
        plural: empty for the version's own discovery document.
        name: empty for the collection.
        subresource: empty for the object itself.
        rest: the path after the subresource.
        watched: whether the path has the old form of a watch, `/api/v1/watch/...`.
    """

    group: str
    version: str
    namespace: str = ""
    plural: str = ""
    name: str = ""
    subresource: str = ""
    rest: tuple[str, ...] = ()
    watched: bool = False


_OF_NAMESPACES = frozenset(("status", "finalize"))


def parse(path: str) -> Route | None:
    """The route; None if the path is not below a group version."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 2 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 3 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    watched = rest[:1] == ["watch"] and len(rest) > 1
    if watched:
        rest = rest[1:]
    namespace = ""
    if (
        len(rest) >= 3
        and rest[0] == "namespaces"
        and not (len(rest) == 3 and rest[2] in _OF_NAMESPACES and not group)
    ):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = [*rest[:3], "", "", ""][:3]
    return Route(group, version, namespace, plural, name, subresource, tuple(rest[3:]), watched)


# --------------------------------------------------------------------------------------------------

OPTIONS_GROUP = "meta.k8s.io"
_NUMBER = re.compile(r"[+-]?[0-9]+")
_BOUND = 2**63
_LENGTH = 1000
Query = Mapping[str, str]


def flag(query: Query, name: str) -> bool | None:
    """A boolean parameter; None if absent. Kubernetes reads any unknown value as true."""
    if name not in query:
        return None
    return query[name].lower() not in ("false", "0")


def number(query: Query, name: str) -> int | None:
    """A number; None if absent.

    Raises:
        BadRequest: it is not a number, or has more than 64 bits.
    """
    if name not in query:
        return None
    text = query[name]
    if not _NUMBER.fullmatch(text):
        raise BadRequest(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    if len(text) > _LENGTH or not -_BOUND <= int(text) < _BOUND:
        raise BadRequest(f'strconv.ParseInt: parsing "{text}": value out of range')
    return int(text)


def list_options(query: Query) -> ListOptions:
    """The options of list and deletecollection."""
    return ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        resource_version=query.get("resourceVersion", ""),
        resource_version_match=query.get("resourceVersionMatch", ""),
        limit=max(0, number(query, "limit") or 0),
        continue_token=query.get("continue", ""),
    )


def check_list(query: Query, options: ListOptions) -> None:
    """Checks parameters that do not apply to lists.

    Raises:
        BadRequest: one is malformed.
        Invalid: one is only for watches.
    """
    number(query, "timeoutSeconds")
    if flag(query, "sendInitialEvents") is None:
        return
    errors = []
    if options.resource_version_match and not options.resource_version:
        errors.append(forbidden("resourceVersionMatch", UNLESS_VERSION))
    errors.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    raise failures.invalid_named("ListOptions", OPTIONS_GROUP, "", errors)


def watch_options(query: Query, name: str = "") -> WatchOptions:
    """The options of watch; with a name, of that object only."""
    timeout = number(query, "timeoutSeconds")
    selector = query.get("fieldSelector", "")
    if name:
        selector = ",".join(part for part in (f"metadata.name={name}", selector) if part)
    return WatchOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=selector,
        resource_version=query.get("resourceVersion", ""),
        resource_version_match=query.get("resourceVersionMatch", ""),
        continue_token=query.get("continue", ""),
        timeout=float(timeout) if timeout else None,
        bookmarks=bool(flag(query, "allowWatchBookmarks")),
        send_initial_events=flag(query, "sendInitialEvents"),
    )


def _dry_run(values: Sequence[str]) -> list[FieldError]:
    if all(value == "All" for value in values):
        return []
    return [not_supported("dryRun", list(values), ("All",))]


def _manager(manager: str) -> list[FieldError]:
    if len(manager.encode()) > MANAGER_LIMIT:
        return [too_long("fieldManager", MANAGER_LIMIT)]
    for i, letter in enumerate(manager):
        if not letter.isprintable():
            at = len(manager[:i].encode())
            text = f"invalid character U+{ord(letter):04X} (at position {at})"
            return [invalid("fieldManager", manager, text)]
    return []


def write_options(
    query: Any, caller: UserInfo, kind: str, type_: PatchType | None = None
) -> WriteOptions:
    """The options of create, update and patch.

    Args:
        query: has `getall`.
        caller: the caller.
        kind: of the options, for messages.
        type_: of a patch.

    Raises:
        Invalid: a parameter has an invalid value.
    """
    manager, forced = query.get("fieldManager", ""), flag(query, "force")
    dry_run, given = query.getall("dryRun", []), query.get("fieldValidation", "")
    errors: list[FieldError] = []
    if type_ is PatchType.APPLY and not manager:
        errors.append(required("fieldManager", "is required for apply patch"))
    elif type_ is not None and type_ is not PatchType.APPLY and forced is not None:
        errors.append(forbidden("force", "may not be specified for non-apply patch"))
    errors += [*_manager(manager), *_dry_run(dry_run)]
    if given not in ("", *FieldValidation):
        errors.append(not_supported("fieldValidation", given, ("", *FieldValidation)))
    if errors:
        raise failures.invalid_named(kind, OPTIONS_GROUP, "", errors)
    return WriteOptions(
        caller=caller,
        dry_run=bool(dry_run),
        field_manager=manager,
        field_validation=FieldValidation(given or FieldValidation.WARN),
        force=bool(forced),
    )


_DELETE_FIELDS: Mapping[str, tuple[type, str]] = {
    "gracePeriodSeconds": (int, "int64"),
    "preconditions": (dict, "v1.Preconditions"),
    "orphanDependents": (bool, "bool"),
    "propagationPolicy": (str, "v1.DeletionPropagation"),
    "dryRun": (list, "[]string"),
}


def delete_options(query: Any, body: Any, caller: UserInfo) -> DeleteOptions:
    """The options of delete, from the body, or from parameters only if there is none.

    Raises:
        BadRequest: the body is not a DeleteOptions.
        Invalid: a value is not allowed.
    """
    kind = "DeleteOptions"
    if body is not None and not isinstance(body, dict):
        into = f"json: cannot unmarshal {json_type(body)} into Go value of type {HEAD}"
        raise BadRequest(f"couldn't get version/kind; json parse error: {into}")
    given: dict[str, Any] = _in_url(query) if body is None else body
    if given.get("kind", kind) != kind:
        raise BadRequest(f"the object provided is a {given['kind']}, not a {kind}")
    for name, (type_, go_type) in _DELETE_FIELDS.items():
        value = given.get(name)
        if value is not None and type(value) is not type_:
            raise BadRequest(
                f"json: cannot unmarshal {json_type(value)} into Go struct field "
                f"DeleteOptions.{name} of type {go_type}"
            )
    preconditions = given.get("preconditions") or {}
    dry_run = given.get("dryRun") or []
    orphan = given.get("orphanDependents")
    policy, errors = _propagation(given.get("propagationPolicy"), orphan)
    errors += _dry_run(dry_run)
    if errors:
        raise failures.invalid_named(kind, OPTIONS_GROUP, "", errors)
    return DeleteOptions(
        caller=caller,
        dry_run=bool(dry_run),
        grace_period=given.get("gracePeriodSeconds"),
        propagation=policy,
        accepted=orphan is False,
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
    )


def _in_url(query: Any) -> dict[str, Any]:
    return {
        "gracePeriodSeconds": number(query, "gracePeriodSeconds"),
        "dryRun": query.getall("dryRun", []),
        "orphanDependents": flag(query, "orphanDependents"),
        "propagationPolicy": query.get("propagationPolicy"),
        "preconditions": {key: query.get(key) or None for key in ("uid", "resourceVersion")},
    }


def _propagation(
    policy: str | None, orphan: bool | None
) -> tuple[Propagation | None, list[FieldError]]:
    errors = []
    if policy and orphan is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(invalid("propagationPolicy", policy, text))
    if policy and policy not in tuple(Propagation):
        known = ("Foreground", "Background", "Orphan", "nil")
        errors.append(not_supported("propagationPolicy", policy, known, ordered=True))
    if errors:
        return None, errors
    if orphan is not None:
        return Propagation.ORPHAN if orphan else Propagation.BACKGROUND, []
    return Propagation(policy) if policy else None, []


# ---- the attributes of a request for access control ----------------------------------------------

_OBJECT_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_COLLECTION_VERBS = {"GET": "list", "HEAD": "list", "DELETE": "deletecollection"}


def request_attributes(request: web.BaseRequest, route: Route | None) -> Attributes:
    """The attributes of a request, for its resource or its path."""
    method = request.method
    if route is None or not route.plural:
        return Attributes(_OBJECT_VERBS.get(method, method.lower()), path=request.path)
    verb = _OBJECT_VERBS.get(method, method.lower())
    name = route.name
    if route.watched and verb == "get":
        verb = "watch"
    elif not name:
        verb = _COLLECTION_VERBS.get(method, verb)
        if verb == "list" and flag(request.query, "watch"):
            verb = "watch"
        if verb in ("list", "watch"):
            name = _selected_name(request.query.get("fieldSelector", ""))
    own = not route.group and route.plural == "namespaces"
    return Attributes(
        verb,
        route.group,
        route.plural,
        route.subresource,
        route.name if own else route.namespace,
        name,
        version=route.version,
    )


def _selected_name(field_selector: str) -> str:
    if "metadata.name" not in field_selector:
        return ""
    try:
        return parse_field_selector(field_selector).exact("metadata.name") or ""
    except InvalidSelector:
        return ""  # it is refused where the selector is used
