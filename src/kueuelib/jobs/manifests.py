"""What an integration needs in a cluster: webhook configurations and permissions, as raw objects.

The webhooks match only objects that carry our queue label, so that one that does not answer never
keeps anybody else's objects waiting. With `manageJobsWithoutQueueName` every object of the kind is
ours and matches, except in the namespaces that the settings exclude.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from kueuelib.api.meta import Obj, Resource
from kueuelib.api.names import QUEUE_LABEL
from kueuelib.jobs.registry import Integration
from kueuelib.jobs.settings import JobSettings

READ = ("get", "list", "watch")


@attrs.frozen
class WebhookEntry:
    """One entry of a webhook configuration.

    Attributes:
        mutating: whether it belongs into the mutating or the validating configuration.
        path: where the webhook server answers it.
        entry: the raw entry without its `clientConfig`.
    """

    mutating: bool
    path: str
    entry: Obj


def webhook_path(resource: Resource, *, mutating: bool) -> str:
    """The path of the webhook of a kind (spec/api 6.2)."""
    verb = "mutate" if mutating else "validate"
    group = resource.group.replace(".", "-")
    return f"/{verb}-{group}-{resource.version}-{resource.kind.lower()}"


def webhook_entries(
    integrations: Iterable[Integration], settings: JobSettings
) -> tuple[WebhookEntry, ...]:
    """The entries of the enabled integrations, mutating and validating."""
    return tuple(
        _entry(integration.resource, settings, mutating=mutating)
        for integration in integrations
        for mutating in (True, False)
    )


def _entry(resource: Resource, settings: JobSettings, *, mutating: bool) -> WebhookEntry:
    entry: Obj = {
        "name": f"{'m' if mutating else 'v'}{resource.kind.lower()}.kb.io",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "rules": [
            {
                "apiGroups": [resource.group],
                "apiVersions": [resource.version],
                "operations": ["CREATE"] if mutating else ["CREATE", "UPDATE"],
                "resources": [resource.plural],
                "scope": "Namespaced",
            }
        ],
    }
    if settings.manage_jobs_without_queue_name:
        entry["namespaceSelector"] = dict(settings.namespace_selector)
    else:
        exists = {"key": QUEUE_LABEL, "operator": "Exists"}
        entry["objectSelector"] = {"matchExpressions": [exists]}
    return WebhookEntry(mutating, webhook_path(resource, mutating=mutating), entry)


def rbac_rules(integrations: Iterable[Integration]) -> tuple[Obj, ...]:
    """The rules of a ClusterRole that the reconcilers of these integrations need."""
    found: list[Obj] = []
    for integration in integrations:
        group, plural = integration.resource.group, integration.resource.plural
        found += [
            _rule(group, plural, *READ, "update", "patch"),
            _rule(group, f"{plural}/status", "get", "update", "patch"),
            _rule(group, f"{plural}/finalizers", "get", "update", "patch"),
        ]
    return tuple(found)


def shared_rbac_rules() -> tuple[Obj, ...]:
    """What every process that queues jobs needs besides, also one that runs beside the manager."""
    kueue = "kueue.x-k8s.io"
    return (
        _rule(kueue, "workloads", *READ, "create", "update", "patch", "delete"),
        _rule(kueue, "workloads/status", "get", "update", "patch"),
        _rule(kueue, "workloads/finalizers", "update"),
        _rule(kueue, "resourceflavors", *READ),
        _rule(kueue, "workloadpriorityclasses", *READ),
        _rule("scheduling.k8s.io", "priorityclasses", *READ),
        _rule("", "namespaces", *READ),
        _rule("", "events", "create", "patch"),
    )


def _rule(group: str, resource: str, *verbs: str) -> Obj:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
