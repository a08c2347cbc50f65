"""`metadata.managedFields`: the owners of fields, and server-side apply.

The rules are in `kueuelib.embedded.patching`; this module provides schemas and conversions.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Generator, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from kueuelib.api.meta import Obj, format_time
from kueuelib.embedded import failures
from kueuelib.embedded.admission.plugin import SYSTEM
from kueuelib.embedded.builtins.fields import required, section
from kueuelib.embedded.builtins.metadata import MANAGER_LIMIT
from kueuelib.embedded.conversion import Converter
from kueuelib.embedded.decoding import (
    check_embedded,
    check_metadata,
    copy_json,
    report_unknown,
    shorten_numbers,
)
from kueuelib.embedded.patching.apply import Convert, FieldWrite, apply_steps, renewed, track_steps
from kueuelib.embedded.patching.fieldsets import NO_KEY, Ambiguous, Unkeyed, element, show_element
from kueuelib.embedded.registry.kinds import Kind, KindVersion
from kueuelib.embedded.schema.messages import builtin_node, custom_node
from kueuelib.embedded.schema.mismatch import Mismatch, json_type
from kueuelib.embedded.schema.node import ANYTHING, ListType, SchemaNode
from kueuelib.embedded.schema.structural import StructuralSchema
from kueuelib.embedded.verbs import WriteOptions
from kueuelib.errors import ApiError, BadRequest

# ---- problems of an applied configuration, with paths in the form of server-side apply -----------

UNDECLARED: Final = "field not declared in schema"
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


def typed_problem(node: SchemaNode, value: Any, path: str, text: str) -> str:
    """One problem with its path, in which items of keyed lists are named by their keys.

    Args:
        node: how the kind merges.
        value: the configuration.
        path: in the form of decoders: `spec.containers[0].image`.
        text: the problem.
    """
    where, at = "", 0
    while match := _STEP.match(path, at):
        name, index = match.groups()
        if name is not None and isinstance(value, dict) and name in value:
            value, node, where = value[name], node.child(name), f"{where}.{name}"
        elif index is not None and isinstance(value, list) and int(index) < len(value):
            value, step, keyed = value[int(index)], match[0], node.list_type is ListType.MAP
            if keyed and not isinstance(value, dict):
                why = "associative list with keys may not have non-map elements"
                return f"{where}: element {index}: {why}"
            if keyed and (key := element(node, value)) != NO_KEY:
                step = show_element(key)
            node, where = node.item, where + step
        else:
            break
        at = match.end()
    rest = path[at:]
    return f"{where}{'.' if rest and at == 0 else ''}{rest}: {text}"


def without(config: Obj, path: str) -> Obj | None:
    """A copy of a configuration without the value at a path; None if there is none."""
    steps = [(match[1], match[2]) for match in _STEP.finditer(path)]
    copied: Obj = copy_json(config)
    outer: Any = copied
    for at, (name, index) in enumerate(steps):
        key: Any = name if index is None else int(index)
        try:
            inner = outer[key]
            if at == len(steps) - 1:
                outer[key] = None
                return copied
            outer = inner
        except (KeyError, IndexError, TypeError):
            break
    return None


# --------------------------------------------------------------------------------------------------

UNKNOWN_MANAGER = "unknown"
PROBLEMS = 100
"""The maximum number of values of wrong types that are named, each of which takes another pass over
the object.
"""
R = TypeVar("R")


class Managers:
    """Tracks the owners of fields."""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter
        self._nodes: weakref.WeakKeyDictionary[KindVersion, SchemaNode] = (
            weakref.WeakKeyDictionary()
        )

    def node(self, kind: Kind, version: str) -> SchemaNode:
        """The merge rules of a kind at a version."""
        if kind.builtin:
            return builtin_node(kind.group, kind.kind)
        served = kind.versions.get(version)
        if served is None:
            return custom_node(ANYTHING)
        node = self._nodes.get(served)
        if node is None:
            schema = served.schema
            known = schema.node if isinstance(schema, StructuralSchema) else ANYTHING
            node = self._nodes[served] = custom_node(known)
        return node

    def _at(self, kind: Kind, api_version: str) -> SchemaNode:
        return self.node(kind, _short(api_version))

    async def track(
        self,
        kind: Kind,
        version: KindVersion,
        old: Obj | None,
        new: Obj,
        subresource: str,
        options: WriteOptions,
        now: float,
    ) -> None:
        """Writes the owners of fields into `new` after a write that is not an apply.

        The server's own writes without a manager are not tracked.
        """
        if options.caller is SYSTEM and not options.field_manager:
            _keep(new, old)
            return
        write = FieldWrite(
            manager_of(options), format_time(now), subresource, version.status, kind.kept
        )
        nodes = partial(self._at, kind)
        steps = track_steps(nodes, old, new, write, _zero(version))
        try:
            entries = await self._drive(kind, steps)
        except Ambiguous:
            entries = []  # items without keys: the owners are forgotten
        if entries:
            new["metadata"]["managedFields"] = entries
        else:
            new["metadata"].pop("managedFields", None)

    async def apply(
        self,
        kind: Kind,
        version: KindVersion,
        live: Obj | None,
        config: Obj,
        given: Obj,
        subresource: str,
        options: WriteOptions,
        now: float,
    ) -> Obj:
        """The object after an apply, including owners.

        Args:
            kind: of the object.
            version: of the apply.
            live: the present state, None for a new object.
            config: the checked configuration.
            given: the configuration as sent by the client.
            subresource: of the apply.
            options: of the request.
            now: seconds since the epoch.

        Raises:
            Conflict: other managers own fields, and the apply is not forced.
            ApiError: a list in it has duplicate items.
        """
        write = FieldWrite(
            options.field_manager, format_time(now), subresource, version.status, kind.kept
        )
        nodes, zero = partial(self._at, kind), _zero(version)
        steps = apply_steps(nodes, live, config, write, zero=zero, force=options.force)
        try:
            applied = await self._drive(kind, steps)
        except Unkeyed as error:
            raise _untyped(config["apiVersion"], kind, live or given, str(error), _LIVE) from error
        except Ambiguous as error:
            raise _untyped(config["apiVersion"], kind, given, str(error)) from error
        return renewed(applied, given, options.field_manager)

    async def _drive(self, kind: Kind, steps: Generator[Convert, Obj | None, R]) -> R:
        answer: Obj | None = None
        while True:
            try:
                asked = steps.send(answer)
            except StopIteration as finished:
                return finished.value  # type: ignore[no-any-return]
            version = _short(asked.api_version)
            answer = None
            if kind.api_version(version) == asked.api_version and version in kind.versions:
                answer = await self._converter.convert_one(kind, asked.obj, version)


def _zero(version: KindVersion) -> Obj:
    return {"metadata": {}, **(version.schema.zero() if version.schema else {})}


def configuration(
    kind: Kind, version: KindVersion, node: SchemaNode, body: Any, options: WriteOptions
) -> Obj:
    """The checked body of an apply patch, without defaults, which have no owner.

    Null and empty values stay, because they are owned as well.

    Raises:
        BadRequest: it is not an object of the kind, or has fields twice under strict validation.
        ApiError: it has fields that the kind does not know.
        Invalid: no field manager is named.
    """
    if not options.field_manager:
        errors = [required("fieldManager", "is required for apply patch")]
        raise failures.invalid_named("PatchOptions", "meta.k8s.io", "", errors)
    if body is not None and not isinstance(body, Mapping):
        raise BadRequest(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot "
            f"unmarshal {json_type(body)} into Go value of type map[string]interface {{}}"
        )
    config: Obj = copy_json(body or {})
    shorten_numbers(config)
    expected = kind.api_version(version.name)
    named = [config.get(key) for key in ("apiVersion", "kind")]
    if named != [expected, kind.kind]:
        group, name = (each if isinstance(each, str) else "" for each in named)
        group = group if "/" in group else f"/{group}"
        raise BadRequest(f"invalid object type: {group}, Kind={name}")
    problems = _problems(kind, version, node, config)
    if problems:
        text = problems[0]
        if problems[1:]:
            text = "errors:\n" + "\n".join(f"  {each}" for each in sorted(problems))
        raise _untyped(expected, kind, config, text)
    report_unknown(kind, version, options, ())
    if config.get("metadata") is None:
        config["metadata"] = {}
    return config


def _problems(kind: Kind, version: KindVersion, node: SchemaNode, config: Obj) -> list[str]:
    left: Obj | None = config
    problems = list[str]()
    while left is not None and len(problems) < PROBLEMS:
        plain: Obj = copy_json(left)
        try:
            unknown = _checked(kind, version, plain)
        except Mismatch as error:
            problems.append(typed_problem(node, config, error.path, error.typed))
            left = without(left, error.path)
        except BadRequest:
            return problems  # a text that cannot be read; it may not be reached
        else:
            texts = (typed_problem(node, config, path, UNDECLARED) for path in unknown)
            return [*problems, *texts]
    return problems


def _checked(kind: Kind, version: KindVersion, config: Obj) -> list[str]:
    """Removes unknown fields, and returns their paths."""
    unknown = check_metadata(kind, version, config)
    if version.schema is not None:
        unknown += version.schema.prune(config)
        unknown += check_embedded(kind, version, config)
    return unknown


_BASE64 = "illegal base64"
_CONVERTED = (
    "failed to convert new object ({}) to proper version: unable to convert unstructured object "
    "to {}"
)
_GIVEN = "failed to create typed patch object ({}): {}"
_LIVE = (
    "failed to create manager for existing fields: failed to convert new object ({}) to smd "
    "typed: {}"
)


def unconvertible(kind: Kind, given: Obj, error: BadRequest) -> ApiError:
    """The error for an applied object with a text that cannot be read; others stay as they are."""
    why = error.message.partition(f" cannot be handled as a {kind.kind}: ")[2]
    if not why.startswith((_BASE64, "quantities must")):
        return error
    version = given["apiVersion"]
    text = f"{version if '/' in version else f'/{version}'}, Kind={kind.kind}: "
    text += f"error decoding from json: {why}" if why.startswith(_BASE64) else why
    return _untyped(version, kind, given, text, _CONVERTED)


def _untyped(api_version: str, kind: Kind, config: Obj, text: str, why: str = _GIVEN) -> ApiError:
    meta = section(config, "metadata")
    names = (meta.get(key, "") for key in ("namespace", "name"))
    name = "/".join(each if isinstance(each, str) else "" for each in names)
    version = api_version if "/" in api_version else f"/{api_version}"
    about = f"{name}; {version}, Kind={kind.kind}"
    if isinstance(config.get("metadata"), Mapping | None):
        return failures.unexplained(why.format(about, text))
    return BadRequest(why.format(about, text))


def manager_of(options: WriteOptions) -> str:
    """The field manager of a write: the given one, or else the calling program."""
    if options.field_manager:
        return options.field_manager
    prefix = options.caller.agent.partition("/")[0]
    plain = "".join(letter for letter in prefix if letter.isprintable())
    return plain[:MANAGER_LIMIT] or UNKNOWN_MANAGER


def _short(api_version: str) -> str:
    return api_version.rpartition("/")[2]


def _keep(new: Obj, old: Obj | None) -> None:
    known = None if old is None else old["metadata"].get("managedFields")
    if known:
        new["metadata"]["managedFields"] = known
    else:
        new["metadata"].pop("managedFields", None)
