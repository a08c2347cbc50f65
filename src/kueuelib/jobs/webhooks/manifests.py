"""The objects that an integration needs in a cluster: webhook configurations and permissions.

The webhooks match only objects with our queue label, so that an unanswered webhook never blocks
other objects. With `manageJobsWithoutQueueName` a second entry of each kind matches objects without
the label. Neither matches in the namespaces that the settings exclude.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping

from kueuelib.api.meta import Obj, Resource
from kueuelib.api.names import QUEUE_LABEL
from kueuelib.jobs.contract.integration import Integration, WebhookEntry, no_rules
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.runtime.webhook.conditions import new_or_changed

WATCH = ("list", "watch")
READ = ("get", *WATCH)
JUDGED_METADATA = ("metadata.labels", "metadata.annotations", "metadata.ownerReferences")
"""The metadata that the rules of every kind of jobs read."""


def webhook_path(resource: Resource, *, mutating: bool) -> str:
    """The path of the webhook of a kind (spec/api 6.2)."""
    verb = "mutate" if mutating else "validate"
    group = resource.group.replace(".", "-")
    return f"/{verb}-{group}-{resource.version}-{resource.kind.lower()}"


def webhook_entries(
    integrations: Iterable[Integration], settings: JobSettings
) -> tuple[WebhookEntry, ...]:
    """The entries of the enabled integrations, mutating and validating."""
    where = {"namespaceSelector": dict(settings.namespace_selector)}
    kinds = [("", {**where, "objectSelector": _label("Exists")})]
    if settings.manage_jobs_without_queue_name:
        kinds.append(("-unnamed", {**where, "objectSelector": _label("DoesNotExist")}))
    entries: list[WebhookEntry] = []
    for integration in integrations:
        if integration.entries is not None:
            entries += integration.entries(settings)
            continue
        entries += [
            _entry(integration, suffix, selectors, mutating=mutating)
            for mutating in (True, False)
            for suffix, selectors in kinds
        ]
    return tuple(entries)


def entry_name(integration: Integration, suffix: str, *, mutating: bool) -> str:
    """The name of a webhook; for a kind with its own API group it contains the group."""
    resource = integration.resource
    domain = "kb.io" if resource.group in ("", "batch") else resource.group
    return f"{'m' if mutating else 'v'}{resource.kind.lower()}{suffix}.{domain}"


def _label(operator: str) -> Obj:
    return {"matchExpressions": [{"key": QUEUE_LABEL, "operator": operator}]}


def _entry(
    integration: Integration, suffix: str, selectors: Mapping[str, Obj], *, mutating: bool
) -> WebhookEntry:
    resource = integration.resource
    entry: Obj = {
        "name": entry_name(integration, suffix, mutating=mutating),
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "rules": [
            {
                "apiGroups": [resource.group],
                "apiVersions": [*integration.versions],
                "operations": ["CREATE"] if mutating else ["CREATE", "UPDATE"],
                "resources": [resource.plural],
                "scope": "Namespaced",
            }
        ],
    }
    entry.update(copy.deepcopy(dict(selectors)))
    judged = () if integration.validate is no_rules else integration.judged
    if not mutating and judged is not None:
        entry["matchConditions"] = [new_or_changed(*JUDGED_METADATA, *judged)]
    return WebhookEntry(mutating, webhook_path(resource, mutating=mutating), entry)


def rbac_rules(integrations: Iterable[Integration]) -> tuple[Obj, ...]:
    """The rules of a ClusterRole that the reconcilers of these integrations need."""
    rules: list[Obj] = []
    for integration in integrations:
        group, plural = integration.resource.group, integration.resource.plural
        if integration.watches:
            rules += [
                _rule(group, plural, *WATCH, "patch", "delete"),
                _rule(group, f"{plural}/status", "patch"),
                _rule(group, f"{plural}/finalizers", "update"),
            ]
        rules += () if integration.rules is None else integration.rules()
    return tuple(rules)


def shared_rbac_rules() -> tuple[Obj, ...]:
    """Further rules for every process that queues jobs, including one other than the manager."""
    kueue = "kueue.x-k8s.io"
    return (
        _rule(kueue, "workloads", *READ, "create", "patch", "delete"),
        _rule(kueue, "workloads/status", "patch"),
        _rule(kueue, "workloads/finalizers", "update"),
        _rule(kueue, "resourceflavors", *READ),
        _rule(kueue, "workloadpriorityclasses", *WATCH),
        _rule("scheduling.k8s.io", "priorityclasses", *WATCH),
        _rule("", "namespaces", *WATCH),
        _rule("", "events", "create", "patch"),
        *owner_rules(),
    )


def owner_rules() -> tuple[Obj, ...]:
    """The permissions to read owners of pods and jobs that have a foreign kind."""
    return (
        *(
            _rule("apps", plural, "get")
            for plural in ("deployments", "replicasets", "statefulsets")
        ),
        _rule("batch", "cronjobs", "get"),
        _rule("batch", "jobs", "get"),
    )


def _rule(group: str, resource: str, *verbs: str) -> Obj:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
