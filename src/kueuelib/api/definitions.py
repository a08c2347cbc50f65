"""Makes CustomResourceDefinitions from classes: the public decorator, and the parts of all CRDs.

```python
@crd("example.com", "v1", plural="widgets", rules=[Rule("spec", "self.size > 0", "must grow")])
@frozen(kw_only=True)
class Widget(KubeObject):
    spec: WidgetSpec
    status: WidgetStatus = WidgetStatus()
```

Types give the shape of the schema, `wire` metadata its limits, and docstrings the descriptions; see
`kueuelib.api.schema`. The arguments are kept in the `definition` of the class.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, TypeVar

import attrs
import orjson

from kueuelib.api.codec import decode, encode
from kueuelib.api.meta import KubeObject, Obj, Resource
from kueuelib.api.schema import object_schema
from kueuelib.api.struct import Struct, WireField, frozen, json_name
from kueuelib.errors import ConfigError, FieldError, InvalidObject

# ---- the parts of every CustomResourceDefinition, ours and those of users ------------------------

CONVERSION_PATH: Final = "/convert"
"""Where conversion webhooks are served, unless an operator has several kinds with versions."""
_STEP: Final = re.compile(
    r"\.(?P<field>[A-Za-z_][\w-]*)|\['(?P<quoted>[^'\\]+)'\]|(?P<inner>\[[^\]]*\])"
)
"""A step of a JSON path: a field, or the items of a list."""
_TEXT: Final = re.compile(
    r"""r?(\"{3}.*?\"{3}|'{3}.*?'{3}|"(\\.|[^"\\])*"|'(\\.|[^'\\])*')""", re.DOTALL
)
"""A text in CEL."""
_CHAIN: Final = re.compile(r"(?<![\w.])(?:self|oldSelf)((?:\s*\.\s*[A-Za-z_]\w*)+)(?P<call>\s*\()?")
"""The fields of an object in CEL; if a call follows, its last name is that of the function."""


@frozen
class Column:
    """What `kubectl get` prints besides the name.

    Attributes:
        name: the heading.
        path: a JSON path, for example `.spec.size`.
        type: `string`, `integer`, `number`, `boolean` or `date`.
        priority: 0 is always shown; greater ones only with `-o wide`.
    """

    name: str
    path: str
    type: str = "string"
    priority: int = 0

    @property
    def raw(self) -> Obj:
        """The entry of `additionalPrinterColumns`."""
        entry: Obj = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return {**entry, "priority": self.priority} if self.priority else entry


@frozen
class Rule:
    """A rule in CEL (`x-kubernetes-validations`).

    Attributes:
        at: the place in the schema, for example `spec.podSets[]`; empty for the whole object.
        cel: what must hold.
        message: what is wrong, and what to do about it.
        field: the field below the place that is wrong, for example `.minCount`.
        reason: of the field error.
        version: the only version that has the rule; empty for all.
    """

    at: str
    cel: str
    message: str
    field: str = ""
    reason: str = "FieldValueInvalid"
    version: str = ""

    @property
    def raw(self) -> Obj:
        """The entry of `x-kubernetes-validations`."""
        entry = {"rule": self.cel, "message": self.message, "reason": self.reason}
        return {**entry, "fieldPath": self.field} if self.field else entry


def assembled(
    resource: Resource, names: Mapping[str, Any], conversion: Obj, versions: Sequence[Obj]
) -> Obj:
    """A whole CustomResourceDefinition.

    Args:
        resource: the kind.
        names: further entries of `spec.names`.
        conversion: `spec.conversion`.
        versions: the entries of `spec.versions`.
    """
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                **names,
            },
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "conversion": conversion,
            "versions": list(versions),
        },
    }
    copy: Obj = orjson.loads(orjson.dumps(crd))  # no parts in common with anything
    return copy


def webhook_conversion(client_config: Obj) -> Obj:
    """The `spec.conversion` that calls a webhook."""
    return {
        "strategy": "Webhook",
        "webhook": {"clientConfig": client_config, "conversionReviewVersions": ["v1"]},
    }


def version_entry(
    name: str,
    schema: Obj,
    *,
    stored: bool,
    served: bool = True,
    columns: Iterable[Column] = (),
    rules: Iterable[Rule] = (),
    selectable: Sequence[str] = (),
) -> Obj:
    """One entry of `spec.versions`; the rules are put into the schema."""
    for rule in rules:
        place = node(schema, rule.at)
        place.setdefault("x-kubernetes-validations", []).append(rule.raw)
    entry: Obj = {
        "name": name,
        "served": served,
        "storage": stored,
        "schema": {"openAPIV3Schema": schema},
    }
    if "status" in schema["properties"]:
        entry["subresources"] = {"status": {}}
    if printed := [column.raw for column in columns]:
        entry["additionalPrinterColumns"] = printed
    if selectable:
        entry["selectableFields"] = [{"jsonPath": path} for path in selectable]
    return entry


def node(schema: Obj, path: str) -> Obj:
    """The schema at a path; `[]` stands for the items of a list, `{}` for the values of a map.

    Raises:
        KeyError: there is no such place.
    """
    for step in path.replace("[]", ".[]").replace("{}", ".{}").split("."):
        if step == "[]":
            schema = schema["items"]
        elif step == "{}":
            schema = schema["additionalProperties"]
        elif step:
            schema = schema["properties"][step]
    return schema


def unknown_field(schema: Mapping[str, Any], path: str) -> str:
    """What is wrong with a JSON path such as `.spec.size`; empty if nothing can be said.

    Args:
        schema: of the object.
        path: where its steps are not fields of the schema, or items, the rest is not checked.
    """
    if path[:1] not in (".", "[", "{", "$"):
        return f"{path} does not begin with a dot: write .{path}"
    place, at = schema, 0
    while step := _STEP.match(path, at):
        if step["inner"]:
            place = place.get("items") or place.get("additionalProperties") or {}
        elif problem := _no_property(place, step["field"] or step["quoted"], path[:at]):
            return problem
        else:
            place = place.get("properties", {}).get(step["field"] or step["quoted"], {})
        if not isinstance(place, Mapping):
            break
        at = step.end()
    return ""


def unknown_names(schema: Mapping[str, Any], cel: str) -> Iterator[str]:
    """What is wrong with the fields that an expression in CEL names.

    Args:
        schema: at the place of the rule.
        cel: whether it can be parsed is not checked.
    """
    for chain in _CHAIN.finditer(_TEXT.sub('""', cel)):
        *names, last = re.findall(r"\w+", chain[1])
        place, path = schema, "self"
        for name in names if chain["call"] else [*names, last]:
            if "__" in name:  # escaped, such as `__namespace__`
                break
            if problem := _no_property(place, name, path):
                yield problem
                break
            path = f"{path}.{name}"
            place = place.get("properties", {}).get(name, {})


def _no_property(schema: Mapping[str, Any], name: str, path: str) -> str:
    """Why a schema has no such property; empty if it has, or lists none."""
    properties = schema.get("properties")
    if not properties or name in properties or schema.get("x-kubernetes-preserve-unknown-fields"):
        return ""
    near = get_close_matches(name, properties, 1) or sorted(properties)
    words = "did you mean" if len(near) == 1 else "the fields are"
    return f"{path}.{name} is not a field; {words} {', '.join(near)}{'?' * (len(near) == 1)}"


# --------------------------------------------------------------------------------------------------

T = TypeVar("T", bound=KubeObject)

_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_VERSION: Final = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")

_PRINTED: Final = ("integer", "number", "boolean", "date")
"""Types of columns other than strings."""


@frozen
class Version:
    """A further version of a kind, with the way to the stored version and back.

    Both functions take and return typed values. Metadata is carried over as it is.

    Attributes:
        name: for example `v1alpha1`.
        cls: the class of this version.
        to_stored: from this version to the stored one.
        from_stored: the way back.
        served: whether the API server offers the version.
    """

    name: str
    cls: type[KubeObject]
    to_stored: Callable[[Any], KubeObject]
    from_stored: Callable[[Any], KubeObject]
    served: bool = True


@frozen
class Definition:
    """The parts of a CRD besides the schema of its stored version; see `crd`."""

    resource: Resource
    cls: type[KubeObject]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    rules: tuple[Rule, ...] = ()
    selectable: tuple[str, ...] = ()
    versions: tuple[Version, ...] = ()


def crd(
    group: str,
    version: str,
    *,
    plural: str,
    kind: str = "",
    namespaced: bool = True,
    short_names: Sequence[str] = (),
    categories: Sequence[str] = (),
    columns: Sequence[Column] = (),
    rules: Sequence[Rule] = (),
    selectable: Sequence[str] = (),
    versions: Sequence[Version] = (),
) -> Callable[[type[T]], type[T]]:
    """Make a CustomResourceDefinition from an attrs class.

    A field without a default is required; a default other than the zero of its type becomes a
    default of the schema. With a field `status`, the kind has the subresource.

    Args:
        group: the API group, for example `example.com`.
        version: the stored version, for example `v1`.
        plural: the name in URLs, for example `widgets`.
        kind: the name of the class when empty.
        namespaced: whether objects live in namespaces.
        short_names: further names for `kubectl`.
        categories: groups of kinds, for example `all`.
        columns: what `kubectl get` prints, before the fields with `wire(column=...)` and the age,
            which comes last unless a column is called Age.
        rules: what must hold, in CEL.
        selectable: JSON paths for field selectors, for example `.spec.team`.
        versions: further versions.

    Returns:
        a decorator that gives the class its `resource` and its `definition`.

    Raises:
        ConfigError: a name is not valid, a field cannot be expressed in a schema, or a column, a
            rule or a selectable path names a field that the class does not have.
        TypeError: the class is not an attrs class.
    """

    def decorate(cls: type[T]) -> type[T]:
        if "__attrs_attrs__" not in vars(cls):
            flaw = "a dataclass" if "__dataclass_fields__" in vars(cls) else "not an attrs class"
            fix = "put @frozen of kueuelib.runtime below @crd"
            raise TypeError(f"{cls.__name__} is {flaw}: {fix}")
        if not issubclass(cls, KubeObject):
            raise TypeError(f"{cls.__name__} is not a KubeObject: extend KubeObject")
        resource = Resource(group, version, plural, kind or cls.__name__, namespaced)
        _check(resource, [version, *(other.name for other in versions)])
        cls.resource = resource
        cls.definition = definition = Definition(
            resource,
            cls,
            tuple(short_names),
            tuple(categories),
            tuple(columns),
            tuple(rules),
            tuple(selectable),
            tuple(versions),
        )
        for other in versions:
            other.cls.resource = resource.at(other.name)
        _check_names(
            definition,
            {version: _schema(cls), **{other.name: _schema(other.cls) for other in versions}},
        )
        return cls

    return decorate


def definition_of(cls: type[KubeObject]) -> Definition:
    """The arguments of `crd` for a class.

    Raises:
        ConfigError: the class is not decorated.
    """
    definition = cls.definition
    if not isinstance(definition, Definition):
        raise ConfigError(cls.__name__, "has no definition", "decorate the class with @crd")
    return definition


def crd_of(cls: type[KubeObject], client_config: Obj | None = None) -> Obj:
    """The CustomResourceDefinition of a class.

    Args:
        cls: a class decorated with `crd`.
        client_config: how the API server reaches the conversion webhook. Needed when there are
            further versions.

    Raises:
        ConfigError: the class is not decorated, `client_config` is missing, or a field cannot be
            expressed in a schema; the message names field and fix.
    """
    definition = definition_of(cls)
    conversion: Obj = {"strategy": "None"}
    if definition.versions:
        if client_config is None:
            raise ConfigError(
                f"{cls.__name__}",
                "has further versions, which need a conversion webhook",
                "pass client_config",
            )
        conversion = webhook_conversion(client_config)
    stored = definition.resource.version
    entries = [_entry(definition, stored, definition.cls, served=True)]
    entries += [
        _entry(definition, each.name, each.cls, served=each.served) for each in definition.versions
    ]
    names = {"shortNames": definition.short_names, "categories": definition.categories}
    return assembled(
        definition.resource,
        {key: list(value) for key, value in names.items() if value},
        conversion,
        entries,
    )


def _entry(definition: Definition, version: str, cls: type[KubeObject], *, served: bool) -> Obj:
    stored = version == definition.resource.version
    schema = object_schema(cls, derived=True)
    columns = [*definition.columns, *_columns(cls, schema)]
    if columns and "age" not in {each.name.lower() for each in columns}:
        columns.append(Column("Age", ".metadata.creationTimestamp", "date"))
    return version_entry(
        version,
        schema,
        stored=stored,
        served=served,
        columns=columns,
        rules=(rule for rule in definition.rules if rule.version in ("", version)),
        selectable=definition.selectable if stored else (),
    )


def _columns(cls: type[Struct], schema: Obj, path: str = "") -> Iterator[Column]:
    """The columns that `wire(column=...)` names."""
    for field in attrs.fields(attrs.resolve_types(cls)):
        name = json_name(field)
        inner, heading = (
            schema.get("properties", {}).get(name),
            field.metadata.get("wire", WireField()).column,
        )
        if inner is None:
            continue
        if heading:
            kind = "date" if inner.get("format") == "date-time" else inner.get("type", "string")
            yield Column(heading, f"{path}.{name}", kind if kind in _PRINTED else "string")
        elif isinstance(field.type, type) and issubclass(field.type, Struct):
            yield from _columns(field.type, inner, f"{path}.{name}")


def converted(definition: Definition, obj: Obj, version: str) -> Obj:
    """An object in another version of its kind; a new dict, or the object itself.

    Args:
        definition: the kind.
        obj: the raw object; its `apiVersion` says which version it is in.
        version: without group.

    Raises:
        InvalidObject: the object does not fit its class, or one of the versions is not known.
    """
    stored = definition.resource
    others = {each.name: each for each in definition.versions}
    present = str(obj.get("apiVersion", "")).rpartition("/")[2]
    for name in (present, version):
        if name != stored.version and name not in others:
            known = ", ".join((stored.version, *others))
            problem = FieldError(
                "apiVersion", "FieldValueNotSupported", f"{name!r} is not one of: {known}"
            )
            raise InvalidObject(
                stored.kind, str(obj.get("metadata", {}).get("name", "")), [problem]
            )
    if present == version:
        return obj
    metadata = obj.get("metadata") or {}
    if present != stored.version:
        other = others[present]
        obj = encode(other.to_stored(decode(other.cls, obj)))
    if version != stored.version:
        obj = encode(others[version].from_stored(decode(definition.cls, obj)))
    return {**obj, "metadata": metadata}


def _check(resource: Resource, versions: Sequence[str]) -> None:
    for name, value in (("plural", resource.plural), ("group", resource.group)):
        if not all(_NAME.fullmatch(part) for part in value.split(".")) or not value:
            raise ConfigError(
                f"@crd {resource.kind}",
                f"{name} {value!r} is not a valid name",
                "use lower-case letters, digits and '-'",
            )
    if "." not in resource.group:
        raise ConfigError(
            f"@crd {resource.kind}",
            f"group {resource.group!r} is not a domain",
            f"write for example {resource.group}.example.com",
        )
    for version in versions:
        if not _VERSION.fullmatch(version):
            raise ConfigError(
                f"@crd {resource.kind}",
                f"version {version!r} is not valid",
                "write for example v1, v1beta1 or v1alpha2",
            )
    if len(set(versions)) < len(versions):
        raise ConfigError(
            f"@crd {resource.kind}", f"versions are not unique: {versions}", "name each once"
        )


def _schema(cls: type[KubeObject]) -> Obj | None:
    """The schema of a class; None if it names a class that may be defined later.

    Raises:
        ConfigError: a field has no schema; the traceback still leads to the class.
    """
    try:
        return object_schema(cls, derived=True)
    except ConfigError as error:
        if not isinstance(error.__cause__, NameError):
            raise
        return None


def _check_names(definition: Definition, schemas: Mapping[str, Obj | None]) -> None:
    """Refuse rules, columns and selectable paths with fields that the schemas do not have."""
    subject = f"@crd {definition.resource.kind}"
    for rule in definition.rules:
        for version, schema in schemas.items():
            if schema is None or rule.version not in ("", version):
                continue
            try:
                place = node(schema, rule.at)
            except (KeyError, TypeError) as error:
                raise ConfigError(
                    subject,
                    f"a rule is for {rule.at}, which is not in the schema of {version}",
                    "write the JSON path of a field, for example spec.items[]",
                ) from error
            for problem in unknown_names(place, rule.cel):
                where = f"{rule.at or 'the object'} in {version}"
                raise ConfigError(subject, f"rule {rule.cel!r} for {where}", problem)
    stored = schemas[definition.resource.version]
    if stored is None:
        return
    paths = [(f"column {each.name!r}", each.path) for each in definition.columns]
    paths += [("selectable", path) for path in definition.selectable]
    for what, path in paths:
        problems = [unknown_field(schema, path) for schema in schemas.values() if schema]
        if all(problems):
            raise ConfigError(subject, f"{what}: {path}", problems[0])
