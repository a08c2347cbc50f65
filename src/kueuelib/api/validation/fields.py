"""Field errors in the texts of Kubernetes, and rules that many kinds share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from kueuelib.api.names import (
    is_dns1035_label,
    is_dns1123_label,
    is_dns1123_subdomain,
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
