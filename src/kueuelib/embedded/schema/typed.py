"""What the types of a built-in kind do to an object: wrong types are refused, unknown fields go.

Null means absent, as everywhere in Kubernetes: fields that are null are dropped, and nulls in
lists and maps become the zero of their type.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import string
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final

import attrs

from kueuelib.api.meta import Obj, parse_time
from kueuelib.embedded.builtins.resources import canonical
from kueuelib.embedded.schema.messages import Field, exists, json_fields, message_name
from kueuelib.embedded.schema.mismatch import Mismatch, json_type
from kueuelib.embedded.schema.written import fill, set_defaults, zero
from kueuelib.errors import BadRequest, FieldError, InvalidQuantity

_OTHERWISE: Final = ("apiextensions.", "apiregistration.")
"""Their objects are as their own rules leave them."""
SCHEMA_PROPS: Final = "apiextensions.JSONSchemaProps"
_HEAD: Final = ("apiVersion", "kind", "metadata")
_ZEROS: Final[Mapping[str, Any]] = {"s": "", "i": 0, "l": 0, "b": False, "B": "", "q": "0", "n": 0}

_BASE64: Final = frozenset(f"{string.ascii_letters}{string.digits}+/=\r\n")

Visit = Callable[[Any, str, str, "Walk"], Any]
"""From a value, its path with and without indices, and the walk, to the value that is kept."""


@attrs.define
class Walk:
    """One object on its way through its types.

    Attributes:
        kind: of the object, for messages.
        version: of the object, for messages.
        unknown: the paths of removed fields.
    """

    kind: str
    version: str
    unknown: list[str] = attrs.field(factory=list)

    def wrong(self, text: str) -> BadRequest:
        """The failure of the whole object."""
        return BadRequest(
            f'{self.kind} in version "{self.version}" cannot be handled as a {self.kind}: {text}'
        )

    def mismatch(self, value: Any, path: str, where: str, wanted: str) -> Mismatch:
        """The failure of a field with a value of another type."""
        text = self.wrong(
            f"json: cannot unmarshal {_json_type(value, wanted)} into Go struct field {where} "
            f"of type {wanted}"
        )
        return Mismatch(text.message, path, wanted, value)


def _json_type(value: Any, wanted: str) -> str:
    """A number is shown only where another number is wanted."""
    number = isinstance(value, float) and wanted.startswith(("int", "float"))
    return f"number {value}" if number and "." not in wanted else json_type(value)


# ---- scalars


@cache
def _text(go_type: str) -> Visit:
    def visit(value: Any, path: str, where: str, walk: Walk) -> Any:
        if type(value) is not str:
            raise walk.mismatch(value, path, where, go_type)
        return value

    return visit


def _boolean(value: Any, path: str, where: str, walk: Walk) -> Any:
    if type(value) is not bool:
        raise walk.mismatch(value, path, where, "bool")
    return value


def _integer(bits: int) -> Visit:
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


def _number(value: Any, path: str, where: str, walk: Walk) -> Any:
    if type(value) not in (int, float):
        raise walk.mismatch(value, path, where, "float64")
    return value


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
            raise walk.mismatch(value, path, where, "time.Time")
        try:
            parse_time(value)
        except ValueError as error:
            text = json.dumps(value)
            raise walk.wrong(
                f'parsing time {text} as "2006-01-02T15:04:05{fraction}Z07:00": '
                f'cannot parse {text} as "2006"'
            ) from error
        return value

    return visit


def _bad_byte(text: str) -> int:
    """Where Go stops to read base64: at a strange letter, at misplaced padding or at the end."""
    for at, letter in enumerate(text):
        if letter not in _BASE64 or (letter == "=" and at % 4 < 2):
            return at
    return len(text) - len(text) % 4


def _bytes(value: Any, path: str, where: str, walk: Walk) -> Any:
    if type(value) is not str:
        raise walk.mismatch(value, path, where, "[]uint8")
    try:
        base64.b64decode(value.replace("\n", ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise walk.wrong(f"illegal base64 data at input byte {_bad_byte(value)}") from error
    return value


def _int_or_text(value: Any, path: str, where: str, walk: Walk) -> Any:
    if type(value) not in (int, str):
        raise walk.mismatch(value, path, where, "intstr.IntOrString")
    return value


def _any(value: Any, _: str, __: str, ___: Walk) -> Any:
    return value


def _map_only(value: Any, path: str, where: str, walk: Walk) -> Any:
    if type(value) is not dict:
        raise walk.mismatch(value, path, where, "v1.FieldsV1")
    return value


def _schema(value: Any, path: str, where: str, walk: Walk) -> Any:
    if type(value) is bool:
        return value
    if type(value) is list:
        return [_schema(each, f"{path}[{i}]", where, walk) for i, each in enumerate(value)]
    return _message(SCHEMA_PROPS)(value, path, where, walk)


_SCALARS: Final[Mapping[str, Visit]] = {
    "b": _boolean,
    "n": _number,
    "q": _quantity,
    "t": _time(""),
    "u": _time(".000000"),
    "B": _bytes,
    "o": _int_or_text,
    "r": _any,
    "F": _map_only,
    "S": _schema,
}


# ---- everything else


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
        return _integer(field.bits)
    if field.type == "s":
        return _text(field.named or "string")
    if field.type in _SCALARS:
        return _SCALARS[field.type]
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
        if type(value) is not dict:
            raise walk.mismatch(value, path, where, wanted)
        for key, each in value.items():
            if each is None:
                if zero is not None:
                    value[key] = {} if zero == {} else zero
            else:
                value[key] = inner(each, f"{path}.{key}", where, walk)
        return value

    return visit


@cache
def _fields(message: str) -> Mapping[str, Visit]:
    return {field.name: _visit(field) for field in json_fields(message)}


@cache
def _raw_fields(message: str) -> frozenset[str]:
    return frozenset(field.name for field in json_fields(message) if field.type in ("r", "F"))


def _message(message: str) -> Visit:
    short = message.rpartition(".")[2]

    def visit(value: Any, path: str, where: str, walk: Walk) -> Any:
        if type(value) is not dict:
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
        visit = known.get(name)
        if visit is None:
            walk.unknown.append(f"{path}.{name}" if path else name)
            dropped.append(name)
        elif each is None:
            if name not in _raw_fields(message):
                dropped.append(name)
        else:
            inner = f"{path}.{name}" if path else name
            where = f"{short}.{bare}.{name}" if bare else f"{short}.{name}"
            value[name] = visit(each, inner, where, walk)
    for name in dropped:
        del value[name]
    return value


_read_metadata: Final = _message("meta.ObjectMeta")


def read_metadata(given: Any, path: str, where: str, walk: Walk) -> Obj:
    """Metadata of the right types, without what is unknown, null or empty; changed in place.

    Args:
        given: the metadata.
        path: of it.
        where: the same as Go tells it.
        walk: notes unknown fields.

    Raises:
        BadRequest: a field has the wrong type.
    """
    meta: Obj = _read_metadata({} if given is None else given, path, where, walk)
    for name in ("labels", "annotations", "finalizers", "ownerReferences"):
        if not meta.get(name, True):
            del meta[name]
    if "finalizers" in meta:
        meta["finalizers"] = list(dict.fromkeys(meta["finalizers"]))
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
        """The types of a kind, None when they are not known."""
        name = message_name(group, kind)
        return cls(name, version) if exists(name) else None

    def prune(self, obj: Obj) -> list[str]:
        """Removes unknown fields and nulls in place, and gives the paths of the unknown ones.

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
        """Fills in what a client may leave out."""
        if not self.message.startswith(_OTHERWISE):
            set_defaults(self.message, obj)

    def fill(self, obj: Obj) -> None:
        """Makes a defaulted object what Go writes."""
        if not self.message.startswith(_OTHERWISE):
            fill(self.message, obj)

    def zero(self) -> Obj:
        """An object to which nothing was written."""
        return zero(self.message)

    def validate(self, obj: Obj, old: Obj | None = None) -> list[FieldError]:
        """Types were looked at already."""
        del obj, old
        return []
