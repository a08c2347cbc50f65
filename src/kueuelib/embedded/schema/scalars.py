"""Scalar values of built-in kinds: texts, numbers, times, each by its type."""

from __future__ import annotations

import base64
import binascii
import contextlib
import string
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import attrs

from kueuelib.embedded.builtins.resources import canonical
from kueuelib.embedded.schema import times
from kueuelib.embedded.schema.mismatch import Mismatch, json_type
from kueuelib.errors import BadRequest, InvalidQuantity

_NO_LINES: Final = str.maketrans("", "", "\r\n")
_BASE64: Final = frozenset(f"{string.ascii_letters}{string.digits}+/=\r\n")

Visit = Callable[[Any, str, str, "Walk"], Any]
"""A function from a value, its path with and without indices, and the walk, to the stored value."""


@attrs.define
class Walk:
    """The traversal of one object by its types.

    Attributes:
        kind: of the object, for messages.
        version: of the object, for messages.
        unknown: the paths of removed fields.
    """

    kind: str
    version: str
    unknown: list[str] = attrs.field(factory=list)

    def wrong(self, text: str) -> BadRequest:
        """The error of the whole object."""
        return BadRequest(
            f'{self.kind} in version "{self.version}" cannot be handled as a {self.kind}: {text}'
        )

    def mismatch(self, value: Any, path: str, where: str, wanted: str, type_: str = "") -> Mismatch:
        """The error of a field with a value of the wrong type; `type_` is the expected type."""
        text = self.wrong(
            f"json: cannot unmarshal {_json_type(value, wanted)} into Go struct field {where} "
            f"of type {wanted}"
        )
        return Mismatch(text.message, path, type_ or wanted, value)


def _json_type(value: Any, wanted: str) -> str:
    """The JSON type in messages; a number is shown only if another number is expected."""
    number = isinstance(value, float) and wanted.startswith(("int", "float"))
    return f"number {value}" if number and "." not in wanted else json_type(value)


@cache
def exactly(go_type: str, *types: type) -> Visit:
    """A value of one of these types, with the name that they have together in Go."""

    def visit(value: Any, path: str, where: str, walk: Walk) -> Any:
        if type(value) not in types:
            raise walk.mismatch(value, path, where, go_type)
        return value

    return visit


def integer(bits: int) -> Visit:
    """A whole number of that size."""
    limit = 2 ** (bits - 1)

    def visit(value: Any, path: str, where: str, walk: Walk) -> Any:
        if type(value) is not int:
            raise walk.mismatch(value, path, where, f"int{bits}")
        if not -limit <= value < limit:
            raise walk.wrong(
                f"json: cannot unmarshal number {value} into Go struct field {where} "
                f"of type int{bits}"
            )
        return value

    return visit


def _quantity(value: Any, _: str, __: str, walk: Walk) -> Any:
    if type(value) in (int, float, str):
        with contextlib.suppress(InvalidQuantity):
            return canonical(value if isinstance(value, int) else str(value))
    raise walk.wrong(
        "quantities must match the regular expression "
        "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )


def _time(fraction: str) -> Visit:
    def visit(value: Any, path: str, where: str, walk: Walk) -> Any:
        if type(value) is not str:
            raise walk.mismatch(value, path, where, "string", "time.Time")
        if why := times.problem(value, fraction):
            raise walk.wrong(why)
        return value

    return visit


def _bad_byte(text: str) -> int:
    """Where Go stops reading base64: at an invalid character, at misplaced padding or at the
    end.
    """
    for at, letter in enumerate(text):
        if letter not in _BASE64 or (letter == "=" and at % 4 < 2):
            return at
    return len(text) - len(text) % 4


def _bytes(value: Any, path: str, where: str, walk: Walk) -> Any:
    if type(value) is not str:
        raise walk.mismatch(value, path, where, "[]uint8")
    try:
        plain = value.translate(_NO_LINES)
        base64.b64decode(plain, validate=True)
    except (binascii.Error, ValueError) as error:
        raise walk.wrong(f"illegal base64 data at input byte {_bad_byte(value)}") from error
    return plain


def _int_or_text(value: Any, path: str, where: str, walk: Walk) -> Any:
    return value if type(value) is str else integer(32)(value, path, where, walk)


SCALARS: Final[Mapping[str, Visit]] = {
    "b": exactly("bool", bool),
    "n": exactly("float64", int, float),
    "q": _quantity,
    "t": _time(""),
    "u": _time(times.MICROSECONDS),
    "B": _bytes,
    "o": _int_or_text,
    "r": lambda value, *_: value,
    "F": exactly("v1.FieldsV1", dict),
}
