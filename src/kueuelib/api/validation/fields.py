"""Field errors in the texts of Kubernetes, and rules that many kinds share."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from kueuelib.api.core import NO_EXECUTE, TAINT_EFFECTS
from kueuelib.api.meta import CONDITION_MESSAGE_LIMIT, Obj, annotations_of
from kueuelib.api.names import (
    ADMISSION_GATED_BY,
    admission_gates,
    is_dns1035_label,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_domain_prefixed_path,
    is_label_value,
    is_qualified_name,
)
from kueuelib.api.patterns import LABEL_LIMIT, SUBDOMAIN_LIMIT
from kueuelib.errors import FieldError

IMMUTABLE: Final = "field is immutable"
NOT_NEGATIVE: Final = "must be greater than or equal to 0"

_LONGEST_VALUE: Final = 512
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{_LABEL}(\\.{_LABEL})*')"
)
LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    f"for validation is '{_LABEL}')"
)
LABEL_1035_RULE: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
QUALIFIED_RULE: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    f"validation is '{_QUALIFIED}')"
)
LABEL_VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    "'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


# ---- errors


def shown(value: object) -> str:
    """A value as a message shows it: compact JSON, cut when it is very long."""
    try:
        text = orjson.dumps(value).decode()
    except TypeError:  # a whole number beyond 64 bits, half of a surrogate pair
        text = json.dumps(value, separators=(",", ":"), default=str)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + " ..."


def invalid(path: str, value: object, detail: str) -> FieldError:
    """The value breaks a rule."""
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {shown(value)}: {detail}")


def required(path: str, detail: str = "") -> FieldError:
    """The value is missing."""
    text = f"Required value: {detail}" if detail else "Required value"
    return FieldError(path, "FieldValueRequired", text)


def forbidden(path: str, detail: str) -> FieldError:
    """The field may not be set, or not be changed like this."""
    return FieldError(path, "FieldValueForbidden", f"Forbidden: {detail}")


def duplicate(path: str, value: object) -> FieldError:
    """The value is there already."""
    return FieldError(path, "FieldValueDuplicate", f"Duplicate value: {shown(value)}")


def not_found(path: str, value: object) -> FieldError:
    """The value points at something that is not there."""
    return FieldError(path, "FieldValueNotFound", f"Not found: {shown(value)}")


def not_supported(path: str, value: object, supported: Iterable[object]) -> FieldError:
    """The value is not one of those allowed."""
    known = ", ".join(map(shown, supported))
    text = f"Unsupported value: {shown(value)}: supported values: {known}"
    return FieldError(path, "FieldValueNotSupported", text)


def too_many(path: str, count: int, most: int) -> FieldError:
    """A list is too long."""
    text = f"Too many: {count}: must have at most {most} items"
    return FieldError(path, "FieldValueTooMany", text)


def too_long(path: str, most: int) -> FieldError:
    """A text is too long; `most` are bytes."""
    return FieldError(path, "FieldValueTooLong", f"Too long: may not be more than {most} bytes")


def immutable(path: str, value: object) -> FieldError:
    """The value differs from the old one, and must not change."""
    return invalid(path, value, IMMUTABLE)


# ---- names


def subdomain(path: str, value: str) -> Iterator[FieldError]:
    """The value must be a DNS-1123 subdomain."""
    yield from _name(path, value, is_dns1123_subdomain, SUBDOMAIN_LIMIT, SUBDOMAIN_RULE)


def label(path: str, value: str) -> Iterator[FieldError]:
    """The value must be a DNS-1123 label."""
    yield from _name(path, value, is_dns1123_label, LABEL_LIMIT, LABEL_RULE)


def label_1035(path: str, value: str) -> Iterator[FieldError]:
    """The value must be a DNS-1035 label."""
    yield from _name(path, value, is_dns1035_label, LABEL_LIMIT, LABEL_1035_RULE)


def _name(
    path: str, value: str, holds: Callable[[str], bool], longest: int, rule: str
) -> Iterator[FieldError]:
    if holds(value):
        return
    if len(value) > longest:
        yield invalid(path, value, f"must be no more than {longest} bytes")
    if len(value) <= longest or not holds(value[:longest].rstrip("-.")):
        yield invalid(path, value, rule)


def qualified_name(path: str, value: str) -> Iterator[FieldError]:
    """The value must be a label key or resource name: a word with an optional domain."""
    if is_qualified_name(value):
        return
    prefix, slash, name = value.rpartition("/")
    if slash and not prefix:
        yield invalid(path, value, "prefix part must be non-empty")
    elif slash and not is_dns1123_subdomain(prefix):
        yield invalid(path, value, f"prefix part {SUBDOMAIN_RULE}")
    if not name:
        yield invalid(path, value, "name part must be non-empty")
    elif len(name) > LABEL_LIMIT:
        yield invalid(path, value, f"name part must be no more than {LABEL_LIMIT} bytes")
    elif not is_qualified_name(name):
        yield invalid(path, value, QUALIFIED_RULE)


# ---- raw objects


def spec_of(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """The spec of a raw object, never None."""
    return obj.get("spec") or {}


def status_of(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """The status of a raw object, never None."""
    return obj.get("status") or {}


def each(parent: Mapping[str, Any], name: str, path: str) -> Iterator[tuple[str, Any]]:
    """Every item of a list with its path; `path` is the parent's, empty for the object itself."""
    items: Sequence[Any] = parent.get(name) or ()
    prefix = f"{path}.{name}" if path else name
    for index, item in enumerate(items):
        yield f"{prefix}[{index}]", item


def without_nulls(value: Any) -> Any:
    """The value without the fields that are null, at every level; they mean the same as absent."""
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [without_nulls(one) for one in value]
    return value


# ---- rules for labels, annotations, selectors, taints, tolerations, conditions -------------------

_ANNOTATIONS_LIMIT: Final = 256 * 1024
_REASON_LIMIT: Final = 1024
_REASON: Final = re.compile("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", re.ASCII)
_STATUSES: Final = ("False", "True", "Unknown")


def label_value(path: str, value: str) -> Iterator[FieldError]:
    """The value must be a label value."""
    if len(value) > LABEL_LIMIT:
        yield invalid(path, value, f"must be no more than {LABEL_LIMIT} bytes")
    elif not is_label_value(value):
        yield invalid(path, value, LABEL_VALUE_RULE)


def labels(path: str, mapping: Mapping[str, str] | None) -> Iterator[FieldError]:
    """Keys and values must be those of labels."""
    for key, value in (mapping or {}).items():
        yield from qualified_name(path, key)
        yield from label_value(path, value)


def annotation_map(path: str, mapping: Mapping[str, str] | None) -> Iterator[FieldError]:
    """Keys must be qualified names, and all together must not be too large."""
    size = 0
    for key, value in (mapping or {}).items():
        size += len(key.encode()) + len(value.encode())
        yield from qualified_name(path, key.lower())
    if size > _ANNOTATIONS_LIMIT:
        yield too_long(path, _ANNOTATIONS_LIMIT)


def label_selector(path: str, selector: Mapping[str, Any] | None) -> Iterator[FieldError]:
    """A label selector must be one that can be evaluated."""
    if selector is None:
        return
    yield from labels(f"{path}.matchLabels", selector.get("matchLabels"))
    for index, one in enumerate(selector.get("matchExpressions") or ()):
        here = f"{path}.matchExpressions[{index}]"
        operator, values = one.get("operator", ""), one.get("values") or ()
        if operator in ("In", "NotIn"):
            if not values:
                yield required(
                    f"{here}.values", "must be specified when `operator` is 'In' or 'NotIn'"
                )
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                yield forbidden(
                    f"{here}.values",
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                )
        else:
            yield invalid(f"{here}.operator", operator, "not a valid selector operator")
        yield from qualified_name(f"{here}.key", one.get("key", ""))
        for position, value in enumerate(values):
            yield from label_value(f"{here}.values[{position}]", value)


def taints(path: str, items: Sequence[Mapping[str, Any]] | None) -> Iterator[FieldError]:
    """Taints must be valid and differ in key or effect."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(items or ()):
        here = f"{path}[{index}]"
        key, effect = taint.get("key", ""), taint.get("effect", "")
        yield from qualified_name(f"{here}.key", key)
        yield from label_value(f"{here}.value", taint.get("value", ""))
        yield from _effect(f"{here}.effect", effect)
        if (key, effect) in seen:
            yield duplicate(here, dict(taint))
        seen.add((key, effect))


def _effect(path: str, effect: str) -> Iterator[FieldError]:
    if not effect:
        yield required(path)
    elif effect not in TAINT_EFFECTS:
        yield not_supported(path, effect, TAINT_EFFECTS)


def tolerations(path: str, items: Sequence[Mapping[str, Any]] | None) -> Iterator[FieldError]:
    """Tolerations must be those that a pod may have."""
    for index, one in enumerate(items or ()):
        here = f"{path}[{index}]"
        key, operator = one.get("key", ""), one.get("operator", "")
        value, effect = one.get("value", ""), one.get("effect", "")
        if key:
            yield from qualified_name(f"{here}.key", key)
        elif operator != "Exists":
            detail = (
                "operator must be Exists when `key` is empty, "
                'which means "match all values and all keys"'
            )
            yield invalid(f"{here}.operator", operator, detail)
        if one.get("tolerationSeconds") is not None and effect != NO_EXECUTE:
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid(f"{here}.effect", effect, detail)
        if operator in ("", "Equal"):
            yield from label_value(f"{here}.operator", value)
        elif operator == "Exists":
            if value:
                detail = "value must be empty when `operator` is 'Exists'"
                yield invalid(f"{here}.operator", value, detail)
        else:
            yield not_supported(f"{here}.operator", operator, ("Equal", "Exists"))
        if effect:
            yield from _effect(f"{here}.effect", effect)


def conditions(path: str, items: Iterable[Mapping[str, Any]] | None) -> Iterator[FieldError]:
    """Conditions must be those of `metav1.Condition`, one of each type."""
    seen: set[str] = set()
    for index, one in enumerate(items or ()):
        here = f"{path}[{index}]"
        kind, status, reason = one.get("type", ""), one.get("status", ""), one.get("reason", "")
        if not kind:
            yield required(f"{here}.type", "must be set")
        else:
            yield from qualified_name(f"{here}.type", kind)
        if kind in seen:
            yield duplicate(f"{here}.type", kind)
        seen.add(kind)
        if status not in _STATUSES:
            yield not_supported(f"{here}.status", status, _STATUSES)
        if (one.get("observedGeneration") or 0) < 0:
            yield invalid(f"{here}.observedGeneration", one["observedGeneration"], NOT_NEGATIVE)
        if not one.get("lastTransitionTime"):
            yield required(f"{here}.lastTransitionTime", "must be set")
        if not reason:
            yield required(f"{here}.reason", "must be set")
        elif len(reason) > _REASON_LIMIT:
            yield too_long(f"{here}.reason", _REASON_LIMIT)
        elif _REASON.fullmatch(reason) is None:
            yield invalid(
                f"{here}.reason",
                reason,
                "a condition reason must start with alphabetic character, optionally followed by a "
                "string of alphanumeric characters or '_,:', and must end with an alphanumeric "
                "character or '_'",
            )
        if len(one.get("message", "").encode()) > CONDITION_MESSAGE_LIMIT:
            yield too_long(f"{here}.message", CONDITION_MESSAGE_LIMIT)


# ---- the rules of admission gates, for Workloads and for jobs (KEP-6915) -------------------------

GATES_PATH: Final = f"metadata.annotations[{ADMISSION_GATED_BY}]"


def gate_errors(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    """Broken rules of the gates of a new object, or of a change: gates can only be removed."""
    text = annotations_of(new).get(ADMISSION_GATED_BY, "")
    if old is not None:
        if text == annotations_of(old).get(ADMISSION_GATED_BY, ""):
            return
        before = admission_gates(annotations_of(old))
        if not before and text:
            yield forbidden(GATES_PATH, "cannot add admission gate after creation")
        elif not {*admission_gates(annotations_of(new))} <= {*before}:
            yield forbidden(GATES_PATH, "can only remove gates, not add new ones")
    if text.strip():
        yield from _format(text)


def _format(text: str) -> Iterator[FieldError]:
    seen = set()
    for gate in map(str.strip, text.split(",")):
        if not gate:
            yield invalid(GATES_PATH, text, "cannot contain empty gate names")
            continue
        if gate in seen:
            yield invalid(GATES_PATH, text, f"duplicate gate name: {gate}")
            continue
        seen.add(gate)
        if not is_domain_prefixed_path(gate):
            yield invalid(
                GATES_PATH, gate, 'must be a domain-prefixed path (such as "acme.io/foo")'
            )
        if len(gate) > LABEL_LIMIT:
            yield too_long(GATES_PATH, LABEL_LIMIT)
