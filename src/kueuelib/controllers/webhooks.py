"""The admission and conversion webhooks of the queueing objects.

`serve` answers them, `queueing_entries` and `webhook_configurations` make the API server call them.
Names and paths are upstream's; every rule lists both versions, so objects arrive in the version
that their author used.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

from kueuelib.api import kinds
from kueuelib.api.conversion import convert
from kueuelib.api.crd import crd
from kueuelib.api.definitions import CONVERSION_PATH
from kueuelib.api.kinds import KUEUE, V1BETA1, V1BETA2
from kueuelib.api.meta import Obj, Resource, annotations_of, copied, labels_of
from kueuelib.api.missing_features import (
    TOPOLOGY,
    MissingFeature,
    asked_by_keys,
    asked_by_template,
    asked_by_topology,
    sentence,
)
from kueuelib.api.names import QUOTA_RESERVED
from kueuelib.api.validation import RULES, Rules
from kueuelib.runtime.webhook.admission import (
    IS_NEW,
    NEW,
    OLD,
    AdmissionRequest,
    Shape,
    ValidationResult,
    WebhookEntry,
    changed,
    condition,
    failing_closed,
    new_or_changed,
    of_others,
    present,
    types_of,
)
from kueuelib.runtime.webhook.server import WebhookServer

MUTATING_CONFIGURATION = "kueue-mutating-webhook-configuration"
VALIDATING_CONFIGURATION = "kueue-validating-webhook-configuration"
TIMEOUT_SECONDS = 10

ClientConfig = Callable[[str], Obj]
"""From a path to the raw `clientConfig` by which the API server reaches it, without `caBundle`."""

_DEFAULTED = (kinds.CLUSTER_QUEUES, kinds.RESOURCE_FLAVORS, kinds.WORKLOADS)
_VALIDATED = (*_DEFAULTED, kinds.LOCAL_QUEUES, kinds.ADMISSION_CHECKS, kinds.COHORTS)


def serve(server: WebhookServer, *, admits_claims: bool = False, places_pods: bool = True) -> None:
    """Answers defaulting, validation and conversion of the queueing objects.

    Args:
        server: of the webhooks.
        admits_claims: whether devices may be used without quota, so that no warning is due.
        places_pods: whether requests for a topology are served, so that no warning is due.
    """
    for resource in _DEFAULTED:
        server.mutate(path_of(resource, mutating=True), RULES[resource.kind].default)
    for resource in _VALIDATED:
        path = path_of(resource, mutating=False)
        validate = _validator(
            RULES[resource.kind], admits_claims=admits_claims, places_pods=places_pods
        )
        server.validate(path, validate, _Shapes(resource))
    server.convert(CONVERSION_PATH, convert)


class _Shapes(Mapping[str, Shape]):
    """The shapes that a validator can read; defaulting ignores values of other types.

    They are made for the first review: the schemas of all kinds take 10 ms.
    """

    def __init__(self, resource: Resource) -> None:
        self._kind = resource.kind

    @cached_property
    def _made(self) -> dict[str, Shape]:
        shapes = {}
        for version in crd(self._kind)["spec"]["versions"]:
            shape = types_of(version["schema"]["openAPIV3Schema"])
            shape["properties"]["kind"]["enum"] = [self._kind]
            shapes[f"{KUEUE}/{version['name']}"] = shape
        return shapes

    def __getitem__(self, version: str) -> Shape:
        return self._made[version]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def path_of(resource: Resource, *, mutating: bool) -> str:
    """The path of a kind's webhook; it names `v1beta1` for historical reasons only."""
    verb = "mutate" if mutating else "validate"
    return f"/{verb}-{resource.group.replace('.', '-')}-{V1BETA1}-{resource.kind.lower()}"


def queueing_entries() -> tuple[WebhookEntry, ...]:
    """The entries of all queueing kinds: defaulting on creation, validation on every write."""
    return (
        *(_entry(resource, mutating=True) for resource in _DEFAULTED),
        *(_entry(resource, mutating=False) for resource in _VALIDATED),
    )


def sparing(entries: Iterable[WebhookEntry], user: str) -> list[WebhookEntry]:
    """The entries, except that writes by our own user are not validated (docs/webhooks.md).

    Objects that the user creates get their defaults nevertheless.
    """
    spared = []
    for each in entries:
        conditions = [of_others(user), *each.entry.get("matchConditions", ())]
        more = {} if each.mutating else {"matchConditions": conditions}
        spared.append(WebhookEntry(each.mutating, each.path, {**each.entry, **more}))
    return spared


def webhook_configurations(
    entries: Iterable[WebhookEntry], client_config: ClientConfig
) -> list[Obj]:
    """The mutating and the validating configuration with these entries.

    Args:
        entries: of the queueing kinds and of every enabled integration.
        client_config: how the API server reaches a path; see `by_url` and `by_service`.
    """
    all_entries = list(entries)
    return [
        {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name},
            "webhooks": [
                {**copy.deepcopy(entry.entry), "clientConfig": client_config(entry.path)}
                for entry in all_entries
                if entry.mutating is mutating
            ],
        }
        for resource, name, mutating in (
            (kinds.MUTATING_WEBHOOKS, MUTATING_CONFIGURATION, True),
            (kinds.VALIDATING_WEBHOOKS, VALIDATING_CONFIGURATION, False),
        )
    ]


def with_conversion(crd: Obj, client_config: ClientConfig) -> Obj:
    """A CRD whose conversion webhook is reached this way; the same one when it needs none."""
    conversion = crd["spec"].get("conversion") or {}
    if conversion.get("strategy") != "Webhook":
        return crd
    made: Obj = copied(crd)
    made["spec"]["conversion"]["webhook"]["clientConfig"] = client_config(CONVERSION_PATH)
    return made


def by_url(base: str) -> ClientConfig:
    """Webhooks that are reached at an address, for example `https://127.0.0.1:9443`."""
    return lambda path: {"url": base.rstrip("/") + path}


def by_service(namespace: str, name: str, port: int = 443) -> ClientConfig:
    """Webhooks that are reached through a Service."""
    return lambda path: {
        "service": {"namespace": namespace, "name": name, "path": path, "port": port}
    }


def _validator(
    rules: Rules, *, admits_claims: bool = False, places_pods: bool = True
) -> Callable[[Obj | None, Obj | None, AdmissionRequest], ValidationResult]:
    def validate(new: Obj | None, old: Obj | None, _: AdmissionRequest) -> ValidationResult:
        if new is None:
            return ValidationResult()
        warnings = [*_warnings(new, places_pods=places_pods)]
        if old is None:
            warnings += _missing(new, admits_claims=admits_claims, places_pods=places_pods)
        return ValidationResult(rules.validate(new, old), warnings)

    return validate


def _missing(obj: Obj, *, admits_claims: bool, places_pods: bool) -> Iterator[str]:
    """A warning about a new Workload that asks for missing features; one of a job needs none."""
    if obj["kind"] == kinds.WORKLOADS.kind and not obj["metadata"].get("ownerReferences"):
        asked = [*asked_by_keys("the Workload", labels_of(obj), annotations_of(obj))]
        for pod_set in (obj.get("spec") or {}).get("podSets") or ():
            name, template = pod_set.get("name", ""), pod_set.get("template") or {}
            asked += asked_by_template(name, template, admits_claims=admits_claims)
            if not places_pods:
                asked += asked_by_topology(name, pod_set.get("topologyRequest"))
        if asked:
            yield f"it will wait: {sentence(asked)}"


def _warnings(obj: Obj, *, places_pods: bool) -> Iterator[str]:
    """Warnings about objects that are valid but probably not intended.

    For example a check for missing flavors, or a Cohort that is its own parent.
    """
    spec = obj.get("spec") or {}
    name = obj["metadata"].get("name")
    if name and spec.get("parentName") == name:
        yield (
            f'spec.parentName: Cohort "{name}" is its own parent; nothing below it is admitted '
            "until parentName is removed or names another Cohort"
        )
    if spec.get("topologyName") and not places_pods:
        asked = MissingFeature("the ResourceFlavor", "spec.topologyName", TOPOLOGY)
        yield f"{sentence([asked])}: quota alone decides in this flavor"
    offered = {
        flavor.get("name")
        for group in spec.get("resourceGroups") or ()
        for flavor in group.get("flavors") or ()
    }
    rules = (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
    for number, rule in enumerate(rules):
        for name in rule.get("onFlavors") or ():
            if name not in offered:
                yield (
                    f"spec.admissionChecksStrategy.admissionChecks[{number}].onFlavors: check "
                    f'"{rule.get("name")}" is for flavor "{name}", which no resource group offers'
                )


def _entry(resource: Resource, *, mutating: bool) -> WebhookEntry:
    resources = [resource.plural]
    if not mutating and resource is kinds.WORKLOADS:
        resources.append(f"{resource.plural}/status")
    entry: Obj = {
        **failing_closed(f"{'m' if mutating else 'v'}{resource.kind.lower()}.kb.io"),
        "timeoutSeconds": TIMEOUT_SECONDS,
        **_conditions(resource, mutating=mutating),
        "rules": [
            {
                "apiGroups": [KUEUE],
                "apiVersions": [V1BETA1, V1BETA2],
                "operations": ["CREATE"] if mutating else ["CREATE", "UPDATE"],
                "resources": resources,
                "scope": "Namespaced" if resource.namespaced else "Cluster",
            }
        ],
    }
    return WebhookEntry(mutating, path_of(resource, mutating=mutating), entry)


def _conditions(resource: Resource, *, mutating: bool) -> Obj:
    """Conditions that keep the API server from sending objects that no rule applies to."""
    if resource is not kinds.WORKLOADS:
        return {} if mutating else {"matchConditions": [new_or_changed("spec")]}
    match_condition = _NAMELESS if mutating else _CHANGED_WORKLOAD
    return {"matchConditions": [match_condition]}


def _reserved(variable: str) -> str:
    conditions = "status.conditions"
    test = f"each.type == '{QUOTA_RESERVED}' && each.status == 'True'"
    return f"{present(variable, conditions)} && {variable}.{conditions}.exists(each, {test})"


_NAMELESS = condition(
    "nameless-pod-set",
    f"{present(NEW, 'spec.podSets')} && type({NEW}.spec.podSets) == list && "
    f"{NEW}.spec.podSets.exists(each, type(each) == map && (!has(each.name) || each.name == ''))",
)
"""Holds for an empty name of a pod set; the schema only replaces a missing one."""
_ADMISSION = "status.admission"
_JUDGED = ("spec", "metadata.annotations", "status.reclaimablePods", "status.admissionChecks")
_CHANGED_WORKLOAD = condition(
    "new-or-changed",
    IS_NEW,
    *(changed(path) for path in _JUDGED),
    f"{changed(_ADMISSION)} && ({present(NEW, _ADMISSION)} || {_reserved(NEW)})",
    f"{_reserved(NEW)} && !({_reserved(OLD)})",
)
"""A changed Workload. The schema checks conditions, and releasing quota is always allowed."""
