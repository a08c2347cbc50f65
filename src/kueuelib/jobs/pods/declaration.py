"""The declaration of a driver about its group: the pod sets in an annotation (KEP-976 story 3,
4.11).

The text is YAML 1.2 or JSON from a user, with plain values only; nothing in it ever becomes a pod.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import orjson
import yaml

from kueuelib.api.codec import decode
from kueuelib.api.core import PodTemplateSpec
from kueuelib.api.meta import Obj
from kueuelib.api.names import GROUP_SETS, is_dns1123_label
from kueuelib.api.quantity import Quantity
from kueuelib.api.validation import fields
from kueuelib.errors import FieldError, InvalidObject, InvalidQuantity, KueuelibError
from kueuelib.jobs.contract.field_rules import annotation_path

# ---- yAML 1.2 as plain values: the core schema, without anchors, tags and duplicate keys ---------
# PyYAML reads YAML 1.1, where `010` is eight, `1:30` ninety, `1_0` ten and `on` true. Annotations
# are YAML 1.2 (KEP-976), where `010` is ten and the others are texts. JSON is read as JSON, because
# PyYAML treats tabs and characters beyond the first plane differently.

LONGEST_NUMBER = 100
"""The maximum number of characters in a number."""

_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_SCHEMA = (
    ("null", re.compile(r"(?:~|null|Null|NULL|)"), ("~", "n", "N", "")),
    ("bool", re.compile(r"true|True|TRUE|false|False|FALSE"), tuple("tTfF")),
    ("int", _INTEGER, tuple("-+0123456789")),
    ("float", _FLOAT, tuple("-+.0123456789")),
)


class NotPlain(KueuelibError):
    """A text that is not YAML 1.2, or more than plain values."""


def read(text: str) -> Any:
    """The value of a text with one document; keys of mappings are always texts.

    Raises:
        NotPlain: it is not YAML, or it has more than plain values: anchors, tags, duplicate keys,
            numbers that are not finite.
    """
    try:
        return _checked(_JSON.decode(text))
    except json.JSONDecodeError:
        pass  # YAML, then
    except RecursionError as error:
        raise NotPlain("it is nested too deeply") from error
    try:
        return _checked(yaml.load(text, _Loader))  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise NotPlain(getattr(error, "problem", None) or "it cannot be parsed") from error
    except RecursionError as error:
        raise NotPlain("it is nested too deeply") from error


def _mapping(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise NotPlain(f"the key {key!r} is given twice")
        mapping[key] = value
    return mapping


def _number(text: str) -> int | float:
    if len(text) > LONGEST_NUMBER:
        raise NotPlain(f"a number has at most {LONGEST_NUMBER} digits")
    if _INTEGER.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


_JSON = json.JSONDecoder(
    object_pairs_hook=_mapping, parse_int=_number, parse_float=_number, parse_constant=_number
)


def _checked(value: Any) -> Any:
    """The value, if all its texts can be stored and all its numbers are finite."""
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            rest += [*one, *one.values()]
        elif isinstance(one, list):
            rest += one
        elif isinstance(one, str) and any("\ud800" <= each <= "\udfff" for each in one):
            raise NotPlain("half of a surrogate pair is not a character")
        elif isinstance(one, float) and not math.isfinite(one):
            raise NotPlain("a number is not finite")
    return value


class _Loader(yaml.SafeLoader):
    """The core schema on PyYAML's parser."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.events.AliasEvent) or getattr(event, "anchor", None):
            raise yaml.composer.ComposerError(
                problem="anchors and aliases are not allowed", problem_mark=event.start_mark
            )
        if getattr(event, "tag", None):
            raise yaml.composer.ComposerError(
                problem="tags are not allowed", problem_mark=event.start_mark
            )
        return super().compose_node(parent, index)

    def number(self, node: Any) -> int | float:
        text: str = self.construct_scalar(node)
        return _number(text)

    def mapping(self, node: Any) -> Any:
        pairs = []
        mapping: dict[str, Any] = {}
        yield mapping
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise NotPlain("a key must be a text, and not a list or a mapping")
            key: Any = self.construct_object(key_node)
            value: Any = self.construct_object(value_node)
            pairs.append((key if isinstance(key, str) else json.dumps(key), value))
        mapping.update(_mapping(pairs))


for _name, _pattern, _first in _SCHEMA:
    _whole = re.compile(rf"(?:{_pattern.pattern})\Z")
    for _letter in _first:
        _Loader.yaml_implicit_resolvers.setdefault(_letter, []).append((_TAG + _name, _whole))
for _name in ("int", "float"):
    _Loader.add_constructor(_TAG + _name, _Loader.number)
_Loader.add_constructor(f"{_TAG}map", _Loader.mapping)


# ---- the fields that a pod spec and a container have, for reading templates strictly -------------

POD_SPEC_FIELDS: Final = frozenset(
    {
        *("activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers"),
        *("dnsConfig", "dnsPolicy", "enableServiceLinks", "ephemeralContainers", "hostAliases"),
        *("hostIPC", "hostNetwork", "hostPID", "hostUsers", "hostname", "hostnameOverride"),
        *("imagePullSecrets", "initContainers", "nodeName", "nodeSelector", "os", "overhead"),
        *("preemptionPolicy", "priority", "priorityClassName", "readinessGates", "resourceClaims"),
        *("resources", "restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates"),
        *("securityContext", "serviceAccount", "serviceAccountName", "setHostnameAsFQDN"),
        *("shareProcessNamespace", "subdomain", "terminationGracePeriodSeconds", "tolerations"),
        *("topologySpreadConstraints", "volumes"),
    }
)

CONTAINER_FIELDS: Final = frozenset(
    {
        *("args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle"),
        *("livenessProbe", "name", "ports", "readinessProbe", "resizePolicy", "resources"),
        *("restartPolicy", "restartPolicyRules", "securityContext", "startupProbe", "stdin"),
        *("stdinOnce", "terminationMessagePath", "terminationMessagePolicy", "tty"),
        *("volumeDevices", "volumeMounts", "workingDir"),
    }
)


# --------------------------------------------------------------------------------------------------

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


class InvalidDeclaration(KueuelibError):
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
        raise InvalidDeclaration([fields.too_long(PATH, LONGEST)])
    try:
        document = read(text)
    except NotPlain as error:
        raise InvalidDeclaration([_invalid(PATH, "...", f"is not plain YAML: {error}")]) from error
    if _depth(document) > DEEPEST:
        raise InvalidDeclaration(
            [_invalid(PATH, "...", f"must be nested at most {DEEPEST} levels deep")]
        )
    document = _like_json(document)
    if not isinstance(document, list) or not document:
        raise InvalidDeclaration([_invalid(PATH, "...", "must be a list of at least one pod set")])
    if len(document) > MOST_SETS:
        raise InvalidDeclaration([fields.too_many(PATH, len(document), MOST_SETS)])
    errors: list[FieldError] = []
    for index, entry in enumerate(document):
        errors += _entry_errors(entry, f"{PATH}[{index}]")
    if errors:
        raise InvalidDeclaration(errors)
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
        raise InvalidDeclaration(errors)
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
