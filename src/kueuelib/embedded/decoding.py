"""Turns the body of a request into an object that the rest of the server can rely on.

The result has the right apiVersion and kind, metadata of the right JSON types, no unknown fields
and all defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import orjson

from kueuelib.api.meta import Obj
from kueuelib.embedded import failures
from kueuelib.embedded.builtins.fields import invalid, section, shown
from kueuelib.embedded.registry.kinds import Kind, KindVersion
from kueuelib.embedded.schema.messages import exists, message_name
from kueuelib.embedded.schema.mismatch import json_type
from kueuelib.embedded.schema.typed import Walk, read_metadata
from kueuelib.embedded.verbs import FieldValidation, WriteOptions
from kueuelib.errors import BadRequest, FieldError

STRICT_ERRORS = 100
"""The maximum number of unknown or repeated fields that are named, as in kube-apiserver."""
_HEAD = frozenset(("apiVersion", "kind", "metadata"))


def settle(version: KindVersion, obj: Obj) -> None:
    """Prunes and defaults an object that is not from a client."""
    if version.schema is not None:
        version.schema.prune(obj)
        version.schema.default(obj)


def decode(
    kind: Kind,
    version: KindVersion,
    given: Mapping[str, Any],
    options: WriteOptions,
    settled: Mapping[str, Any] | None = None,
) -> Obj:
    """A copy of a client's object, checked, pruned and defaulted.

    Args:
        kind: of the object.
        version: of the object.
        given: the object.
        options: of the request.
        settled: an object that is pruned and defaulted already; top-level values that `given`
            shares with it are neither checked again nor copied.

    Raises:
        BadRequest: wrong apiVersion, kind or JSON types; unknown fields under strict validation.
    """
    if not isinstance(given, Mapping):
        raise BadRequest(
            f"couldn't get version/kind; json parse error: an object is expected, "
            f"not {json_type(given)}"
        )
    same = {} if settled is None else _same_parts(given, settled)
    text = _json({key: each for key, each in given.items() if key not in same} if same else given)
    obj: Obj = orjson.loads(text)
    expected = kind.api_version(version.name)
    if kind.builtin:
        _check_built_in(kind, expected, obj)
    else:
        _check_custom(kind, expected, obj)
        if b".0" in text:
            shorten_numbers(obj)
    obj["apiVersion"], obj["kind"] = expected, kind.kind
    unknown = check_metadata(kind, version, obj)
    redefine(kind, version, obj, unknown)
    report_unknown(kind, version, options, unknown)
    if not same:
        return obj
    obj.update(same)
    return {name: obj[name] for name in (*given, *(obj.keys() - given.keys())) if name in obj}


def _same_parts(given: Mapping[str, Any], settled: Mapping[str, Any]) -> Obj:
    return {
        name: value
        for name, value in given.items()
        if name not in _HEAD and settled.get(name) is value
    }


def _check_built_in(kind: Kind, expected: str, obj: Obj) -> None:
    """Check the head of a built-in object; missing parts are taken from the URL."""
    for key in ("apiVersion", "kind"):
        if not isinstance(obj.get(key), str | None):
            raise BadRequest(
                f"couldn't get version/kind; json parse error: json: cannot unmarshal "
                f"{json_type(obj[key])} into Go struct field .{key} of type string"
            )
    api_version, name = obj.get("apiVersion") or expected, obj.get("kind") or kind.kind
    if (api_version, name) == (expected, kind.kind):
        return
    text = (
        f"no kind {shown(name)} is registered for version {shown(api_version)} in scheme "
        '"pkg/api/legacyscheme/scheme.go:30"'
    )
    if api_version == expected and exists(message_name(kind.group, name)):
        package = kind.group.partition(".")[0] or "core"
        outer = expected.rpartition("/")[2]
        text = f"converting ({outer}.{name}) to ({package}.{kind.kind}): unknown conversion"
    raise BadRequest(
        f"{name} in version {shown(api_version.rpartition('/')[2])} cannot be handled as a "
        f"{kind.kind}: {text}"
    )


def _check_custom(kind: Kind, expected: str, obj: Obj) -> None:
    """Check the head of a custom object, which must name version and kind."""
    if not obj.get("kind"):
        raise BadRequest(f"Object 'Kind' is missing in '{orjson.dumps(obj).decode()}'")
    api_version = obj.get("apiVersion") or ""
    if api_version != expected:
        raise BadRequest(
            f"the API version in the data ({api_version}) does not match the expected API version "
            f"({expected})"
        )
    if obj["kind"] != kind.kind:
        name = str(section(obj, "metadata").get("name") or "")
        error = invalid("kind", obj["kind"], f"must be {kind.kind}")
        raise failures.invalid_named(str(obj["kind"]), kind.group, name, [error])


def redefine(kind: Kind, version: KindVersion, obj: Obj, unknown: list[str] | None = None) -> None:
    """Prunes and defaults in place; paths of unknown fields are added to `unknown`."""
    if version.schema is not None:
        pruned = [*version.schema.prune(obj), *check_embedded(kind, version, obj)]
        if unknown is not None:
            unknown.extend(pruned)
        version.schema.default(obj)
    kind.rules.default(obj)
    if version.schema is not None:
        version.schema.fill(obj)


def check_embedded(kind: Kind, version: KindVersion, obj: Obj) -> list[str]:
    """Checks the JSON types of the heads of embedded objects, and prunes their metadata.

    Returns:
        the paths of the unknown fields.

    Raises:
        BadRequest: a field has the wrong type.
    """
    unknown: list[str] = []
    for path, each in version.schema.embedded(obj):
        _check_head(kind, version, each, path)
        if "metadata" not in each:
            continue
        given = copy_json(each["metadata"])
        if not isinstance(given, dict | None):
            text = f"json: cannot unmarshal {json_type(given)} into Go value of type v1.ObjectMeta"
            raise _cannot_be_handled(kind, version, str(invalid(f"{path}.metadata", given, text)))
        walk = _Inner(kind.kind, version.name, given=invalid(f"{path}.metadata", given, ""))
        each["metadata"] = read_metadata(each["metadata"], f"{path}.metadata", "", walk)
        unknown += walk.unknown
    return unknown


@attrs.define
class _Inner(Walk):
    """The metadata of an embedded object; an error shows all of it."""

    given: FieldError = attrs.field(kw_only=True)

    def wrong(self, text: str) -> BadRequest:
        return super().wrong(f"{self.given}: {text}")


def _check_head(kind: Kind, version: KindVersion, obj: Obj, path: str) -> None:
    for key in ("apiVersion", "kind"):
        if key in obj and not isinstance(obj[key], str):
            why = str(invalid(f"{path}.{key}", obj[key], "must be a string"))
            raise _cannot_be_handled(kind, version, why)


def _cannot_be_handled(kind: Kind, version: KindVersion, why: str) -> BadRequest:
    return BadRequest(
        f'{kind.kind} in version "{version.name}" cannot be handled as a {kind.kind}: {why}'
    )


def report_unknown(
    kind: Kind, version: KindVersion, options: WriteOptions, unknown: Sequence[str]
) -> None:
    """Refuses, or warns of, unknown and duplicate fields."""
    texts = [f'unknown field "{path}"' for path in unknown]
    texts = [*texts, *options.received][:STRICT_ERRORS]
    if not texts or options.field_validation is FieldValidation.IGNORE:
        return
    if options.field_validation is FieldValidation.WARN:
        options.warnings.extend(texts)
        return
    raise BadRequest(
        f'{kind.kind} in version "{version.name}" cannot be handled as a {kind.kind}: '
        f"strict decoding error: {', '.join(texts)}"
    )


def copy_json(value: Any) -> Any:
    """A deep copy of JSON data by way of text, which is many times faster than `copy.deepcopy`.

    Raises:
        BadRequest: it is not JSON data, or nested too deeply to be stored.
    """
    return orjson.loads(_json(value))


def _json(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=_plain)
    except orjson.JSONEncodeError as error:
        raise BadRequest(f"the object cannot be stored: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is not a JSON value")


def shorten_numbers(value: Any) -> None:
    """Replaces 1.0 by 1 in place, because Kubernetes writes both as 1; larger ones stay."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in list(pairs):
        if isinstance(each, float) and each.is_integer() and abs(each) < 2**63:
            value[key] = int(each)
        elif isinstance(each, dict | list):
            shorten_numbers(each)


def check_metadata(kind: Kind, version: KindVersion, obj: Obj) -> list[str]:
    """Checks the types of the metadata, drops nulls and unknown fields, and returns their paths.

    Raises:
        BadRequest: a field has the wrong type.
    """
    walk = Walk(kind.kind, version.name)
    where = f"{kind.kind}.metadata"
    obj["metadata"] = read_metadata(obj.get("metadata"), "metadata", where, walk)
    return walk.unknown
