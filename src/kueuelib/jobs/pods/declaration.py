"""The declaration of a driver about its group: the pod sets in an annotation (KEP-976 story 3,
4.11).

The text is YAML 1.2 or JSON from a user, with plain values only; nothing in it ever becomes a pod.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import orjson

from kueuelib.api.codec import decode
from kueuelib.api.core import PodTemplateSpec
from kueuelib.api.meta import Obj
from kueuelib.api.names import GROUP_SETS, is_dns1123_label
from kueuelib.api.quantity import Quantity
from kueuelib.api.validation import fields
from kueuelib.errors import FieldError, InvalidObject, InvalidQuantity, KueuelibError
from kueuelib.jobs.contract.field_rules import annotation_path
from kueuelib.jobs.pods import plain_yaml
from kueuelib.jobs.pods.template_fields import CONTAINER_FIELDS, POD_SPEC_FIELDS

MOST_SETS = 8
LONGEST = 131_072
"""The maximum number of bytes in a declaration."""
DEEPEST = 32
DIGEST_DIGITS = 16
PATH = annotation_path(GROUP_SETS)

_KEYS = ("name", "count", "template")
_AMOUNTS = ("requests", "limits", "overhead")
_LARGEST_SUM = 2**31 - 1
_BEYOND = 2**63


class Unreadable(KueuelibError):
    """A declaration that breaks rules.

    Attributes:
        errors: every broken rule.
    """

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__(", ".join(map(str, errors)))
        self.errors = tuple(errors)


@attrs.frozen
class DeclaredSet:
    """One entry of a declaration.

    Attributes:
        name: of the pod set, and of the role of its pods.
        count: how many pods.
        template: the raw template; empty for one like the declaring pod.
    """

    name: str
    count: int
    template: Obj


@attrs.frozen
class GroupDeclaration:
    """The pod sets of a group, in the order they were written."""

    sets: tuple[DeclaredSet, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The roles."""
        return tuple(entry.name for entry in self.sets)

    @property
    def empty(self) -> tuple[str, ...]:
        """The roles whose pods are like the declaring one."""
        return tuple(entry.name for entry in self.sets if not entry.template)

    @property
    def total(self) -> int:
        """The total number of pods."""
        return sum(entry.count for entry in self.sets)

    @property
    def digest(self) -> str:
        """A key that differs between declarations that ask for different things."""
        plain = [
            {"name": entry.name, "count": entry.count, "template": _canonical(entry.template)}
            for entry in self.sets
        ]
        text = orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(text).hexdigest()[:DIGEST_DIGITS]

    def role_of(self, label: str) -> str:
        """The role of the declaring pod, given its role label; empty if it is unknown."""
        if label:
            return label
        return self.empty[0] if len(self.empty) == 1 else ""


def parse(text: str) -> GroupDeclaration:
    """The declaration in an annotation.

    Raises:
        Unreadable: it breaks a rule; every broken rule is named.
    """
    if len(text.encode()) > LONGEST:
        raise Unreadable([fields.too_long(PATH, LONGEST)])
    try:
        document = plain_yaml.read(text)
    except plain_yaml.NotPlain as error:
        raise Unreadable([_invalid(PATH, "...", f"is not plain YAML: {error}")]) from error
    if _depth(document) > DEEPEST:
        raise Unreadable([_invalid(PATH, "...", f"must be nested at most {DEEPEST} levels deep")])
    document = _like_json(document)
    if not isinstance(document, list) or not document:
        raise Unreadable([_invalid(PATH, "...", "must be a list of at least one pod set")])
    if len(document) > MOST_SETS:
        raise Unreadable([fields.too_many(PATH, len(document), MOST_SETS)])
    errors: list[FieldError] = []
    for index, entry in enumerate(document):
        errors += _entry_errors(entry, f"{PATH}[{index}]")
    if errors:
        raise Unreadable(errors)
    sets = tuple(
        DeclaredSet(entry["name"], entry["count"], entry.get("template") or {})
        for entry in document
    )
    names = [entry.name for entry in sets]
    errors += [
        fields.duplicate(f"{PATH}[{index}].name", name)
        for index, name in enumerate(names)
        if name in names[:index]
    ]
    declared = GroupDeclaration(sets)
    if declared.total > _LARGEST_SUM:
        errors.append(_invalid(PATH, declared.total, "is more pods than can be counted"))
    if errors:
        raise Unreadable(errors)
    return declared


def _entry_errors(entry: Any, path: str) -> list[FieldError]:
    if not isinstance(entry, dict):
        return [_invalid(path, "...", "must be a mapping with name, count and template")]
    errors = [
        _invalid(f"{path}.{key}", str(key), f"is unknown; there are {', '.join(_KEYS)}")
        for key in entry
        if key not in _KEYS
    ]
    name = entry.get("name")
    if "name" not in entry:
        errors.append(fields.required(f"{path}.name"))
    elif not isinstance(name, str) or not is_dns1123_label(name):
        errors.append(_invalid(f"{path}.name", str(name), "must be a DNS label"))
    count = entry.get("count")
    if "count" not in entry:
        errors.append(fields.required(f"{path}.count"))
    elif type(count) is not int or count < 1:
        errors.append(_invalid(f"{path}.count", str(count), "must be a whole number of at least 1"))
    elif count > _LARGEST_SUM:
        errors.append(_invalid(f"{path}.count", count, f"must be at most {_LARGEST_SUM}"))
    return [*errors, *_template_errors(entry.get("template"), f"{path}.template")]


def _template_errors(template: Any, path: str) -> list[FieldError]:
    if not template and (template is None or isinstance(template, dict)):
        return []
    if not isinstance(template, dict):
        return [_invalid(path, "...", "must be a pod template")]
    too_large = list(_beyond_64_bits(template, path))
    if too_large:
        return too_large
    try:
        decode(PodTemplateSpec, template)
    except InvalidObject as error:
        return [
            attrs.evolve(each, path=f"{path}.{each.path}" if each.path else path)
            for each in error.errors
        ]
    errors = [
        _invalid(f"{path}.{key}", key, "is not a field of a pod template")
        for key in template
        if key not in ("metadata", "spec")
    ]
    errors += [
        fields.forbidden(
            f"{path}.metadata.{key}", "only labels and annotations have an effect here"
        )
        for key in template.get("metadata") or {}
        if key not in ("labels", "annotations")
    ]
    spec = template.get("spec") or {}
    if not spec.get("containers"):
        return [*errors, fields.required(f"{path}.spec.containers", "at least one container")]
    errors += [
        _invalid(f"{path}.spec.{key}", key, "is not a field of a pod spec")
        for key in spec
        if key not in POD_SPEC_FIELDS
    ]
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or ()):
            errors += _container_errors(container, f"{path}.spec.{kind}[{index}]")
    return errors


def _container_errors(container: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = [
        _invalid(f"{path}.{key}", key, "is not a field of a container")
        for key in container
        if key not in CONTAINER_FIELDS
    ]
    if not container.get("name"):
        errors.append(fields.required(f"{path}.name"))
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for kind, amounts in (("requests", requests), ("limits", limits)):
        for name, amount in amounts.items():
            where = f"{path}.resources.{kind}[{name}]"
            errors += fields.qualified_name(where, name)
            if name == "pods":
                errors.append(_invalid(where, name, "is counted by itself"))
            elif Quantity.parse(amount) < Quantity.parse(0):
                errors.append(_invalid(where, str(amount), "must not be negative"))
            elif kind == "requests" and name in limits:
                errors += _above(where, amount, limits[name])
    return errors


def _above(path: str, amount: Any, limit: Any) -> list[FieldError]:
    if Quantity.parse(amount) <= Quantity.parse(limit):
        return []
    return [_invalid(path, str(amount), f"must be at most the limit, {limit}")]


def _depth(value: Any) -> int:
    level, depth = [value], 0
    while level:
        depth += 1
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return depth


def _like_json(value: Any, *, quantities: bool = False) -> Any:
    """The value with keys, and amounts such as 0.5, as text."""
    if isinstance(value, dict):
        return {
            key: _like_json(each, quantities=quantities or key in _AMOUNTS)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_like_json(each) for each in value]
    if quantities and not isinstance(value, bool) and isinstance(value, int | float):
        whole = isinstance(value, int) and -_BEYOND <= value < _BEYOND
        return value if whole else repr(value)
    return value


def _beyond_64_bits(value: Any, path: str) -> Iterator[FieldError]:
    """Whole numbers that no field can hold."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _beyond_64_bits(each, f"{path}.{key}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _beyond_64_bits(each, f"{path}[{index}]")
    elif isinstance(value, int) and not -_BEYOND <= value < _BEYOND:
        yield _invalid(path, value, "must fit into 64 bits")


def _canonical(value: Any, *, quantities: bool = False) -> Any:
    if isinstance(value, Mapping):
        return {
            str(key): _canonical(each, quantities=quantities or key in _AMOUNTS)
            for key, each in value.items()
            if each is not None
        }
    if isinstance(value, list | tuple):
        return [_canonical(each) for each in value]
    if quantities:
        try:
            return str(Quantity.parse(value).nanos)
        except InvalidQuantity:
            return value
    return value


def _invalid(path: str, value: Any, detail: str) -> FieldError:
    return fields.invalid(path, value, detail)
