"""Converts raw JSON objects to typed values and back.

One internal model, spelled like `v1beta2`; objects of `v1beta1` are converted on the way in and,
when asked for, on the way out. Fields that a class does not know are kept in `extra`, at every
level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin

import attrs
import orjson
from cattrs import ClassValidationError, Converter, IterableValidationError
from cattrs.errors import AttributeValidationNote, IterableValidationNote
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from kueuelib.api.conversion import convert
from kueuelib.api.kinds import KUEUE, V1BETA1, V1BETA2
from kueuelib.api.meta import KubeObject, Obj, format_micro_time, format_time, parse_time
from kueuelib.api.models import ModelPart, decode_as, encode_model
from kueuelib.api.quantity import Quantity
from kueuelib.api.struct import (
    Extra,
    MicroTime,
    Struct,
    Time,
    WireField,
    defaults_of,
    json_name,
    naming_times,
    stated_in,
)
from kueuelib.errors import FieldError, InvalidObject, InvalidQuantity

T = TypeVar("T", bound=Struct | ModelPart)

_ONE_OF = "one of "
_EXTRA = " extra"
"""Carries unknown fields into the generated function; no field has this name."""


class _WrongType(Exception):
    """A value of the wrong JSON type.

    Attributes:
        suffix: the map key, in brackets, when the value is inside a map.
    """

    def __init__(self, wanted: str, value: object, suffix: str = "") -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.value = value
        self.suffix = suffix


def decode(cls: type[T], obj: Obj) -> T:
    """The typed value of a raw object or of a piece of one; the object is not changed.

    Args:
        cls: the class of the object, for example `Workload`, or a model of kubernetes_asyncio.
        obj: the raw form, with which the value may share parts. Objects and arrays in it may be
            typed already. `apiVersion` says which version a queueing object is in; without it,
            `v1beta2` is assumed.

    Raises:
        InvalidObject: a field has the wrong type, a required field is missing, or the object is of
            another kind or of an unknown version. Every bad field is named.
    """
    if not isinstance(obj, dict):
        raise InvalidObject(cls.__name__, "", [_type_error("", _WrongType("object", obj))])
    if not issubclass(cls, Struct):
        return decode_as(cls, obj)
    if issubclass(cls, KubeObject):
        obj = _at_internal_version(cls, obj)
    try:
        return _converter.structure(obj, cls)
    except Exception:  # noqa: BLE001 - it does not say where; this one raises it again if it must
        return _explained(cls, obj)


def _explained(cls: type[T], obj: Obj) -> T:
    try:
        return _explaining().structure(obj, cls)
    except ClassValidationError as error:
        raise InvalidObject(cls.__name__, _name_of(obj), list(_field_errors(error, ""))) from None


def encode(value: Struct | ModelPart, version: str = V1BETA2) -> Obj:
    """The raw form of a typed value.

    Optional fields with their default value are left out.

    Args:
        value: an object, or a piece of one, which is always written in `v1beta2`; also a model of
            kubernetes_asyncio.
        version: the version of a queueing object; other kinds have only one.
    """
    if not isinstance(value, Struct):
        return encode_model(value)
    raw: Obj = _converter.unstructure(value)
    if not isinstance(value, KubeObject):
        return raw
    resource = value.resource
    obj = {"apiVersion": resource.api_version, "kind": resource.kind, **raw}
    if resource.group == KUEUE and version != resource.version:
        return convert(obj, version)
    return obj


def _at_internal_version(cls: type[KubeObject], obj: Obj) -> Obj:
    resource = cls.resource
    kind = obj.get("kind", resource.kind)
    if kind != resource.kind:
        problem = FieldError(
            "kind", "FieldValueInvalid", f"Invalid value: {_json(kind)}: must be {resource.kind}"
        )
        raise InvalidObject(resource.kind, _name_of(obj), [problem])
    version = obj.get("apiVersion", resource.api_version)
    if version == resource.api_version:
        return obj
    if resource.group == KUEUE and version == f"{KUEUE}/{V1BETA1}":
        return convert(obj, V1BETA2)
    known = [resource.api_version]
    if resource.group == KUEUE:
        known.insert(0, f"{KUEUE}/{V1BETA1}")
    problem = FieldError(
        "apiVersion",
        "FieldValueNotSupported",
        f"Unsupported value: {_json(version)}: supported values: {', '.join(map(_json, known))}",
    )
    raise InvalidObject(resource.kind, _name_of(obj), [problem])


def _name_of(obj: Obj) -> str:
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


# ---- errors


def _json(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return repr(value)


_TYPE_NAMES = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"))


def _type_name(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list | tuple):
        return "array"
    return next((name for kind, name in _TYPE_NAMES if isinstance(value, kind)), "unknown")


def _type_error(path: str, error: _WrongType) -> FieldError:
    path = (path + error.suffix).lstrip(".")
    if error.wanted.startswith(_ONE_OF):
        text = f"Unsupported value: {_json(error.value)}: supported values: "
        return FieldError(path, "FieldValueNotSupported", text + error.wanted[len(_ONE_OF) :])
    if error.wanted in ("quantity", "date-time"):
        text = f"Invalid value: {_json(error.value)}: must be a {error.wanted}"
        return FieldError(path, "FieldValueInvalid", text)
    actual = _type_name(error.value)
    text = f'Invalid value: "{actual}": {path} in body must be of type {error.wanted}: "{actual}"'
    return FieldError(path, "FieldValueTypeInvalid", text)


def _field_errors(error: BaseException, path: str) -> list[FieldError]:
    """Every bad field below an error of cattrs; `path` is where the error's value sits."""
    if isinstance(error, _WrongType):
        return [_type_error(path, error)]
    if isinstance(error, KeyError):
        return [FieldError(path.lstrip("."), "FieldValueRequired", "Required value")]
    if not isinstance(error, ClassValidationError | IterableValidationError):
        raise error
    names = _json_names(error.cl) if isinstance(error, ClassValidationError) else {}
    errors: list[FieldError] = []
    for inner in error.exceptions:
        step = ""
        for note in getattr(inner, "__notes__", ()):
            if isinstance(note, AttributeValidationNote):
                step = f".{names.get(note.name, note.name)}"
            elif isinstance(note, IterableValidationNote):
                step = f"[{note.index}]"
        errors += _field_errors(inner, path + step)
    return errors


def _json_names(cls: type) -> dict[str, str]:
    return {field.name: json_name(field) for field in attrs.fields(cls)}


# ---- structuring


def _strict(kind: type, wanted: str) -> Callable[[Any, Any], Any]:
    def structure(value: Any, _: Any) -> Any:
        if type(value) is kind:
            return value
        raise _WrongType(wanted, value)

    return structure


def _integer(value: Any, _: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise _WrongType("integer", value)


def _quantity(value: Any, _: Any = None) -> Quantity:
    try:
        return Quantity.parse(value)
    except InvalidQuantity:
        raise _WrongType("quantity", value) from None


def _time(value: Any, _: Any = None) -> float:
    if isinstance(value, str):
        try:
            return parse_time(value)
        except ValueError:
            raise _WrongType("date-time", value) from None
    raise _WrongType("date-time", value)


def _number(value: Any, _: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise _WrongType("number", value)


def _literal(value: Any, kind: Any) -> Any:
    if type(value) is str and value in get_args(kind):
        return value
    raise _WrongType(_ONE_OF + ", ".join(map(_json, get_args(kind))), value)


def _strings(value: Any, _: Any) -> Any:
    if type(value) is not dict:
        raise _WrongType("object", value)
    for key, item in value.items():
        if type(item) is not str:
            raise _WrongType("string", item, f"[{key}]")
    return value


def _quantities(value: Any, _: Any) -> Any:
    if type(value) is not dict:
        raise _WrongType("object", value)
    quantities = {}
    for key, item in value.items():
        try:
            quantities[key] = Quantity.parse(item)
        except InvalidQuantity:
            raise _WrongType("quantity", item, f"[{key}]") from None
    return quantities


def _anything(value: Any, _: Any) -> Any:
    if type(value) is not dict:
        raise _WrongType("object", value)
    return value


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _is_literal(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _tuple_factory(kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    item = get_args(kind)[0]
    structure = converter.get_structure_hook(item)

    def structured(value: list[Any]) -> Any:
        return tuple([structure(one, item) for one in value])

    def explained(value: list[Any]) -> Any:
        made: list[Any] = []
        errors: list[Exception] = []
        for index, one in enumerate(value):
            try:
                made.append(structure(one, item))
            except (_WrongType, KeyError, ClassValidationError, IterableValidationError) as error:
                note = IterableValidationNote(f"item {index}", index, item)
                error.__notes__ = [*getattr(error, "__notes__", ()), note]
                errors.append(error)
        if errors:
            raise IterableValidationError("bad items", errors, kind)
        return tuple(made)

    items = explained if converter.detailed_validation else structured

    def structure_tuple(value: Any, _: Any) -> Any:
        if type(value) is list:
            return items(value)
        if type(value) is tuple:
            return value
        raise _WrongType("array", value)

    return structure_tuple


def _struct_factory(cls: type, converter: Converter) -> Callable[[Any, Any], Any]:
    defaults = defaults_of(cls)
    fields = attrs.fields(attrs.resolve_types(cls))
    names = {field.name: json_name(field) for field in fields if field.name != "extra"}
    overrides = {name: override(rename=json) for name, json in names.items()}
    overrides["extra"] = override(rename=_EXTRA)
    detailed = converter.detailed_validation
    options: dict[str, Any] = {"_cattrs_detailed_validation": detailed, **overrides}
    base: Callable[[Any, Any], Any] = make_dict_structure_fn(cls, converter, **options)
    known = frozenset(names.values())
    ignored = frozenset(("apiVersion", "kind")) if issubclass(cls, KubeObject) else frozenset[str]()
    all_known = known | ignored

    def structure(value: Any, kind: Any) -> Any:
        if type(value) is not dict:
            if type(value) is cls:
                return value
            raise _WrongType("object", value)
        given = value
        if None in value.values():
            value = {
                key: item for key, item in value.items() if item is not None or key not in known
            }
        if not value.keys() <= all_known:
            unknown = {key: item for key, item in value.items() if key not in all_known}
            value = {**value, _EXTRA: unknown}
        made = base(value, kind)
        if defaults and (stated := stated_in(made, given, defaults)):
            object.__setattr__(made, "extra", Extra(made.extra, stated))
        return made

    return structure


# ---- unstructuring


def _unstruct_factory(cls: type, converter: Converter) -> Callable[[Any], Any]:
    overrides: dict[str, Any] = {}
    for field in attrs.fields(attrs.resolve_types(cls)):
        wire: WireField | None = field.metadata.get("wire")
        optional = field.default is not attrs.NOTHING and not (wire is not None and wire.always)
        overrides[field.name] = override(rename=json_name(field), omit_if_default=optional)
    overrides["extra"] = override(omit=True)
    base: Callable[[Any], Obj] = make_dict_unstructure_fn(cls, converter, **overrides)
    base = naming_times(cls, base)

    def unstructure(value: Any) -> Any:
        raw = base(value)
        if value.extra:
            raw.update(value.extra)
        return {**value.extra.stated, **raw} if isinstance(value.extra, Extra) else raw

    return unstructure


def _untuple_factory(kind: Any, converter: Converter) -> Callable[[Any], Any]:
    unstructure = converter.get_unstructure_hook(get_args(kind)[0])
    return lambda value: [unstructure(one) for one in value]


def _build(*, explains: bool) -> Converter:
    """A converter for our classes.

    Args:
        explains: whether it finds every bad field of an object, with its path, and takes longer.
    """
    converter = Converter(detailed_validation=explains)
    for kind, name in ((str, "string"), (bool, "boolean")):
        converter.register_structure_hook(kind, _strict(kind, name))
    converter.register_structure_hook(int, _integer)
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook_func(_is_literal, _literal)
    converter.register_structure_hook(Quantity, _quantity)
    converter.register_unstructure_hook(Quantity, str)
    converter.register_structure_hook_func(lambda kind: kind in (Time, MicroTime), _time)
    converter.register_unstructure_hook_func(lambda kind: kind == Time, format_time)
    converter.register_unstructure_hook_func(lambda kind: kind == MicroTime, format_micro_time)
    strings, quantities, anything = Mapping[str, str], Mapping[str, Quantity], Mapping[str, Any]
    converter.register_structure_hook_func(lambda kind: kind == strings, _strings)
    converter.register_structure_hook_func(lambda kind: kind == quantities, _quantities)
    converter.register_structure_hook_func(lambda kind: kind == anything, _anything)
    converter.register_unstructure_hook_func(lambda kind: kind in (strings, anything), dict)
    converter.register_unstructure_hook_func(
        lambda kind: kind == quantities,
        lambda value: {key: str(item) for key, item in value.items()},
    )
    converter.register_structure_hook_factory(_is_tuple, _tuple_factory)
    converter.register_unstructure_hook_factory(_is_tuple, _untuple_factory)
    converter.register_structure_hook_factory(_is_struct, _struct_factory)
    converter.register_unstructure_hook_factory(_is_struct, _unstruct_factory)
    return converter


_converter = _build(explains=False)


@cache
def _explaining() -> Converter:
    return _build(explains=True)
