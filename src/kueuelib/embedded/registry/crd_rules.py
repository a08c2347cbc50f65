"""The server's strategy for CustomResourceDefinitions, and their rules, but for their schemas."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from kueuelib.api.meta import Obj, find_condition, with_raw_condition
from kueuelib.embedded.admission.hook_rules import validate_client, validate_reviews
from kueuelib.embedded.admission.plugin import AdmissionAttributes, KindRules
from kueuelib.embedded.builtins.fields import (
    duplicate,
    forbidden,
    invalid,
    listed,
    not_supported,
    required,
    section,
    setdefault,
    subobject,
    unchanged,
)
from kueuelib.embedded.builtins.metadata import label_1035, subdomain
from kueuelib.embedded.builtins.rule_table import BrokenRules, Check, ValuePlace, check
from kueuelib.embedded.registry.cells import JsonPath
from kueuelib.embedded.registry.kinds import Kind, Registry
from kueuelib.embedded.schema.formats import is_known
from kueuelib.embedded.schema.node import MISSING, SchemaNode
from kueuelib.embedded.schema.structural import StructuralSchema, prune
from kueuelib.embedded.schema.structural_rules import (
    has_unsupported,
    openapi_problems,
    parts_of,
    structural_problems,
)
from kueuelib.embedded.schema.validate import validate_value
from kueuelib.errors import FieldError

# ---- validates the schema of one version of a CustomResourceDefinition ---------------------------

_AT_THE_ROOT = {
    **{
        name: name[0].upper() + name[1:]
        for name in (
            *("description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum"),
            *("exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems", "minItems"),
            *("uniqueItems", "multipleOf", "required", "items", "properties", "externalDocs"),
            "example",
        )
    },
    "x-kubernetes-preserve-unknown-fields": "XPreserveUnknownFields",
    "x-kubernetes-validations": "XValidations",
}
"""What the root may contain when the status is a subresource, and its name in messages."""


def schema_problems(
    schema: Mapping[str, Any], path: str, *, status: bool, lenient: bool
) -> list[FieldError]:
    """What is wrong with a schema; CEL rules are compiled only if it is otherwise valid.

    Args:
        schema: the OpenAPI schema.
        path: of the schema in the definition.
        status: whether the status is a subresource.
        lenient: whether the definition was stored before with a schema that is not structural.
    """
    errors = _root_problems(schema, path) if status else []
    if schema.get("nullable"):
        errors.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    shape: list[FieldError] = []
    if not lenient and not has_unsupported(schema):
        shape = structural_problems(schema, path)
        errors += shape
    basics = openapi_problems(schema, path)
    if shape or basics or lenient:
        return [*errors, *basics]
    try:
        structural = StructuralSchema.of(schema)
    except (ValueError, TypeError, AttributeError) as error:
        return [*errors, invalid(path, "", f"error building validator: {error}")]
    errors += _default_problems(structural.node, path, head=True)
    return errors or structural.rule_problems(path)


def is_structural(schema: Mapping[str, Any]) -> bool:
    """Whether a schema that was stored before is structural."""
    return not has_unsupported(schema) and not structural_problems(schema, "")


def _root_problems(schema: Mapping[str, Any], path: str) -> list[FieldError]:
    """What is wrong with the root, if the status is a subresource."""
    if schema.get("type") != "object":
        text = (
            'only "object" is allowed as the type at the root of the schema if the status '
            "subresource is enabled"
        )
        return [invalid(f"{path}.type", schema.get("type") or "", text)] if "type" in schema else []
    keywords = (name for name, value in schema.items() if value not in (None, False, "", []))
    if all(name in _AT_THE_ROOT or name == "nullable" for name in keywords):
        return []
    names = " ".join(_AT_THE_ROOT.values())
    text = (
        f"only [{names}] fields are allowed at the root of the schema if the status subresource "
        "is enabled"
    )
    return [invalid(path, dict(schema), text)]


_HEAD = frozenset({"apiVersion", "kind", "metadata"})


def _default_problems(node: SchemaNode, path: str, *, head: bool = False) -> Iterator[FieldError]:
    """Why defaults are not valid without a look at CEL rules; values of maps have none."""
    if node.default is not MISSING:
        yield from _problems_of(node, node.default, f"{path}.default")
    if node.items is not None:
        yield from _default_problems(node.items, f"{path}.items")
    for name, sub in sorted(node.properties.items()):
        if not ((head or node.embedded) and name in _HEAD):
            yield from _default_problems(sub, f"{path}.properties[{name}]")


def _problems_of(node: SchemaNode, default: Any, path: str) -> Iterator[FieldError]:
    holder = SchemaNode(properties={"value": node})
    if prune(holder, {"value": copy.deepcopy(default)}):
        yield invalid(path, default, "must not have unknown fields")
    for error in validate_value(node, default):
        where = error.path if error.path.startswith("[") or not error.path else f".{error.path}"
        yield attrs.evolve(error, path=path + where)


# --------------------------------------------------------------------------------------------------

APPROVAL = "api-approved.kubernetes.io"
APPROVAL_URL = "https://github.com/kubernetes/enhancements/pull/1111"
STRATEGIES = ("None", "Webhook")
SELECTABLE_LIMIT = 8
DEPRECATION_LIMIT = 256
FACETS: Mapping[str, tuple[str, str]] = {
    "schema": ("spec.validation", "schema"),
    "subresources": ("spec.subresources", "subresources"),
    "additionalPrinterColumns": ("spec.additionalPrinterColumns", "additionalPrinterColumns"),
    "selectableFields": ("spec.selectableFields", "selectableFields"),
}
"""The names, in messages, of a part that is the same in all versions, and of one in a single
version.
"""
_PROTECTED = ("k8s.io", "kubernetes.io")
_STEP = re.compile(r"\.(?P<field>[A-Za-z_][\w-]*)|\['(?P<quoted>(?:[^'\\]|\\.)*)'\]|(?P<array>\[)")


def validate_definition(obj: Obj, old: Obj | None) -> list[FieldError]:
    """Every broken rule of a definition.

    Args:
        obj: the definition, with defaults.
        old: the previous state; rules that it breaks already may stay broken.
    """
    spec = section(obj, "spec")
    names = section(spec, "names")
    group, plural = spec.get("group") or "", names.get("plural") or ""
    errors: list[FieldError] = []
    name = obj["metadata"].get("name", "")
    if name != f"{plural}.{group}":
        errors.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    errors += check("CrdSpec", spec, "spec", group=_group)
    lenient = old is not None and not all(
        is_structural(section(each, "schema").get("openAPIV3Schema") or {})
        for each in listed(section(old, "spec"), "versions")
    )
    errors += _validate_versions(listed(spec, "versions"), lenient=lenient)
    errors += check("CrdNames", names, "spec.names", **_NAMES)
    errors += _validate_shared(listed(spec, "versions"), lenient=lenient)
    errors += _validate_conversion(section(spec, "conversion"))
    errors += _validate_approval(obj, old)
    if spec.get("preserveUnknownFields") and not section(old or {}, "spec").get(
        "preserveUnknownFields"
    ):
        text = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
            "spec.versions[*].schema instead"
        )
        errors.append(invalid("spec.preserveUnknownFields", value=True, detail=text))
    return errors


# ---- names ---------------------------------------------------------------------------------------


def _group(at: ValuePlace, _: str) -> BrokenRules:
    why = ",".join(subdomain(at.value))
    why = why or ("" if "." in at.value else "should be a domain with at least one dot")
    return [invalid(at.path, at.value, why)] if why else []


def _name(at: ValuePlace, before: str) -> BrokenRules:
    texts = label_1035(at.value.lower() if before else at.value)
    return [invalid(at.path, at.value, before + ",".join(texts))] if texts else []


def _names(at: ValuePlace, _: str) -> BrokenRules:
    places = [attrs.evolve(at, value=x, path=f"{at.path}[{i}]") for i, x in enumerate(at.value)]
    return [error for each in places for error in _name(each, "") or ()]


def _different(at: ValuePlace, _: str) -> BrokenRules:
    text = "kind and listKind may not be the same"
    return [invalid(at.path, at.value, text)] if at.value == at.outer.get("kind") else []


_MIXED: Final = "may have mixed case, but should otherwise match: "
_NAMES: Final[Mapping[str, Check]] = {
    "name": _name,
    "names": _names,
    "mixed": lambda at, _: _name(at, _MIXED),
    "different": _different,
}


def _validate_approval(obj: Obj, old: Obj | None) -> list[FieldError]:
    group = section(obj, "spec").get("group") or ""
    if not any(group == each or group.endswith(f".{each}") for each in _PROTECTED):
        return []
    state = _approval(obj)
    if state in ("approved", "bypassed") or (old is not None and state == _approval(old)):
        return []
    path = f"metadata.annotations[{APPROVAL}]"
    text = f'protected groups must have approval annotation "{APPROVAL}"'
    if state == "missing":
        return [required(path, f"{text}, see {APPROVAL_URL}")]
    text += f' with either a URL or a reason starting with "unapproved", see {APPROVAL_URL}'
    return [invalid(path, section(obj, "metadata", "annotations")[APPROVAL], text)]


def _approval(obj: Obj) -> str:
    approval = section(obj, "metadata", "annotations").get(APPROVAL) or ""
    if not approval:
        return "missing"
    if approval.startswith("unapproved"):
        return "bypassed"
    try:
        url = urlsplit(approval)
    except ValueError:
        return "invalid"
    return "approved" if url.scheme and url.netloc else "invalid"


# ---- versions ------------------------------------------------------------------------------------


def _shared(versions: Sequence[Mapping[str, Any]], facet: str) -> bool:
    """Whether all versions agree on something: then messages name it once."""
    first = versions[0].get(facet)
    return bool(first) and all(each.get(facet) == first for each in versions)


def _validate_versions(versions: Sequence[Mapping[str, Any]], *, lenient: bool) -> list[FieldError]:
    path = "spec.versions"
    if not versions:
        return [required(path)]
    errors: list[FieldError] = []
    for i, version in enumerate(versions):
        if section(version, "schema").get("openAPIV3Schema") is None:
            errors.append(required(f"{path}[{i}].schema.openAPIV3Schema"))
    for i, version in enumerate(versions):
        where, name = f"{path}[{i}]", version.get("name") or ""
        if texts := label_1035(name):
            errors.append(invalid(f"{where}.name", name, ",".join(texts)))
        errors += _validate_deprecation(version, f"{where}.deprecationWarning")
        for facet, (_, own) in FACETS.items():
            if not _shared(versions, facet):
                errors += _validate_facet(facet, version, f"{where}.{own}", lenient=lenient)
    all_names = [each.get("name") or "" for each in versions]
    if len(set(all_names)) < len(all_names):
        errors.append(invalid(path, all_names, "must contain unique version names"))
    if sum(1 for each in versions if each.get("storage")) != 1:
        text = "must have exactly one version marked as storage version"
        errors.append(invalid(path, all_names, text))
    return errors


def _validate_shared(versions: Sequence[Mapping[str, Any]], *, lenient: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    for facet, (path, _) in FACETS.items():
        if versions and _shared(versions, facet):
            errors += _validate_facet(facet, versions[0], path, lenient=lenient)
    return errors


def _validate_facet(
    facet: str, version: Mapping[str, Any], path: str, *, lenient: bool
) -> list[FieldError]:
    schema = section(version, "schema").get("openAPIV3Schema") or {}
    if facet == "schema":
        status = "status" in section(version, "subresources")
        if section(version, "schema").get("openAPIV3Schema") is None:
            return []
        where = f"{path}.openAPIV3Schema"
        return schema_problems(schema, where, status=status, lenient=lenient)
    if facet == "subresources":
        return _validate_scale(section(version, facet).get("scale"), f"{path}.scale")
    if facet == "selectableFields":
        return _validate_selectable(listed(version, facet), schema, path)
    return check("CrdColumn", listed(version, facet), path, json_path=_json_path)


def unknown_formats(spec: Mapping[str, Any]) -> list[str]:
    """The formats in the schemas of a definition that Kubernetes does not know."""
    names = [
        name
        for version in listed(spec, "versions")
        for name in _formats(section(version, "schema").get("openAPIV3Schema"))
    ]
    return sorted(set(names))


def _formats(schema: Any) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    name = schema.get("format")
    if name and not is_known(schema.get("type") or "", name):
        yield name
    for part in parts_of(schema):
        yield from _formats(part)


def _validate_deprecation(version: Mapping[str, Any], path: str) -> list[FieldError]:
    text = version.get("deprecationWarning")
    if text is None:
        return []
    if not version.get("deprecated"):
        return [invalid(path, text, "can only be set for deprecated versions")]
    if len(text.encode()) > DEPRECATION_LIMIT:
        return [invalid(path, text, f"must be <= {DEPRECATION_LIMIT} characters long")]
    return [] if text else [invalid(path, text, "must not be an empty string")]


def _json_path(at: ValuePlace, _: str) -> BrokenRules:
    text, where = at.value.get("jsonPath") or "", f"{at.path}.JSONPath"
    if problem := _path_problem(text, where):
        return problem
    try:
        JsonPath(text)
    except ValueError as error:
        return [invalid(where, text, str(error))]
    return []


def _path_problem(text: str, where: str) -> list[FieldError]:
    if not text:
        return [required(where)]
    if not text.startswith("."):
        return [invalid(where, text, "must be a simple json path starting with .")]
    return []


def _validate_scale(scale: Mapping[str, Any] | None, path: str) -> list[FieldError]:
    if scale is None:
        return []
    errors: list[FieldError] = []
    for key, prefixes, words in (
        ("specReplicasPath", (".spec.",), ".spec"),
        ("statusReplicasPath", (".status.",), ".status"),
        ("labelSelectorPath", (".spec.", ".status."), "either .spec or .status"),
    ):
        text, where = scale.get(key) or "", f"{path}.{key}"
        if key == "labelSelectorPath" and not text:
            continue
        problem = _path_problem(text, where)
        if not problem and not text.startswith(prefixes):
            problem = [invalid(where, text, f"should be a json path under {words}")]
        errors += problem
    return errors


def _validate_selectable(
    fields: Sequence[Mapping[str, Any]], schema: Mapping[str, Any], path: str
) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for i, field in enumerate(fields):
        where, text = f"{path}[{i}].jsonPath", field.get("jsonPath") or ""
        if not text:
            errors.append(required(where))
            continue
        try:
            field_schema = _field_of(schema, text)
        except ValueError as error:
            errors.append(invalid(where, text, f"is an invalid path: {error}"))
            continue
        if text.startswith((".metadata.", "['metadata']")):
            errors.append(invalid(where, text, "must not point to fields in metadata"))
        if field_schema.get("type") not in ("string", "boolean", "integer"):
            words = (
                "must point to a field of type string, boolean or integer. Enum string fields "
                "and strings with formats are allowed."
            )
            errors.append(invalid(where, text, words))
        if text in seen:
            errors.append(duplicate(where, text))
        seen.add(text)
    if len(seen) > SELECTABLE_LIMIT:
        text = f"Too many: {len(seen)}: must have at most {SELECTABLE_LIMIT} items"
        errors.append(FieldError(path, "FieldValueTooMany", text))
    return errors


def _field_of(schema: Mapping[str, Any], text: str) -> Mapping[str, Any]:
    """The schema of the field at a path.

    Raises:
        ValueError: it does not exist, or the path is not valid.
    """
    at, node = 0, schema
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            raise ValueError(f"expected [ or . but got: {text[at:].split('.', maxsplit=1)[0]}")
        if step["array"]:
            raise ValueError("array notation is not allowed")
        inner = (node.get("properties") or {}).get(step["field"] or step["quoted"])
        if inner is None:
            raise ValueError("does not refer to a valid field")
        node, at = inner, step.end()
    return node


# ---- conversion ----------------------------------------------------------------------------------


def _validate_conversion(conversion: Mapping[str, Any]) -> list[FieldError]:
    path = "spec.conversion"
    strategy, hook = conversion.get("strategy"), conversion.get("webhook")
    if strategy not in STRATEGIES:
        return [not_supported(f"{path}.strategy", strategy, STRATEGIES)]
    client, where = (hook or {}).get("clientConfig"), f"{path}.webhookClientConfig"
    reviews = listed(hook or {}, "conversionReviewVersions")
    if strategy == "None":
        text = "should not be set when strategy is not set to Webhook"
        conflicts = [] if client is None else [forbidden(where, text)]
        return [
            *conflicts,
            *([forbidden(f"{path}.conversionReviewVersions", text)] if reviews else ()),
        ]
    errors: list[FieldError] = []
    if client is None:
        errors.append(required(where, "required when strategy is set to Webhook"))
    else:
        errors += validate_client(client, where)
    path = f"{path}.conversionReviewVersions"
    return [*errors, *(validate_reviews(reviews, path) if reviews else [required(path)])]


# ---- the owners of names in a group: a definition is served if no other one has its names --------

_ORDER = (
    ("plural", "PluralConflict"),
    ("singular", "SingularConflict"),
    ("shortNames", "ShortNamesConflict"),
    ("kind", "KindConflict"),
    ("listKind", "ListKindConflict"),
)


@attrs.frozen
class AcceptedNames:
    """The names that a definition gets.

    Attributes:
        names: its `acceptedNames`.
        reason: of the last conflict; empty if there is none.
        message: the same for people.
    """

    names: Obj
    reason: str = ""
    message: str = ""


def accepted(
    wanted: Mapping[str, Any], held: Mapping[str, Any], others: Iterable[Kind]
) -> AcceptedNames:
    """Decide which of its requested names a definition gets.

    Args:
        wanted: `spec.names`.
        held: the `acceptedNames` so far, which stay if a requested name is taken.
        others: the other kinds that are served in the group.
    """
    resources: set[str] = set()
    kinds: set[str] = set()
    for kind in others:
        resources |= {kind.plural, kind.singular, *kind.short_names}
        kinds |= {kind.kind, kind.list_kind}
    names = dict(held)
    reason = message = ""
    for key, conflict in _ORDER:
        used = kinds if key in ("kind", "listKind") else resources
        if key == "shortNames":
            own = set(listed(held, key))
            taken = [name for name in listed(wanted, key) if name in used and name not in own]
        else:
            taken = [wanted[key]] if wanted.get(key) in used - {held.get(key)} else []
        if taken:
            texts = [f'"{name}" is already in use' for name in taken]
            reason, message = conflict, texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        elif wanted.get(key):
            names[key] = wanted[key]
        else:
            names.pop(key, None)
    if wanted.get("categories"):
        names["categories"] = wanted["categories"]
    else:
        names.pop("categories", None)
    return AcceptedNames(names, reason, message)


# --------------------------------------------------------------------------------------------------

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
ESTABLISHED = "Established"


class CrdRules(KindRules):
    """The strategy of definitions; a stored one is served at once."""

    def __init__(self) -> None:
        self.registry: Registry | None = None

    def default(self, obj: Obj) -> None:
        """Fill in names, conversion, and the port of its webhook."""
        spec = subobject(obj, "spec")
        names = subobject(spec, "names")
        if names.get("kind"):
            setdefault(names, "singular", names["kind"].lower())
            setdefault(names, "listKind", f"{names['kind']}List")
        conversion = subobject(spec, "conversion")
        setdefault(conversion, "strategy", "None")
        service = section(conversion, "webhook", "clientConfig", "service")
        if isinstance(service, dict) and service:
            setdefault(service, "port", 443)

    def prepare_create(self, obj: Obj, request: AdmissionAttributes) -> None:
        """Reset the status, and add the finalizer that removes its objects first."""
        meta = obj["metadata"]
        meta["finalizers"] = list(dict.fromkeys([*listed(meta, "finalizers"), CLEANUP]))
        obj["status"] = {"conditions": [], "acceptedNames": {}, "storedVersions": []}
        self._settle(obj, None, request.now)

    def prepare_update(self, obj: Obj, old: Obj, request: AdmissionAttributes) -> None:
        """Update the status after a change of the spec."""
        if not request.subresource:
            self._settle(obj, old, request.now)

    def warnings(self, obj: Obj, old: Obj | None) -> Sequence[str]:
        """Warnings about new, unknown formats."""
        known = frozenset() if old is None else frozenset(unknown_formats(old["spec"]))
        formats = unknown_formats(obj["spec"])
        return [f'unrecognized format "{name}"' for name in formats if name not in known]

    def prepare_delete(self, obj: Obj, request: AdmissionAttributes) -> None:
        """Show that its objects are being removed."""
        _set_condition(
            subobject(obj, "status"),
            "Terminating",
            True,
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
            request.now,
        )

    def validate_create(self, obj: Obj) -> Sequence[FieldError]:
        """Check the whole definition."""
        return validate_definition(obj, None)

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """Check the whole definition, and immutable fields."""
        if subresource == "status":
            return ()
        spec = obj["spec"]
        errors = validate_definition(obj, old)
        fixed = ("spec.group", "spec.scope", "spec.names.kind", "spec.names.plural")
        errors += unchanged(obj, old, *fixed)
        known = {each.get("name") for each in listed(spec, "versions")}
        stored = listed(section(old, "status"), "storedVersions")
        errors += [
            invalid(
                f"status.storedVersions[{i}]",
                name,
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions",
            )
            for i, name in enumerate(stored)
            if name not in known
        ]
        return errors

    def _settle(self, obj: Obj, old: Obj | None, now: float) -> None:
        """Accepts the names if they are free, and establishes the definition."""
        self._name(obj, now)
        spec, status = obj["spec"], obj["status"]
        stored = [each.get("name") for each in listed(spec, "versions") if each.get("storage")]
        before = [] if old is None else listed(section(old, "status"), "storedVersions")
        status["storedVersions"] = list(dict.fromkeys([*before, *stored]))

    def reconsider(self, obj: Obj, now: float) -> bool:
        """Checks again whether the names of a stored definition are free; returns whether that
        changed it.

        Args:
            obj: a copy of the definition, changed in place.
            now: seconds since the epoch.
        """
        before = dict(section(obj, "status"))
        self._name(obj, now)
        return bool(obj["status"] != before)

    def _name(self, obj: Obj, now: float) -> None:
        assert self.registry is not None
        spec, status = obj["spec"], subobject(obj, "status")
        plural = section(spec, "names").get("plural")
        others = [
            kind
            for kind in self.registry
            if kind.group == spec.get("group") and kind.plural != plural
        ]
        verdict = accepted(section(spec, "names"), section(status, "acceptedNames"), others)
        status["acceptedNames"] = verdict.names
        if verdict.reason:
            _set_condition(status, "NamesAccepted", False, verdict.reason, verdict.message, now)
            if not find_condition(status.get("conditions"), ESTABLISHED):
                text = "not all names are accepted"
                _set_condition(status, ESTABLISHED, False, "NotAccepted", text, now)
            return
        text = "no conflicts found"
        _set_condition(status, "NamesAccepted", True, "NoConflicts", text, now)
        text = "the initial names have been accepted"
        _set_condition(status, ESTABLISHED, True, "InitialNamesAccepted", text, now)


def _set_condition(
    status: Obj, type_: str, value: bool, reason: str, message: str, now: float
) -> None:
    conditions = status.get("conditions") or ()
    status["conditions"] = with_raw_condition(conditions, type_, value, reason, message, now=now)
