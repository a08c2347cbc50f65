"""Field selectors: `metadata.name=a,status.phase!=Running`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kueuelib.errors import InvalidSelector


@attrs.frozen
class FieldRequirement:
    """One condition on one field.

    Attributes:
        path: for example `metadata.name`.
        value: what it is compared with.
        negated: whether the field must differ.
    """

    path: str
    value: str
    negated: bool = False

    def __str__(self) -> str:
        value = self.value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
        return f"{self.path}{'!=' if self.negated else '='}{value}"


@attrs.frozen
class FieldSelector:
    """A conjunction of field requirements; empty: everything."""

    requirements: tuple[FieldRequirement, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Every field that it reads; a server refuses unknown ones."""
        return tuple(dict.fromkeys(each.path for each in self.requirements))

    def exact(self, path: str) -> str | None:
        """The only value that the field may have, or None when several would do."""
        for each in self.requirements:
            if each.path == path and not each.negated:
                return each.value
        return None

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether the fields fulfil every requirement; a missing field is the empty text."""
        return all(
            (fields.get(each.path, "") == each.value) is not each.negated
            for each in self.requirements
        )

    def matches_object(self, obj: Mapping[str, Any]) -> bool:
        """`matches` on the values found at the paths of a raw object."""
        return all(
            (field_of(obj, each.path) == each.value) is not each.negated
            for each in self.requirements
        )

    def __str__(self) -> str:
        return ",".join(str(each) for each in self.requirements)


def field_of(obj: Mapping[str, Any], path: str) -> str:
    """The text of a raw object's field at a dotted path; empty when it is missing.

    Booleans are `true` and `false`, numbers their digits.
    """
    value: Any = obj
    for part in path.split("."):
        if not isinstance(value, Mapping) or value.get(part) is None:
            return ""
        value = value[part]
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def parse_field_selector(text: str) -> FieldSelector:
    r"""The selector of a `fieldSelector` query parameter; `\` escapes `\`, `,` and `=` in values.

    Raises:
        InvalidSelector: the text is not a field selector.
    """
    return FieldSelector(tuple(_requirement(term, text) for term in _terms(text) if term))


def _terms(text: str) -> list[str]:
    terms, current, escaped = [], "", False
    for letter in text:
        if letter == "," and not escaped:
            terms.append(current)
            current = ""
        else:
            current += letter
        escaped = letter == "\\" and not escaped
    return [*terms, current]


def _requirement(term: str, text: str) -> FieldRequirement:
    cut = min((at for at in (term.find("="), term.find("!=")) if at >= 0), default=-1)
    if cut < 0:
        raise InvalidSelector(f"invalid selector: {text!r}; can't understand {term!r}")
    rest = term[cut:]
    op = next(op for op in ("!=", "==", "=") if rest.startswith(op))
    path = term[:cut]
    if not path:
        raise InvalidSelector(f"invalid selector: {text!r}; {term!r} names no field")
    return FieldRequirement(path, _unescaped(rest[len(op) :], text), op == "!=")


def _unescaped(value: str, text: str) -> str:
    plain, letters = "", iter(value)
    for letter in letters:
        if letter == "\\":
            escaped = next(letters, "")
            if escaped not in ("\\", ",", "=") or not escaped:
                raise InvalidSelector(f"invalid selector: {text!r}; bad escape in {value!r}")
            plain += escaped
        elif letter in ",=":
            raise InvalidSelector(f"invalid selector: {text!r}; unescaped {letter!r} in {value!r}")
        else:
            plain += letter
    return plain
