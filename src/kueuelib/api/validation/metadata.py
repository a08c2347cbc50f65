"""Rules for labels, annotations, selectors, taints, tolerations, conditions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kueuelib.api.conditions import CONDITION_MESSAGE_LIMIT
from kueuelib.api.core import NO_EXECUTE, TAINT_EFFECTS
from kueuelib.api.names import is_label_value
from kueuelib.api.patterns import LABEL_LIMIT
from kueuelib.api.validation.fields import (
    LABEL_VALUE_RULE,
    NOT_NEGATIVE,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    qualified_name,
    required,
    too_long,
)
from kueuelib.errors import FieldError

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
