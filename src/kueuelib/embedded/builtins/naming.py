"""The rules for names, label keys and label values: each returns its objections."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from kueuelib.api.patterns import LABEL_LIMIT, SUBDOMAIN_LIMIT
from kueuelib.api.validation.fields import (
    LABEL_1035_RULE,
    LABEL_RULE,
    LABEL_VALUE_RULE,
    QUALIFIED_RULE,
    SUBDOMAIN_RULE,
)

NameRule = Callable[[str], Sequence[str]]

NO_DOTS = "must not contain dots"
NO_NETWORK = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

_IS_LABEL = re.compile(_LABEL).fullmatch
_IS_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*").fullmatch
_IS_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?").fullmatch
_IS_QUALIFIED = re.compile(_QUALIFIED).fullmatch
_IS_VALUE = re.compile(rf"({_QUALIFIED})?").fullmatch

_QUALIFIED_TEXT = (
    f"a qualified name {QUALIFIED_RULE.removeprefix('name part ')} with an optional DNS subdomain "
    "prefix and '/' (e.g. 'example.com/MyName')"
)


def _longer(text: str, limit: int, unit: str = "characters") -> list[str]:
    return [f"must be no more than {limit} {unit}"] if len(text) > limit else []


def subdomain(name: str, unit: str = "characters") -> list[str]:
    """The rule of most names: RFC 1123 subdomain."""
    bad = [] if _IS_SUBDOMAIN(name) else [SUBDOMAIN_RULE]
    return _longer(name, SUBDOMAIN_LIMIT, unit) + bad


def label(name: str) -> list[str]:
    """The rule of namespaces and containers: RFC 1123 label."""
    bad = [] if _IS_LABEL(name) else [NO_DOTS if _IS_SUBDOMAIN(name) else LABEL_RULE]
    return _longer(name, LABEL_LIMIT) + bad


def label_1035(name: str) -> list[str]:
    """The rule of services: RFC 1035 label."""
    bad = [] if _IS_LABEL_1035(name) else [LABEL_1035_RULE]
    return _longer(name, LABEL_LIMIT) + bad


def path_segment(name: str) -> list[str]:
    """The rule of roles: any text that is valid in a URL path."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{char}'" for char in "/%" if char in name]


def qualified_name(key: str) -> list[str]:
    """The rule of label keys, resource names and conditions: an optional prefix, `/`, a name."""
    problems: list[str] = []
    parts = key.split("/")
    if len(parts) > 2:
        return [_QUALIFIED_TEXT]
    if len(parts) == 2:
        if not parts[0]:
            problems.append("prefix part must be non-empty")
        else:
            problems += [f"prefix part {text}" for text in subdomain(parts[0], "bytes")]
    name = parts[-1]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > LABEL_LIMIT:
        problems.append(f"name part must be no more than {LABEL_LIMIT} bytes")
    if not _IS_QUALIFIED(name):
        problems.append(QUALIFIED_RULE)
    return problems


def port_name(name: str) -> list[str]:
    """The rule of the names of ports."""
    odd, letters = re.search("[^-a-z0-9]", name) or not name, re.search("[a-z]", name)
    broken = {
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)": odd,
        "must contain at least one letter (a-z)": not letters,
        "must not contain consecutive hyphens": "--" in name,
        "must not begin or end with a hyphen": name.strip("-") != name,
    }
    return _longer(name, 15) + [text for text, holds in broken.items() if holds]


def label_value(value: str) -> list[str]:
    """The rule of label values."""
    bad = [] if _IS_VALUE(value) else [LABEL_VALUE_RULE]
    return _longer(value, LABEL_LIMIT, "bytes") + bad


_RULES: dict[tuple[str, str], NameRule] = {
    ("", "Namespace"): label,
    ("", "Service"): label_1035,
    ("rbac.authorization.k8s.io", "Role"): path_segment,
    ("rbac.authorization.k8s.io", "ClusterRole"): path_segment,
    ("rbac.authorization.k8s.io", "RoleBinding"): path_segment,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): path_segment,
}


def name_rule(group: str, kind: str) -> NameRule:
    """The rule of the names of a kind."""
    return _RULES.get((group, kind), subdomain)
