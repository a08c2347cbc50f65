"""Query parameters and DeleteOptions as values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kueuelib.embedded import failures
from kueuelib.embedded.admission.plugin import Caller
from kueuelib.embedded.builtins.fields import forbidden, invalid
from kueuelib.embedded.reading import UNLESS_VERSION
from kueuelib.embedded.verbs import (
    DeleteOptions,
    FieldValidation,
    ListOptions,
    Propagation,
    WatchOptions,
    WriteOptions,
)
from kueuelib.errors import FieldError, Invalid

MANAGER_LIMIT = 128
_NUMBER = re.compile(r"[+-]?[0-9]+")
_BOUND = 2**63
_LENGTH = 1000
Query = Mapping[str, str]


def flag(query: Query, name: str) -> bool | None:
    """A boolean parameter; None when it is not given. Kubernetes reads anything odd as true."""
    if name not in query:
        return None
    return query[name].lower() not in ("false", "0")


def number(query: Query, name: str) -> int | None:
    """A number, None when it is not given.

    Raises:
        BadRequest: it is no number, or has more than 64 bits.
    """
    text = query.get(name, "")
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        raise failures.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    if len(text) > _LENGTH or not -_BOUND <= int(text) < _BOUND:
        raise failures.bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return int(text)


def list_options(query: Query) -> ListOptions:
    """For list and deletecollection."""
    return ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        resource_version=query.get("resourceVersion", ""),
        resource_version_match=query.get("resourceVersionMatch", ""),
        limit=max(0, number(query, "limit") or 0),
        continue_token=query.get("continue", ""),
    )


def check_list(query: Query, options: ListOptions) -> None:
    """Looks at parameters that a list has no use for.

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
    raise failures.invalid_named("ListOptions", "meta.k8s.io", "", errors)


def watch_options(query: Query, name: str = "") -> WatchOptions:
    """For watch; with a name, of that object alone."""
    timeout = number(query, "timeoutSeconds")
    selector = query.get("fieldSelector", "")
    if name:
        selector = ",".join(part for part in (f"metadata.name={name}", selector) if part)
    return WatchOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=selector,
        resource_version=query.get("resourceVersion", ""),
        resource_version_match=query.get("resourceVersionMatch", ""),
        timeout=float(timeout) if timeout else None,
        bookmarks=bool(flag(query, "allowWatchBookmarks")),
        send_initial_events=flag(query, "sendInitialEvents"),
    )


def _invalid(kind: str, path: str, message: str, reason: str) -> Invalid:
    error = FieldError(path, reason, message)
    return Invalid(
        f'{kind}.meta.k8s.io "" is invalid: {error}',
        details={
            "group": "meta.k8s.io",
            "kind": kind,
            "causes": [{"reason": reason, "message": message, "field": path}],
        },
    )


def _dry_run(values: list[str], kind: str) -> bool:
    wrong = next((value for value in values if value != "All"), None)
    if wrong is not None:
        raise _invalid(
            kind,
            "dryRun",
            f'Unsupported value: "{wrong}": supported values: "All"',
            "FieldValueNotSupported",
        )
    return bool(values)


def write_options(query: Any, caller: Caller, kind: str) -> WriteOptions:
    """For create, update and patch; `query` has `getall`.

    Raises:
        Invalid: a parameter has no such value.
    """
    given = query.get("fieldValidation", "") or FieldValidation.WARN
    try:
        validation = FieldValidation(given)
    except ValueError as error:
        raise _invalid(
            kind,
            "fieldValidation",
            f'Unsupported value: "{given}": supported values: "Ignore", "Strict", "Warn"',
            "FieldValueNotSupported",
        ) from error
    manager = query.get("fieldManager", "")
    if len(manager.encode()) > MANAGER_LIMIT:
        raise _invalid(
            kind,
            "fieldManager",
            f"Too long: may not be more than {MANAGER_LIMIT} bytes",
            "FieldValueTooLong",
        )
    if not manager.isprintable():
        at, letter = next((i, each) for i, each in enumerate(manager) if not each.isprintable())
        text = f"invalid character U+{ord(letter):04X} (at position {len(manager[:at].encode())})"
        raise failures.invalid_named(
            kind, "meta.k8s.io", "", [invalid("fieldManager", manager, text)]
        )
    return WriteOptions(
        caller=caller,
        dry_run=_dry_run(query.getall("dryRun", []), kind),
        field_manager=manager,
        field_validation=validation,
        force=bool(flag(query, "force")),
    )


def refuse_force(query: Query) -> None:
    """Only an apply patch can be forced.

    Raises:
        Invalid: `force` is given.
    """
    if flag(query, "force") is not None:
        error = forbidden("force", "may not be specified for non-apply patch")
        raise failures.invalid_named("PatchOptions", "meta.k8s.io", "", [error])


def delete_options(query: Any, body: Any, caller: Caller) -> DeleteOptions:
    """From the body, or the parameters when there is none.

    Raises:
        BadRequest: the body is no DeleteOptions.
        Invalid: a value is not allowed.
    """
    kind = "DeleteOptions"
    if body is not None and not isinstance(body, dict):
        raise failures.bad_request("couldn't get version/kind; json parse error")
    given: dict[str, Any] = body or {}
    if given.get("kind", kind) != kind:
        raise failures.bad_request(f"the object provided is a {given['kind']}, not a {kind}")
    grace = given.get("gracePeriodSeconds", number(query, "gracePeriodSeconds"))
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
        raise failures.bad_request("gracePeriodSeconds: a whole number is expected")
    preconditions = given.get("preconditions") or {}
    dry_run = given.get("dryRun") or query.getall("dryRun", [])
    return DeleteOptions(
        caller=caller,
        dry_run=_dry_run(list(dry_run), kind),
        grace_period=grace,
        propagation=_propagation(given, query),
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
    )


def _propagation(given: Mapping[str, Any], query: Query) -> Propagation | None:
    policy = given.get("propagationPolicy") or query.get("propagationPolicy")
    orphan = given.get("orphanDependents", flag(query, "orphanDependents"))
    if policy and orphan is not None:
        raise _invalid(
            "DeleteOptions",
            "propagationPolicy",
            f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be '
            "both set",
            "FieldValueInvalid",
        )
    if orphan is not None:
        return Propagation.ORPHAN if orphan else Propagation.BACKGROUND
    if not policy:
        return None
    try:
        return Propagation(policy)
    except ValueError as error:
        raise _invalid(
            "DeleteOptions",
            "propagationPolicy",
            f'Unsupported value: "{policy}": supported values: '
            '"Background", "Foreground", "Orphan"',
            "FieldValueNotSupported",
        ) from error
