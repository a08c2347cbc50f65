"""Limits and patterns of names, as keywords of a schema: `wire(**SUBDOMAIN)`.

An optional name may be given as an empty text, which means the same as leaving it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SUBDOMAIN_LIMIT: Final = 253
LABEL_LIMIT: Final = 63

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED: Final = rf"({_SUBDOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
_QUALIFIED_LIMIT: Final = SUBDOMAIN_LIMIT + 1 + LABEL_LIMIT

Keywords = Mapping[str, Any]

SUBDOMAIN: Final[Keywords] = {"maxLength": SUBDOMAIN_LIMIT, "pattern": f"^{_SUBDOMAIN}$"}
"""A DNS-1123 subdomain."""

OPTIONAL_SUBDOMAIN: Final[Keywords] = {
    "maxLength": SUBDOMAIN_LIMIT,
    "pattern": f"^({_SUBDOMAIN})?$",
}

DNS_LABEL: Final[Keywords] = {"maxLength": LABEL_LIMIT, "pattern": f"^{_LABEL}$"}
"""A DNS-1123 label."""

QUALIFIED: Final[Keywords] = {"maxLength": _QUALIFIED_LIMIT, "pattern": f"^{_QUALIFIED}$"}
"""The key of a label, or the name of a resource; the length of its prefix is not limited."""

OPTIONAL_QUALIFIED: Final[Keywords] = {
    "maxLength": _QUALIFIED_LIMIT,
    "pattern": f"^({_QUALIFIED})?$",
}

LABEL_VALUE: Final[Keywords] = {
    "maxLength": LABEL_LIMIT,
    "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
}

KIND: Final[Keywords] = {
    "maxLength": LABEL_LIMIT,
    "pattern": "^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$",
}
"""A DNS-1035 label in any case."""
