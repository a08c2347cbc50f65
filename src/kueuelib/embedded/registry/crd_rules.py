"""CustomResourceDefinitions: their strategy on the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kueuelib.api.meta import Obj, find_condition, format_time
from kueuelib.embedded.admission.plugin import AdmissionRequest, KindRules
from kueuelib.embedded.builtins import naming
from kueuelib.embedded.builtins.fields import (
    forbidden,
    immutable,
    invalid,
    listed,
    not_supported,
    required,
    section,
    setdefault,
    subobject,
)
from kueuelib.embedded.registry.json_path import JsonPath
from kueuelib.embedded.registry.registry import Registry
from kueuelib.embedded.schema.structural import StructuralSchema
from kueuelib.errors import FieldError

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
SCOPES = ("Cluster", "Namespaced")


class CrdRules(KindRules):
    """The strategy of definitions; what is stored is served from the same moment on."""

    def __init__(self) -> None:
        self.registry: Registry | None = None

    def default(self, obj: Obj) -> None:
        """Names, conversion, the port of its webhook."""
        spec = subobject(obj, "spec")
        names = subobject(spec, "names")
        if isinstance(names.get("kind"), str):
            setdefault(names, "singular", names["kind"].lower())
            setdefault(names, "listKind", f"{names['kind']}List")
        conversion = subobject(spec, "conversion")
        setdefault(conversion, "strategy", "None")
        service = section(conversion, "webhook", "clientConfig", "service")
        if isinstance(service, dict) and service:
            setdefault(service, "port", 443)

    def prepare_create(self, obj: Obj, request: AdmissionRequest) -> None:
        """Its status is the server's; its objects go before it does."""
        meta = obj["metadata"]
        meta["finalizers"] = list(dict.fromkeys([*listed(meta, "finalizers"), CLEANUP]))
        obj["status"] = {"conditions": [], "acceptedNames": {}, "storedVersions": []}
        self._settle(obj, None, request.now)

    def prepare_update(self, obj: Obj, old: Obj, request: AdmissionRequest) -> None:
        """A changed wish changes what is served."""
        if not request.subresource:
            self._settle(obj, old, request.now)

    def prepare_delete(self, obj: Obj, request: AdmissionRequest) -> None:
        """Shows that its objects are being removed."""
        _set_condition(
            subobject(obj, "status"),
            "Terminating",
            "True",
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
            request.now,
        )

    def validate_create(self, obj: Obj) -> Sequence[FieldError]:
        """The whole definition."""
        return _validate(obj)

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """The whole definition, and what may not change."""
        if subresource == "status":
            return ()
        spec, before = obj["spec"], old["spec"]
        errors = _validate(obj)
        errors += immutable("spec.group", spec.get("group"), before.get("group"))
        errors += immutable("spec.scope", spec.get("scope"), before.get("scope"))
        errors += immutable(
            "spec.names.kind", spec["names"].get("kind"), before["names"].get("kind")
        )
        errors += immutable(
            "spec.names.plural", spec["names"].get("plural"), before["names"].get("plural")
        )
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
        """Accepts the names when they are free, and establishes the definition."""
        spec = obj["spec"]
        status = subobject(obj, "status")
        taken = self._taken(spec)
        if taken:
            _set_condition(status, "NamesAccepted", "False", *taken, now)
            if not find_condition(status.get("conditions"), "Established"):
                text = "not all names are accepted"
                _set_condition(status, "Established", "False", "NotAccepted", text, now)
        else:
            text = "no conflicts found"
            _set_condition(status, "NamesAccepted", "True", "NoConflicts", text, now)
            text = "the initial names have been accepted"
            _set_condition(status, "Established", "True", "InitialNamesAccepted", text, now)
            status["acceptedNames"] = dict(spec.get("names") or {})
        stored = [each.get("name") for each in listed(spec, "versions") if each.get("storage")]
        before = [] if old is None else listed(section(old, "status"), "storedVersions")
        status["storedVersions"] = list(dict.fromkeys([*before, *stored]))

    def _taken(self, spec: Mapping[str, Any]) -> tuple[str, str] | None:
        """Reason and message when a name belongs to another kind of the group."""
        assert self.registry is not None
        names = section(spec, "names")
        for kind in self.registry:
            if kind.group != spec.get("group") or kind.plural == names.get("plural"):
                continue
            if kind.kind in (names.get("kind"), names.get("listKind")):
                return "KindConflict", f'"{kind.kind}" is already in use'
            own = {kind.plural, kind.singular, *kind.short_names}
            for name in (names.get("singular"), *listed(names, "shortNames")):
                if name in own:
                    return "NamesConflict", f'"{name}" is already in use'
        return None


def is_established(crd: Obj) -> bool:
    """Whether a definition is to be served."""
    conditions = section(crd, "status").get("conditions")
    return find_condition(conditions, "Established").get("status") == "True"


def _set_condition(
    status: Obj, type_: str, value: str, reason: str, message: str, now: float
) -> None:
    old = find_condition(status.get("conditions"), type_)
    moment = old.get("lastTransitionTime") if old.get("status") == value else None
    new = {
        "type": type_,
        "status": value,
        "lastTransitionTime": moment or format_time(now),
        "reason": reason,
        "message": message,
    }
    others = [each for each in status.get("conditions") or () if each.get("type") != type_]
    status["conditions"] = [*others, new]


def _validate(obj: Obj) -> list[FieldError]:
    spec = section(obj, "spec")
    names = section(spec, "names")
    group, plural = spec.get("group") or "", names.get("plural") or ""
    errors: list[FieldError] = []
    if not group:
        errors.append(required("spec.group"))
    else:
        errors += [invalid("spec.group", group, text) for text in naming.subdomain(group)]
        if "." not in group:
            errors.append(invalid("spec.group", group, "should be a domain with at least one dot"))
    if spec.get("scope") not in SCOPES:
        scope = spec.get("scope")
        errors.append(
            not_supported("spec.scope", scope, SCOPES) if scope else required("spec.scope")
        )
    for key in ("plural", "singular"):
        value = names.get(key) or ""
        errors += [invalid(f"spec.names.{key}", value, text) for text in naming.label_1035(value)]
    for key in ("kind", "listKind"):
        value = names.get(key) or ""
        errors += [
            invalid(
                f"spec.names.{key}",
                value,
                "may have mixed case, but should otherwise match: " + text,
            )
            for text in naming.label_1035(value.lower())
        ]
    name = obj["metadata"].get("name", "")
    if name != f"{plural}.{group}":
        errors.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    errors += _validate_versions(listed(spec, "versions"))
    errors += _validate_conversion(section(spec, "conversion"))
    return errors


def _validate_versions(versions: Sequence[Mapping[str, Any]]) -> list[FieldError]:
    path = "spec.versions"
    if not versions:
        return [required(path)]
    errors: list[FieldError] = []
    stored = sum(1 for each in versions if each.get("storage"))
    if stored != 1:
        errors.append(
            invalid(
                path,
                [each.get("name") for each in versions],
                "must have exactly one version marked as storage version",
            )
        )
    seen = set()
    columns = [listed(version, "additionalPrinterColumns") for version in versions]
    shared = all(each == columns[0] for each in columns)
    for i, version in enumerate(versions):
        where, name = f"{path}[{i}]", version.get("name") or ""
        errors += [invalid(f"{where}.name", name, text) for text in naming.label_1035(name)]
        if name in seen:
            errors.append(invalid(path, name, "must contain unique version names"))
        seen.add(name)
        schema = section(version, "schema").get("openAPIV3Schema")
        schema_path = f"{where}.schema.openAPIV3Schema"
        if not schema:
            errors.append(required(schema_path, "schemas are required"))
        elif schema.get("type") != "object":
            text = "must be object at the root"
            errors.append(invalid(f"{schema_path}.type", schema.get("type"), text))
        else:
            errors += _validate_schema(schema, schema_path)
        errors += _validate_columns(
            listed(version, "additionalPrinterColumns"),
            # What is the same in all versions is reported as if it were given once for all.
            f"{'spec' if shared else where}.additionalPrinterColumns",
        )
    return errors


def _validate_schema(schema: Mapping[str, Any], path: str) -> list[FieldError]:
    try:
        found = StructuralSchema.of(schema)
    except (ValueError, TypeError, AttributeError) as error:
        return [invalid(path, schema.get("type"), f"must be a structural schema: {error}")]
    return found.rule_problems(path)


def _validate_columns(columns: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, column in enumerate(columns):
        where = f"{path}[{i}]"
        if not column.get("name"):
            errors.append(required(f"{where}.name"))
        if column.get("type") not in COLUMN_TYPES:
            known = f"must be one of {','.join(sorted(COLUMN_TYPES))}"
            errors.append(invalid(f"{where}.type", column.get("type"), known))
        text = column.get("jsonPath")
        if not text:
            errors.append(required(f"{where}.JSONPath"))
            continue
        try:
            JsonPath(text)
        except ValueError as error:
            errors.append(invalid(f"{where}.JSONPath", text, str(error)))
    return errors


def _validate_conversion(conversion: Mapping[str, Any]) -> list[FieldError]:
    path = "spec.conversion"
    strategy = conversion.get("strategy")
    hook = conversion.get("webhook")
    if strategy not in ("None", "Webhook"):
        return [not_supported(f"{path}.strategy", strategy, ("None", "Webhook"))]
    if strategy == "None":
        if hook:
            text = 'should not be set when strategy is not set to "Webhook"'
            return [forbidden(f"{path}.webhook", text)]
        return []
    hook = hook or {}
    errors: list[FieldError] = []
    client = hook.get("clientConfig")
    if client is None:
        text = "required when strategy is set to Webhook"
        errors.append(required(f"{path}.webhookClientConfig", text))
    elif bool(client.get("url")) == bool(client.get("service")):
        text = "exactly one of url or service is required"
        errors.append(required(f"{path}.webhookClientConfig", text))
    if not listed(hook, "conversionReviewVersions"):
        errors.append(required(f"{path}.conversionReviewVersions"))
    return errors
