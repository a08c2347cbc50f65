"""The parts of typed API values: the base class, times, and the wire form of fields.

A class describes its JSON form once: names are the camel case of the attributes, `wire` adds what
the schema needs. `kueuelib.api.codec` and `kueuelib.api.crd` read it.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping
from datetime import date
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import attrs

from kueuelib.errors import ConfigError

Time = Annotated[float, "Time"]
"""Seconds since the epoch; RFC 3339 with whole seconds on the wire."""

MicroTime = Annotated[float, "MicroTime"]
"""Seconds since the epoch; RFC 3339 with six digits on the wire."""

NOTHING: Final[Mapping[str, Any]] = {}
"""The shared empty mapping; never changed."""

UNSET: Final = object()
"""No default in the schema."""


class Extra(dict[str, Any]):
    """The fields of a decoded object that its class does not know.

    Attributes:
        stated: the JSON of fields that have their default value, but are written all the same: the
            object has them, and the API may take an absent field for another value.
    """

    __slots__ = ("stated",)

    def __init__(self, unknown: Mapping[str, Any], stated: Mapping[str, Any]) -> None:
        super().__init__(unknown)
        self.stated = stated


if TYPE_CHECKING:
    from attrs import frozen as frozen  # noqa: PLC0414 - type checkers know what it does
else:

    def frozen(maybe_cls: type | None = None, **options: Any) -> Any:
        """Make an immutable class of annotated fields, as `attrs.frozen` does.

        Args:
            maybe_cls: the class; None when the decorator is called with options.
            options: those of `attrs.define`, such as `kw_only=True`.

        An assignment raises `FrozenInstanceError`, which names the way to a changed copy. All
        classes share one `__repr__`: a third of the time that attrs takes for a class is for one.

        Raises:
            ConfigError: a field without a default follows one that has a default.
        """
        if maybe_cls is None:
            return lambda cls: frozen(cls, **options)
        shared = options.get("repr", "__repr__" not in vars(maybe_cls))
        try:
            made = attrs.frozen(maybe_cls, **{**options, "repr": False})
        except ValueError as error:
            misplaced = _misplaced(maybe_cls)
            if misplaced is None:
                raise
            raise misplaced from error
        made.__setattr__ = made.__delattr__ = _refuse_change
        if shared:
            made.__repr__ = _shown
        return made


@recursive_repr()
def _shown(value: Any) -> str:
    cls = type(value)
    fields = [
        (each.name, (repr if each.repr is True else each.repr)(getattr(value, each.name)))
        for each in attrs.fields(cls)
        if each.repr
    ]
    name = cls.__qualname__.rpartition(">.")[2]
    return f"{name}({', '.join(f'{key}={text}' for key, text in fields)})"


def _refuse_change(value: Any, name: str, *_: Any) -> None:
    cls = type(value).__name__
    copy = "value.evolve(" if isinstance(value, Struct) else "attrs.evolve(value, "
    error = attrs.exceptions.FrozenInstanceError()
    error.msg = f"{cls}.{name} cannot be set; use the copy that {copy}{name}=...) returns"
    AttributeError.__init__(error, error.msg)  # in attrs 25.1 an assignment to args has no effect
    raise error


def _misplaced(cls: type) -> ConfigError | None:
    """What is wrong with the order of the fields, and the fix; None if nothing is."""
    own = [_as_field(cls, name) for name in inspect.get_annotations(cls) or vars(cls)]
    names = {each.name for each in own if each is not None}
    inherited = next(
        (
            each.name
            for base in filter(attrs.has, cls.__mro__[1:])
            for each in attrs.fields(base)
            if each.default is not attrs.NOTHING and not each.kw_only and each.name not in names
        ),
        "",
    )
    earlier = ""
    for each in own:
        if each is None or each.kw_only or not each.init:
            continue
        if each.default is not attrs.NOTHING:
            earlier = earlier or each.name
        elif inherited or earlier:
            order = "" if inherited else f"move {each.name} before {earlier}, "
            return ConfigError(
                f"class {cls.__qualname__}",
                f"field {each.name} has no default, but follows {inherited or earlier}, "
                "which has one",
                f"{order}write @frozen(kw_only=True), or give {each.name} a default",
            )
    return None


def _as_field(cls: type, name: str) -> attrs.Attribute[Any] | None:
    """A field as attrs would read it; None for what is none."""
    annotations = inspect.get_annotations(cls)
    value = vars(cls).get(name, attrs.NOTHING)
    if not isinstance(value, type(attrs.field())):
        if "ClassVar" in str(annotations.get(name, "ClassVar")):
            return None
        value = attrs.field(default=value)
    field: attrs.Attribute[Any] = attrs.fields(attrs.make_class("Alone", {name: value}))[0]
    return field


@frozen
class Struct:
    """A typed piece of an API object.

    Attributes:
        extra: the JSON fields that the class does not know, kept as they came.
    """

    extra: Mapping[str, Any] = attrs.field(default=NOTHING, kw_only=True)

    def evolve(self, **changes: Any) -> Self:
        """A copy with other values for some fields."""
        if isinstance(self.extra, Extra) and "extra" in changes:
            changes["extra"] = Extra(changes["extra"], self.extra.stated)
        return attrs.evolve(self, **changes)


@attrs.frozen
class WireField:
    """How one field looks on the wire.

    Attributes:
        name: the JSON name; empty for the camel case of the attribute.
        always: written even when it has its default value.
        required: the schema demands the key.
        schema: keywords added to the field's own JSON schema.
        items: keywords added to the schema of the items or values.
        column: the heading of a column that shows the field in `kubectl get`; empty for none.
    """

    name: str = ""
    always: bool = False
    required: bool = False
    schema: Mapping[str, Any] = NOTHING
    items: Mapping[str, Any] = NOTHING
    column: str = ""


_KEYWORDS: Final = frozenset(
    re.findall(
        r"\w+",
        "additionalProperties allOf anyOf default description enum example exclusiveMaximum "
        "exclusiveMinimum externalDocs format items maxItems maxLength maxProperties maximum "
        "minItems minLength minProperties minimum multipleOf not nullable oneOf pattern properties "
        "required title type uniqueItems",
    )
)


def wire(
    name: str = "",
    *,
    always: bool = False,
    required: bool = False,
    keys: tuple[str, ...] = (),
    kind: str = "",
    default: Any = UNSET,
    items: Mapping[str, Any] = NOTHING,
    column: str = "",
    **schema: Any,
) -> dict[str, WireField]:
    """The `metadata` of an attrs field.

    Args:
        name: the JSON name when it is not the camel case of the attribute.
        always: write the field even when it has its default value.
        required: the schema demands the key.
        keys: the map keys of a list of the type `map`.
        kind: `atomic`, `set` or `granular`, the list or map type of the schema.
        default: the default of the schema.
        items: keywords for the schema of the items or values.
        column: the heading of a column that shows the field in `kubectl get`.
        schema: further keywords of JSON schema, such as `maxItems`.

    Raises:
        ConfigError: there is no such keyword in the schemas of CRDs.
    """
    for keyword in schema:
        if keyword not in _KEYWORDS and not keyword.startswith("x-kubernetes-"):
            close = difflib.get_close_matches(keyword, _KEYWORDS, 1)
            fix = f"write {close[0]}" if close else "leave it out"
            raise ConfigError(f"wire({keyword}=...)", "is not a keyword of schemas", fix)
    if keys:
        schema["x-kubernetes-list-type"] = "map"
        schema["x-kubernetes-list-map-keys"] = list(keys)
    if kind:
        schema["kind"] = kind
    if default is not UNSET:
        schema["default"] = default
    return {"wire": WireField(name, always, required, schema, items, column)}


def json_name(field: attrs.Attribute[Any]) -> str:
    """The name of an attribute on the wire."""
    naming = field.metadata.get("wire")
    if naming is not None and naming.name:
        return str(naming.name)
    head, *tail = field.name.split("_")
    return head + "".join(part.capitalize() for part in tail)


_SCALARS: Final = frozenset({bool, int, str})


@attrs.frozen
class Default:
    """The default of an optional field.

    Attributes:
        attribute: the name in the class.
        value: the default.
        returns: whether a field that returns to its default is written: an integer, text or boolean
            without limits in the schema, which might not allow the default.
    """

    attribute: str
    value: Any
    returns: bool


def defaults_of(cls: type) -> dict[str, Default]:
    """The optional fields of a class, by their JSON names.

    None for classes of kueuelib: in their kinds, an absent field has its default value.

    Raises:
        ConfigError: the class is not decorated, or no value of JSON can be of the type of a field.
    """
    if cls.__module__.startswith("kueuelib."):
        return {}
    from kueuelib.api.schema import check_readable

    check_readable(cls)
    optional: dict[str, Default] = {}
    for field in attrs.fields(cls):
        default: Any = field.default
        if field.name == "extra" or default is attrs.NOTHING:
            continue
        if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
            default = UNSET if default.takes_self else default.factory()
        limits = field.metadata.get("wire", WireField()).schema
        returns = type(default) in _SCALARS and not limits
        optional[json_name(field)] = Default(field.name, default, returns)
    return optional


def stated_in(
    made: Struct, given: Mapping[str, Any], defaults: Mapping[str, Default]
) -> dict[str, Any]:
    """The JSON to write for fields of an object that have, or get, their default values.

    A field that had its default is written as it came.
    """
    stated: dict[str, Any] = {}
    for name, raw in given.items():
        default = defaults.get(name)
        if default is None:
            continue
        if getattr(made, default.attribute) == default.value:
            stated[name] = raw
        elif default.returns:
            stated[name] = default.value
    return stated


def naming_times(cls: type, encode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that encodes a class, which refuses a text or date for a time and names the field.

    For classes of kueuelib, the function itself.
    """
    times = [each.name for each in attrs.fields(cls) if "Annotated[float" in str(each.type)]
    if not times or cls.__module__.startswith("kueuelib."):
        return encode

    def encoded(value: Any) -> Any:
        for name in times:
            time = getattr(value, name)
            if isinstance(time, (str, date)):
                text = isinstance(time, str)
                raise ConfigError(
                    f"{cls.__name__}.{name}",
                    f"is {time!r}, but a Time is a number: seconds since the epoch",
                    f"write {'datetime.fromisoformat(TEXT)' if text else 'VALUE'}.timestamp(), or "
                    "time.time() for the present",
                )
        return encode(value)

    return encoded
