"""Applies the types of a built-in kind to an object: refuses wrong types, removes unknown fields.

Null means absent, as everywhere in Kubernetes: fields that are null are dropped, and nulls in
lists and maps become the zero of their type.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import attrs

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.resources import canonical
from kueuelib.embedded.schema.formats import MICROSECONDS, problem
from kueuelib.embedded.schema.messages import Field, exists, json_fields, message_name, own_fields
from kueuelib.embedded.schema.mismatch import Mismatch, json_type
from kueuelib.embedded.schema.written import fill, set_defaults, zero
from kueuelib.errors import BadRequest, FieldError, InvalidQuantity

# ---- scalar values of built-in kinds: texts, numbers, times, each by its type --------------------

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
        if why := problem(value, fraction):
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
    "u": _time(MICROSECONDS),
    "B": _bytes,
    "o": _int_or_text,
    "r": lambda value, *_: value,
    "F": exactly("v1.FieldsV1", dict),
}


# --------------------------------------------------------------------------------------------------

_OTHERWISE: Final = ("apiextensions.", "apiregistration.")
"""Kinds whose objects are only changed by their own rules."""
SCHEMA_PROPS: Final = "apiextensions.JSONSchemaProps"
_HEAD: Final = ("apiVersion", "kind", "metadata")
_ZEROS: Final[Mapping[str, Any]] = {"s": "", "i": 0, "l": 0, "b": False, "B": "", "q": "0", "n": 0}


def _schema(value: Any, path: str, where: str, walk: Walk) -> Any:
    if type(value) is bool:
        return value
    if type(value) is list:
        return [_schema(each, f"{path}[{i}]", where, walk) for i, each in enumerate(value)]
    return _message(SCHEMA_PROPS)(value, path, where, walk)


@cache
def _visit(field: Field) -> Visit:
    inner = _value(field)
    if field.form == "+":
        return _list(inner, field)
    if field.form == "%":
        return _map(inner, field)
    return inner


def _value(field: Field) -> Visit:
    if field.type in ("i", "l"):
        return integer(field.bits)
    if field.type == "s":
        return exactly(field.named or "string", str)
    if field.type == "S":
        return _schema
    if field.type in SCALARS:
        return SCALARS[field.type]
    if field.type.startswith("&"):
        plain = Field(0, field.name, "+", field.type[1:])
        return _visit(plain)
    return _message(field.type)


def _go_type(field: Field) -> str:
    names = {
        "s": field.named or "string",
        "i": "int32",
        "l": "int64",
        "b": "bool",
        "q": "resource.Quantity",
    }
    if field.type in names:
        return names[field.type]
    return f"v1.{field.type.rpartition('.')[2]}" if field.message else "interface {}"


def _list(inner: Visit, field: Field) -> Visit:
    zero = {} if field.message else _ZEROS.get(field.type)
    wanted = f"[]{_go_type(field)}"

    def visit(value: Any, path: str, where: str, walk: Walk) -> Any:
        if type(value) is not list:
            raise walk.mismatch(value, path, where, wanted)
        for i, each in enumerate(value):
            if each is None:
                if zero is not None:
                    value[i] = {} if zero == {} else zero
            else:
                value[i] = inner(each, f"{path}[{i}]", where, walk)
        return value

    return visit


def _map(inner: Visit, field: Field) -> Visit:
    zero = {} if field.message else _ZEROS.get(field.type)
    wanted = "v1.ResourceList" if field.type == "q" else f"map[string]{_go_type(field)}"

    def visit(value: Any, path: str, where: str, walk: Walk) -> Any:
        if not isinstance(value, dict):
            raise walk.mismatch(value, path, where, wanted)
        if len(value) > 1:
            value = dict(sorted(value.items()))
        for key, each in value.items():
            if each is None:
                if zero is not None:
                    value[key] = {} if zero == {} else zero
            else:
                value[key] = inner(each, f"{path}.{key}", where, walk)
        return value

    return visit


@cache
def _fields(message: str) -> Mapping[str, tuple[Visit, str]]:
    """How to visit each field, with its path in Go's messages."""
    visits = {}
    for field in own_fields(message):
        if field.form == "^":
            outer = field.type.rpartition(".")[2]
            for name, (visit, where) in _fields(field.type).items():
                visits[name] = visit, f"{outer}.{where}"
        else:
            visits[field.name] = _visit(field), field.name
    return visits


@cache
def _raw_fields(message: str) -> frozenset[str]:
    return frozenset(field.name for field in json_fields(message) if field.type in ("r", "F"))


def _message(message: str) -> Visit:
    short = message.rpartition(".")[2]

    def visit(value: Any, path: str, where: str, walk: Walk) -> Any:
        if not isinstance(value, dict):
            raise walk.mismatch(value, path, where, f"v1.{short}")
        bare = where.partition(".")[2]
        return _walk_fields(message, short, value, path, bare, walk)

    return visit


def _walk_fields(
    message: str, short: str, value: Obj, path: str, bare: str, walk: Walk, *, root: bool = False
) -> Obj:
    known = _fields(message)
    dropped = []
    for name, each in value.items():
        if root and name in _HEAD:
            continue
        visit, within = known.get(name, (None, ""))
        if visit is None:
            walk.unknown.append(f"{path}.{name}" if path else name)
            dropped.append(name)
        elif each is None:
            if name not in _raw_fields(message):
                dropped.append(name)
        else:
            inner = f"{path}.{name}" if path else name
            where = f"{short}.{bare}.{within}" if bare else f"{short}.{within}"
            value[name] = visit(each, inner, where, walk)
    for name in dropped:
        del value[name]
    return value


_read_metadata: Final = _message("meta.ObjectMeta")


def read_metadata(given: Any, path: str, where: str, walk: Walk) -> Obj:
    """Metadata of the right types, without unknown, null and empty fields; changed in place.

    Args:
        given: the metadata.
        path: of it.
        where: the same as Go writes it.
        walk: collects unknown fields.

    Raises:
        BadRequest: a field has the wrong type.
    """
    meta: Obj = _read_metadata({} if given is None else given, path, where, walk)
    for name in ("labels", "annotations", "finalizers", "ownerReferences"):
        if not meta.get(name, True):
            del meta[name]
    return meta


@attrs.frozen(eq=False)
class TypedSchema:
    """The types of one built-in kind.

    Attributes:
        message: their name.
        version: the API version, for messages.
    """

    message: str
    version: str

    @classmethod
    def of(cls, group: str, kind: str, version: str = "v1") -> TypedSchema | None:
        """The types of a kind; None if they are not known."""
        name = message_name(group, kind)
        return cls(name, version) if exists(name) else None

    def prune(self, obj: Obj) -> list[str]:
        """Removes unknown fields and nulls in place, and returns the paths of the unknown ones.

        Raises:
            BadRequest: a field is of another type.
        """
        kind = self.message.rpartition(".")[2]
        walk = Walk(kind, self.version)
        _walk_fields(self.message, kind, obj, "", "", walk, root=True)
        return walk.unknown

    def embedded(self, obj: Obj) -> Iterable[tuple[str, Obj]]:
        """There are no embedded objects."""
        del obj
        return ()

    def default(self, obj: Obj) -> None:
        """Fills in defaults."""
        if not self.message.startswith(_OTHERWISE):
            set_defaults(self.message, obj)

    def fill(self, obj: Obj) -> None:
        """Turns a defaulted object into the form that Go writes."""
        if not self.message.startswith(_OTHERWISE):
            meta = dict(obj["metadata"])
            fill(self.message, obj)
            obj["metadata"] = meta

    def zero(self) -> Obj:
        """An empty object."""
        return zero(self.message)

    def validate(
        self, obj: Obj, old: Obj | None = None, known: Sequence[FieldError] = ()
    ) -> list[FieldError]:
        """Does nothing: types were checked already."""
        del obj, old, known
        return []
