"""Validates values against a schema, in the words of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.fields import (
    duplicate,
    invalid,
    non_negative,
    not_supported,
    required,
    too_long,
)
from kueuelib.embedded.builtins.metadata import (
    label,
    label_1035,
    validate_annotations,
    validate_labels,
)
from kueuelib.embedded.schema.formats import fits, in_range
from kueuelib.embedded.schema.node import MISSING, ListType, SchemaNode, canonical, same_json
from kueuelib.errors import FieldError

# ---- objects embedded in fields of others (`x-kubernetes-embedded-resource`) ---------------------


def embedded_objects(node: SchemaNode, value: Any, path: str = "") -> Iterator[tuple[str, Obj]]:
    """The objects embedded in a value, with their paths, without the value itself.

    Args:
        node: the schema of the value.
        value: a value, which may not match its schema.
        path: of the value.
    """
    if not node.embeds:
        return
    inner: Iterator[tuple[str, SchemaNode, Any]] = iter(())
    if isinstance(value, dict):
        parts = ((name, node.properties.get(name) or node.additional) for name in value)
        inner = (
            (f"{path}.{name}" if path else name, known, value[name])
            for name, known in parts
            if known is not None
        )
    elif isinstance(value, list) and node.items is not None:
        items = node.items
        inner = ((f"{path}[{i}]", items, each) for i, each in enumerate(value))
    for where, known, each in inner:
        if known.embedded and isinstance(each, dict):
            yield where, each
        yield from embedded_objects(known, each, where)


def embedded_problems(obj: Obj, path: str) -> list[FieldError]:
    """The broken rules of the head of an embedded object; its name may be anything.

    Values of wrong types are not checked here; `decoding.check_embedded` refuses them.
    """
    errors: list[FieldError] = []
    version, kind, meta = obj.get("apiVersion"), obj.get("kind"), obj.get("metadata")
    if not all(isinstance(each, str | None) for each in (version, kind)):
        return []
    if version is None:
        errors.append(required(f"{path}.apiVersion"))
    elif not version:
        errors.append(invalid(f"{path}.apiVersion", version, "must not be empty"))
    elif version.count("/") > 1:
        text = f"unexpected GroupVersion string: {version}"
        errors.append(invalid(f"{path}.apiVersion", version, text))
    if kind is None:
        errors.append(required(f"{path}.kind"))
    elif not kind:
        errors.append(invalid(f"{path}.kind", kind, "must not be empty"))
    elif texts := label_1035(kind.lower()):
        text = f"may have mixed case, but should otherwise match: {','.join(texts)}"
        errors.append(invalid(f"{path}.kind", kind, text))
    if not isinstance(meta, dict):
        return errors
    where = f"{path}.metadata"
    if meta.get("namespace"):
        namespace = meta["namespace"]
        texts = label(namespace)
        errors += [invalid(f"{where}.namespace", namespace, text) for text in texts]
    errors += non_negative(f"{where}.generation", meta.get("generation"))
    errors += validate_labels(meta.get("labels"), f"{where}.labels")
    return [*errors, *validate_annotations(meta.get("annotations"), f"{where}.annotations")]


# --------------------------------------------------------------------------------------------------

NOWHERE: Final = "<nil>"
"""The path, in Kubernetes' messages, of a number that does not fit its format."""
EXACT: Final = 2**53
"""Integers are distinguished from other numbers below this."""
_HEAD = frozenset({"apiVersion", "kind", "metadata"})
Errors = list[FieldError]


def validate(node: SchemaNode, obj: Obj, old: Obj | None = None) -> list[FieldError]:
    """The broken rules of an object.

    Args:
        node: the schema.
        obj: a pruned and defaulted object; its `metadata` is not checked.
        old: the previous state: unchanged values are not reported.
    """
    errors: Errors = []
    _check(node, obj, MISSING if old is None else old, "", errors, head=True)
    return errors


def validate_value(node: SchemaNode, value: Any) -> list[FieldError]:
    """The broken rules of a value that is not a whole object; paths start below it."""
    errors: Errors = []
    _check(node, value, MISSING, "", errors)
    return errors


def _check(
    node: SchemaNode, value: Any, old: Any, path: str, errors: Errors, *, head: bool = False
) -> None:
    if old is not MISSING and same_json(value, old):
        return
    if value is None and node.nullable:
        return
    wrong = _type_error(node, value, path)
    if wrong is not None:
        errors.append(wrong)
    if node.enum is not None and not any(same_json(value, each) for each in node.enum):
        known = [each if isinstance(each, str) else canonical(each) for each in node.enum]
        errors.append(not_supported(path, value, known, ordered=True))
    if isinstance(value, int | float) and not isinstance(value, bool):
        _check_range(node, value, path, errors)
    if wrong is not None:
        return
    if isinstance(value, str):
        _check_text(node, value, path, errors)
    elif isinstance(value, dict):
        _check_map(node, value, old, path, errors, head=head)
    elif isinstance(value, list):
        _check_list(node, value, old, path, errors)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(node, value, path, errors)
    if node.all_of or node.any_of or node.one_of or node.not_ is not None:
        _check_junctors(node, value, path, errors)


# ---- types --------------------------------------------------------------------------------------

_TYPE_NAMES: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    str: "string",
    list: "array",
}


_GO_FORMATS: Final[Mapping[type, str]] = {int: "float64", float: "float64"}


def type_name(value: Any) -> str:
    """The JSON type of a value in OpenAPI's terms."""
    if isinstance(value, float):
        return "integer" if value.is_integer() and abs(value) < EXACT else "number"
    if type(value) is int and not in_range("integer", "int64", value):
        return "number"
    return _TYPE_NAMES.get(type(value), "object")


def _type_error(node: SchemaNode, value: Any, path: str) -> FieldError | None:
    actual = type_name(value)
    if node.int_or_string:
        wanted, fine = "integer,string", actual in ("integer", "string")
    elif node.type:
        wanted = node.type
        fine = actual == wanted or (wanted == "number" and actual == "integer")
    else:
        return None
    if fine:
        return None
    if node.format and value is not None and not isinstance(value, str | list):
        whole = type(value) is int and actual == "integer"
        wanted, actual = node.format, "int64" if whole else _GO_FORMATS.get(type(value), "")
    return _type_invalid(
        path, actual, f"{_named(path)} must be of type {wanted}: {canonical(actual)}"
    )


def _type_invalid(path: str, value: str, text: str) -> FieldError:
    return FieldError(path, "FieldValueTypeInvalid", f"Invalid value: {canonical(value)}: {text}")


# ---- leaves -------------------------------------------------------------------------------------


def _check_text(node: SchemaNode, value: str, path: str, errors: Errors) -> None:
    if node.max_length is not None and len(value) > node.max_length:
        errors.append(too_long(path, node.max_length))
    if node.min_length is not None and len(value) < node.min_length:
        text = f"{_named(path)} should be at least {node.min_length} chars long"
        errors.append(invalid(path, value, text))
    if node.pattern is not None and not node.pattern.matches(value):
        text = f"{_named(path)} should match '{node.pattern.text}'"
        errors.append(invalid(path, value, text))
    if node.format and not fits(node.format, value):
        text = f"{_named(path)} must be of type {node.format}: {canonical(value)}"
        errors.append(_type_invalid(path, value, text))


def _check_range(node: SchemaNode, value: float, path: str, errors: Errors) -> None:
    if not in_range(node.type, node.format, value):
        form = f"with format {node.format}" if node.format else "(default format)"
        text = f"Checked value must be of type {node.type} {form} in {path}"
        errors.append(invalid(NOWHERE, "", text))


def _check_number(node: SchemaNode, value: float, path: str, errors: Errors) -> None:
    low, high, step = node.minimum, node.maximum, node.multiple_of
    if low is not None and (value < low or (node.exclusive_minimum and value == low)):
        words = "greater than" if node.exclusive_minimum else "greater than or equal to"
        errors.append(invalid(path, value, f"{_named(path)} should be {words} {_number(low)}"))
    if high is not None and (value > high or (node.exclusive_maximum and value == high)):
        words = "less than" if node.exclusive_maximum else "less than or equal to"
        errors.append(invalid(path, value, f"{_named(path)} should be {words} {_number(high)}"))
    if step and not float(value / step).is_integer():
        errors.append(
            invalid(path, value, f"{_named(path)} should be a multiple of {_number(step)}")
        )


# ---- lists and maps -----------------------------------------------------------------------------


def _check_list(node: SchemaNode, value: list[Any], old: Any, path: str, errors: Errors) -> None:
    if node.max_items is not None and len(value) > node.max_items:
        errors.append(_too_many(path, len(value), node.max_items))
    if node.min_items is not None and len(value) < node.min_items:
        errors.append(
            invalid(path, value, f"{_named(path)} should have at least {node.min_items} items")
        )
    before = items_by_key(node, old)
    seen: set[str] = set()
    for index, item in enumerate(value):
        inner = f"{path}[{index}]"
        key = item_key(node, item)
        if key is not None:
            text = canonical(key)
            if text in seen:
                errors.append(duplicate(inner, key))
            seen.add(text)
        earlier = MISSING if key is None else before.get(canonical(key), MISSING)
        if node.items is not None:
            _check(node.items, item, earlier, inner, errors)


def item_key(node: SchemaNode, item: Any) -> Any:
    """The identity of an item of a set or map list; None for atomic lists and malformed items."""
    if node.list_type is ListType.SET:
        return item
    if node.list_type is ListType.MAP and isinstance(item, dict):
        key = {}
        for name in node.list_map_keys:
            default = node.item.child(name).default
            if name in item:
                key[name] = item[name]
            elif default is not MISSING:
                key[name] = default
        return key
    return None


def items_by_key(node: SchemaNode, old: Any) -> Mapping[str, Any]:
    """The items of a map list by the texts of their keys."""
    if not isinstance(old, list) or node.list_type is not ListType.MAP:
        return {}
    return {canonical(item_key(node, item)): item for item in old if isinstance(item, dict)}


def _check_map(
    node: SchemaNode, value: Obj, old: Any, path: str, errors: Errors, *, head: bool
) -> None:
    if node.max_properties is not None and len(value) > node.max_properties:
        errors.append(_too_many(path, len(value), node.max_properties))
    if node.min_properties is not None and len(value) < node.min_properties:
        text = f"{_named(path)} should have at least {node.min_properties} properties"
        errors.append(invalid(path, value, text))
    prefix = f"{path}." if path else ""
    errors += [required(prefix + name) for name in node.required if name not in value]
    if node.embedded and not head:
        errors += embedded_problems(value, path)
    before = old if isinstance(old, dict) else {}
    for name, each in value.items():
        if name in _HEAD and (head or node.embedded):
            continue
        known = node.properties.get(name) or node.additional
        if known is not None:
            _check(known, each, before.get(name, MISSING), prefix + name, errors)


# ---- junctors -----------------------------------------------------------------------------------


def _check_junctors(node: SchemaNode, value: Any, path: str, errors: Errors) -> None:
    def holds(sub: SchemaNode) -> bool:
        own_errors: Errors = []
        _check(sub, value, MISSING, path, own_errors)
        return not own_errors

    for sub in node.all_of:
        _check(sub, value, MISSING, path, errors)
    if node.any_of and not any(holds(sub) for sub in node.any_of):
        errors.append(
            invalid(path, "", f"{canonical(path)} must validate at least one schema (anyOf)")
        )
    if node.one_of:
        count = sum(holds(sub) for sub in node.one_of)
        if count != 1:
            alternatives = "Found none valid" if count == 0 else f"Found {count} valid alternatives"
            text = (
                f"{canonical(path)} must validate one and only one schema (oneOf). {alternatives}"
            )
            errors.append(invalid(path, "", text))
    if node.not_ is not None and holds(node.not_):
        errors.append(invalid(path, "", f"{canonical(path)} must not validate the schema (not)"))


# ---- wording ------------------------------------------------------------------------------------


def _named(path: str) -> str:
    return f"{path} in body"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def _too_many(path: str, count: int, limit: int) -> FieldError:
    text = f"Too many: {count}: must have at most {limit} items"
    return FieldError(path, "FieldValueTooMany", text)
