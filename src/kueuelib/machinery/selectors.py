"""Label and field selectors: parsing, matching, canonical text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import attrs

from kueuelib.errors import InvalidSelector

__all__ = [
    "EVERYTHING",
    "LABEL_SELECTOR_OPS",
    "NODE_SELECTOR_OPS",
    "NOTHING",
    "FieldSelector",
    "Op",
    "Requirement",
    "Selector",
    "expression",
    "from_expressions",
    "from_label_selector",
    "from_labels",
    "parse_field_selector",
    "parse_label_selector",
]


# ---- field selectors: `metadata.name=a,status.phase!=Running` ------------------------------------


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


# --------------------------------------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_TOKEN = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+)")
_INTEGER = re.compile(r"[-+]?[0-9]+")


class Op(Enum):
    """How a requirement compares; the values are the words of `matchExpressions`."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


LABEL_SELECTOR_OPS = frozenset({Op.IN, Op.NOT_IN, Op.EXISTS, Op.DOES_NOT_EXIST})
"""The operators of a `LabelSelector`."""
NODE_SELECTOR_OPS = frozenset(Op)
"""The operators of node affinity."""


def _sorted_values(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(values)))


def _check_key(_: object, __: object, key: str) -> None:
    prefix, slash, name = key.rpartition("/")
    prefix_fits = len(prefix) <= 253 and _PREFIX.fullmatch(prefix) if slash else True
    if not prefix_fits or not _NAME.fullmatch(name):
        raise InvalidSelector(f"{key!r} is not a valid label key")


@attrs.frozen
class Requirement:
    """One condition on one label.

    Attributes:
        key: the label key.
        op: how to compare. `NOT_IN` and `DOES_NOT_EXIST` also hold when the label is missing.
        values: sorted and unique; one integer for `GT` and `LT`, none for the two existence checks.

    Raises:
        InvalidSelector: key or values do not fit the operator.
    """

    key: str = attrs.field(validator=_check_key)
    op: Op
    values: tuple[str, ...] = attrs.field(default=(), converter=_sorted_values)

    @values.validator
    def _check_values(self, _: object, values: tuple[str, ...]) -> None:
        if self.op in (Op.IN, Op.NOT_IN):
            if not values:
                raise InvalidSelector(f"{self.key}: {self.op.value} needs at least one value")
            for value in values:
                if value and not _NAME.fullmatch(value):
                    raise InvalidSelector(f"{self.key}: {value!r} is not a valid label value")
        elif self.op in (Op.GT, Op.LT):
            if len(values) != 1 or not _INTEGER.fullmatch(values[0]):
                given = ", ".join(values) or "nothing"
                text = f"{self.key}: {self.op.value} needs exactly one integer, not {given}"
                raise InvalidSelector(text)
        elif values:
            raise InvalidSelector(f"{self.key}: {self.op.value} takes no values")

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels fulfil it."""
        value = labels.get(self.key)
        if self.op is Op.IN:
            return value in self.values
        if self.op is Op.NOT_IN:
            return value not in self.values
        if self.op is Op.EXISTS:
            return value is not None
        if self.op is Op.DOES_NOT_EXIST:
            return value is None
        if value is None or not _INTEGER.fullmatch(value):
            return False
        if self.op is Op.GT:
            return int(value) > int(self.values[0])
        return int(value) < int(self.values[0])

    def __str__(self) -> str:
        if self.op is Op.EXISTS:
            return self.key
        if self.op is Op.DOES_NOT_EXIST:
            return f"!{self.key}"
        if self.op is Op.GT:
            return f"{self.key}>{self.values[0]}"
        if self.op is Op.LT:
            return f"{self.key}<{self.values[0]}"
        if len(self.values) == 1:
            return f"{self.key}{'=' if self.op is Op.IN else '!='}{self.values[0]}"
        word = "in" if self.op is Op.IN else "notin"
        return f"{self.key} {word} ({','.join(self.values)})"


def _sorted_requirements(requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    return tuple(sorted(requirements, key=lambda each: (each.key, str(each))))


@attrs.frozen
class Selector:
    """A conjunction of requirements, or nothing at all.

    Attributes:
        requirements: all must hold; sorted by key, so that equal selectors print alike.
        nothing: matches no object whatever the requirements say.
    """

    requirements: tuple[Requirement, ...] = attrs.field(default=(), converter=_sorted_requirements)
    nothing: bool = False

    @property
    def everything(self) -> bool:
        """Whether it matches any labels."""
        return not self.nothing and not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels fulfil every requirement."""
        if not self.requirements:
            return not self.nothing
        return not self.nothing and all(each.matches(labels) for each in self.requirements)

    def exact(self, key: str) -> str | None:
        """The only value that the label may have, or None when several would do."""
        for each in self.requirements:
            if each.key == key and each.op is Op.IN and len(each.values) == 1:
                return each.values[0]
        return None

    def __str__(self) -> str:
        """The text for a `labelSelector` query parameter.

        Raises:
            ValueError: the selector matches nothing, which a text cannot express.
        """
        if self.nothing:
            raise ValueError("a selector that matches nothing has no text")
        return ",".join(str(each) for each in self.requirements)


EVERYTHING = Selector()
NOTHING = Selector(nothing=True)


def expression(raw: Mapping[str, Any], ops: frozenset[Op] = LABEL_SELECTOR_OPS) -> Requirement:
    """One entry of `matchExpressions`.

    Raises:
        InvalidSelector: the operator is not among `ops`, or key or values do not fit.
    """
    operator = next((op for op in ops if op.value == raw.get("operator")), None)
    if operator is None:
        raise InvalidSelector(f"{raw.get('operator')!r} is not a valid label selector operator")
    return Requirement(raw.get("key") or "", operator, raw.get("values") or ())


def from_label_selector(raw: Mapping[str, Any] | None) -> Selector:
    """The selector of a raw `metav1.LabelSelector`: None selects nothing, `{}` everything.

    Raises:
        InvalidSelector: an operator, a key or a value is not allowed.
    """
    if raw is None:
        return NOTHING
    labels: Mapping[str, str] = raw.get("matchLabels") or {}
    return Selector(
        [Requirement(key, Op.IN, (value,)) for key, value in labels.items()]
        + [expression(each) for each in raw.get("matchExpressions") or ()]
    )


def from_expressions(raw: Iterable[Mapping[str, Any]]) -> Selector:
    """The conjunction of a node selector term's `matchExpressions`.

    No expressions select everything; that an empty *term* selects nothing is the caller's rule.

    Raises:
        InvalidSelector: an operator, a key or a value is not allowed.
    """
    return Selector([expression(each, NODE_SELECTOR_OPS) for each in raw])


def from_labels(labels: Mapping[str, str]) -> Selector:
    """The selector of a plain map, for example a `nodeSelector`."""
    return Selector([Requirement(key, Op.IN, (value,)) for key, value in labels.items()])


def parse_label_selector(text: str) -> Selector:
    """The selector of a `labelSelector` query parameter, for example `a=b,c in (d,e),!f`.

    Raises:
        InvalidSelector: the text is not a label selector.
    """
    return _SelectorParser(text).selector()


_FIRST = "!, identifier, or 'end of string'"


def _is_word(token: str) -> bool:
    return bool(re.match(r"[^\s=!(),<>]", token))


class _SelectorParser:
    """Recursive descent over the tokens of a label selector."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        end, position = len(text.rstrip()), 0
        while position < end:
            token = _TOKEN.match(text, position)
            assert token is not None
            self._tokens.append(token[1])
            position = token.end()
        self._next = 0

    def selector(self) -> Selector:
        requirements = []
        if self._peek():
            requirements.append(self._requirement())
        while self._peek():
            self._expect(",", "',' or 'end of string'")
            requirements.append(self._requirement("identifier after ','"))
        return Selector(requirements)

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._next += 1
        return token

    def _expect(self, token: str, expected: str) -> None:
        actual = self._take()
        if actual != token:
            raise self._error(actual, expected)

    @staticmethod
    def _error(actual: str, expected: str) -> InvalidSelector:
        return InvalidSelector(
            f"unable to parse requirement: found '{actual}', expected: {expected}"
        )

    def _word(self, expected: str = "identifier") -> str:
        word = self._take()
        if not _is_word(word):
            raise self._error(word, expected)
        return word

    def _requirement(self, first: str = _FIRST) -> Requirement:
        if self._peek() == "!":
            self._take()
            return Requirement(self._word(), Op.DOES_NOT_EXIST)
        if not _is_word(self._peek()):
            raise InvalidSelector(f"found '{self._peek()}', expected: {first}")
        key = self._take()
        if self._peek() in ("", ","):
            return Requirement(key, Op.EXISTS)
        op = self._take()
        if op in ("=", "==", "!="):
            value = "" if self._peek() in ("", ",") else self._word()
            return Requirement(key, Op.NOT_IN if op == "!=" else Op.IN, (value,))
        if op in ("<", ">"):
            return Requirement(key, Op.GT if op == ">" else Op.LT, (self._word(),))
        if op in ("in", "notin"):
            return Requirement(key, Op.IN if op == "in" else Op.NOT_IN, self._values())
        raise self._error(op, "in, notin, =, ==, !=, gt, lt")

    def _values(self) -> tuple[str, ...]:
        if (token := self._take()) != "(":
            raise InvalidSelector(f"unable to parse requirement: found '{token}' expected: '('")
        expected = "',', ')' or identifier"
        values = [""] if self._peek() in (",", ")") else [self._word(expected)]
        while self._peek() == ",":
            self._take()
            values.append("" if self._peek() in (",", ")") else self._word(expected))
        self._expect(")", "',' or ')'")
        return tuple(values)
