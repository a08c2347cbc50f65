"""Validation rules as data: `rules.txt` next to this module, whose head explains it.

Checks that the table cannot express are functions of the caller.
"""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from importlib.resources import files
from typing import Any, Final

import attrs

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.fields import (
    duplicate,
    forbidden,
    invalid,
    non_negative,
    not_supported,
    required,
)
from kueuelib.embedded.builtins.metadata import (
    label,
    label_value,
    path_segment,
    port_name,
    qualified_name,
    subdomain,
    validate_labels,
)
from kueuelib.embedded.schema.written import as_given, internal
from kueuelib.errors import FieldError

NO_IP: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_LAST_PORT: Final = 65535
_LOCAL_GROUPS: Final = {
    4: ipaddress.ip_network("224.0.0.0/24"),
    6: ipaddress.ip_network("ff02::/16"),
}
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})
"""What counts as absent; a zero does not."""


@attrs.frozen
class ValuePlace:
    """A value with its place.

    Attributes:
        value: the value.
        path: of the value.
        outer: the object that contains it.
        known: functions and known names of the caller, by kind.
        seen: texts that must be unique, by kind.
    """

    value: Any
    path: str
    outer: Mapping[str, Any]
    known: Mapping[str, Any]
    seen: dict[str, set[Any]]


BrokenRules = list[FieldError] | None
"""Broken rules; None: skip the rest of the line."""
Check = Callable[[ValuePlace, str], BrokenRules]


@cache
def _rules() -> Mapping[str, list[tuple[str, list[tuple[str, str]]]]]:
    """By type, the fields with their checks, each a name and its arguments."""
    rules: dict[str, list[tuple[str, list[tuple[str, str]]]]] = {}
    text = files("kueuelib.embedded.builtins").joinpath("rules.txt").read_text("ascii")
    lines: list[tuple[str, list[tuple[str, str]]]] = []
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if line.startswith(" "):
            field, *words = shlex.split(line)
            if field.startswith("@"):
                field, words = ".", [field]
            pairs = [word.partition(":")[::2] for word in words]
            lines.append((field, pairs))
        else:
            lines = rules[line] = []
    return rules


def kinds_with_rules(**known: Any) -> Mapping[tuple[str, str], Callable[[Obj], list[FieldError]]]:
    """The kinds of which all rules are in `rules.txt`, with the check of an object.

    Args:
        known: functions that the rules name.
    """
    checks = {}
    for type_ in _rules():
        group, slash, kind = type_.partition("/")
        if slash:
            checks["" if group == "core" else group, kind] = partial(check, type_, path="", **known)
    return checks


def check(type_: str, value: Any, path: str, **known: Any) -> list[FieldError]:
    """The broken rules of a value.

    Args:
        type_: in `rules.txt`; for a list, the type of its items.
        value: the value; None has no rules.
        path: of the value.
        known: functions that the rules name, and known names, by kind.
    """
    return _check(type_, ValuePlace(value, path, {}, known, {}))


def _check(type_: str, place: ValuePlace) -> list[FieldError]:
    if isinstance(place.value, list | tuple):
        return [
            error
            for i, each in enumerate(place.value)
            for error in _check(type_, attrs.evolve(place, value=each, path=f"{place.path}[{i}]"))
        ]
    errors: list[FieldError] = []
    inner: dict[str, set[Any]] = {}
    for field, checks in _rules()[type_] if place.value is not None else ():
        name, at = field.removesuffix("!"), place
        if name != ".":
            value = as_given(place.value, name)
            if not value and name == field:
                continue
            path = f"{place.path}.{name}" if place.path else name
            at = ValuePlace(value, path, place.value, place.known, place.seen)
        for what, argument in checks:
            if what.startswith("@"):
                seen = place.seen if name == "." else inner
                errors += _check(what[1:], attrs.evolve(at, seen=seen))
                continue
            broken = (CHECKS.get(what) or place.known[what])(at, argument)
            errors += broken or ()
            if broken != []:
                break
    return errors


# ---- checks


def _is(rule: Callable[[str], Iterable[str]]) -> Check:
    """Check that a text, or each text of a list, follows a rule for names."""
    return lambda at, _: [
        invalid(path, text or "", why) for path, text in _places(at) for why in rule(text or "")
    ]


def _places(at: ValuePlace) -> list[tuple[str, Any]]:
    """The value, or each item of a list, with its path."""
    if isinstance(at.value, list):
        return [(f"{at.path}[{i}]", each) for i, each in enumerate(at.value)]
    return [(at.path, at.value)]


def _one_of(at: ValuePlace, known: str, *, ordered: bool) -> BrokenRules:
    names = known.split(",")
    return [
        not_supported(path, value, names, ordered=ordered)
        for path, value in _places(at)
        if value not in names
    ]


def _among(at: ValuePlace, known: str) -> BrokenRules:
    names, _, text = known.partition(";")
    return [] if at.value in names.split(",") else [invalid(at.path, at.value or "", text)]


def _between(at: ValuePlace, limits: str) -> BrokenRules:
    numbers, _, text = limits.partition(";")
    low, high = map(int, numbers.split(","))
    if (at.value is None and not text) or low <= (at.value or 0) <= high:
        return []
    return [invalid(at.path, at.value or 0, text or f"must be between {low} and {high}, inclusive")]


def _port(at: ValuePlace, _: str) -> BrokenRules:
    if isinstance(at.value, str):
        return [invalid(at.path, at.value, why) for why in port_name(at.value)]
    if 0 < (at.value or 0) <= _LAST_PORT:
        return []
    return [invalid(at.path, at.value or 0, f"must be between 1 and {_LAST_PORT}, inclusive")]


def _above_zero(at: ValuePlace, text: str) -> list[FieldError]:
    return [] if (at.value or 0) > 0 else [invalid(at.path, at.value or 0, text)]


def _if(at: ValuePlace, condition: str) -> BrokenRules:
    name, _, values = condition.partition("=")
    value = at.outer.get(name)
    return [] if ((value or "") in values.split(",") if values else value not in _EMPTY) else None


def _unique(at: ValuePlace, kind: str) -> BrokenRules:
    seen = at.seen.setdefault(kind or at.path.rpartition(".")[2], set())
    if at.value in seen:
        return [duplicate(at.path, at.value or "")]
    seen.add(at.value)
    return []


def _known(at: ValuePlace, kind: str) -> BrokenRules:
    if (at.value or "") in at.known[kind]:
        return []
    return [FieldError(at.path, "FieldValueNotFound", f'Not found: "{at.value or ""}"')]


def _distinct(at: ValuePlace, struct: str) -> BrokenRules:
    shown = [internal(struct, each) if struct else each for each in at.value]
    return [duplicate(f"{at.path}[{i}]", each) for i, each in enumerate(shown) if each in shown[:i]]


def ip_rule(text: str) -> list[str]:
    """The rule for IP addresses."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return [NO_IP]
    return []


def _outside(text: str) -> list[str]:
    """The rule of addresses outside of the cluster."""
    if bad := ip_rule(text):
        return bad
    ip = ipaddress.ip_address(text)
    local = ip in _LOCAL_GROUPS[ip.version]
    ranges = (
        (ip.is_unspecified, f"may not be unspecified ({text})"),
        (ip.is_loopback, "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (ip.is_link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (local, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
    )
    return [text for broken, text in ranges if broken]


def _descending(path: str) -> list[str]:
    errors = ["must be a relative path"] if path.startswith("/") else []
    return [*errors, *(["must not contain '..'"] if ".." in path.split("/") else [])]


CHECKS: Final[Mapping[str, Check]] = {
    "required": lambda at, text: [required(at.path, text)] if at.value in _EMPTY else [],
    "in": partial(_one_of, ordered=False),
    "order": partial(_one_of, ordered=True),
    "each": lambda at, known: [
        not_supported(at.path, each, known.split(","))
        for each in at.value
        if each not in known.split(",")
    ],
    "among": _among,
    "between": _between,
    "port": _port,
    "if": _if,
    "set": lambda at, _: None if at.value is None else [],
    "unless": lambda at, condition: [] if _if(at, condition) is None else None,
    "unique": _unique,
    "known": _known,
    "distinct": _distinct,
    "min": lambda at, _: non_negative(at.path, at.value),
    "above": lambda at, _: [] if at.value is None else _above_zero(at, "must be greater than 0"),
    "positive": lambda at, _: _above_zero(at, "must be greater than zero"),
    "one": lambda at, text: [] if len(at.value or ()) == 1 else [required(at.path, text)],
    "forbidden": lambda at, text: [forbidden(at.path, text)],
    "wrong": lambda at, text: [invalid(at.path, at.value, text)],
    "none": lambda at, text: [invalid(at.path, list(at.value), text)],
    "filled": lambda at, _: [
        required(f"{at.path}[{i}]") for i, each in enumerate(at.value) if not each
    ],
    "labels": lambda at, _: validate_labels(at.value, at.path),
    "label": _is(label),
    "segment": _is(path_segment),
    "subdomain": _is(subdomain),
    "wildcard": _is(lambda text: subdomain(text.removeprefix("*."))),
    "qualified": _is(qualified_name),
    "label_value": _is(label_value),
    "port_name": _is(port_name),
    "ip": _is(ip_rule),
    "outside": _is(_outside),
    "trimmed": _is(
        lambda it: ["must not have leading or trailing whitespace"] if it != it.strip() else []
    ),
    "descending": _is(_descending),
    "absolute": _is(lambda text: [] if text.startswith("/") else ["must be an absolute path"]),
}
