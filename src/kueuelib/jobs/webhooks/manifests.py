"""The objects that an integration needs in a cluster: webhook configurations and permissions.

The webhooks match only objects with our queue label, so that an unanswered webhook never blocks
other objects. Another entry of each kind matches objects without the label in the namespaces that
have a LocalQueue `default`. With `manageJobsWithoutQueueName`, one matches objects without the
label everywhere. None matches in the namespaces that the settings exclude.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kueuelib.api.kinds import KUEUE
from kueuelib.api.meta import Obj, Resource
from kueuelib.api.names import NAMESPACE_NAME_LABEL, PRIORITY_CLASS_LABEL, QUEUE_LABEL
from kueuelib.api.patterns import SUBDOMAIN
from kueuelib.jobs.contract.integration import Integration, no_rules
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.runtime.webhook.admission import (
    IS_NEW,
    OLD,
    WebhookEntry,
    changed,
    condition,
    failing_closed,
    new_or_changed,
    present,
    unlike,
)

WATCH = ("list", "watch")
READ = ("get", *WATCH)
DEFAULT_SUFFIX = "-default"
"""In the names of entries for objects without a queue name where LocalQueues `default` are."""
READY = "status.readyReplicas"
"""Where objects with pod templates say how many of their pods are ready."""
_NEW_OR_NOT_READY = condition(
    "new-or-not-ready", IS_NEW, f"!({present(OLD, READY)})", f"{OLD}.{READY} == 0"
)
_NOTES = "spec.template.metadata.annotations"
_ASKS = unlike(_NOTES, f"{KUEUE}/podset-", {})
"""Holds for a job whose only pod template asks for a topology."""
JUDGED_METADATA = ("metadata.labels", "metadata.annotations", "metadata.ownerReferences")
"""The metadata that the rules of every kind of jobs read."""


def unusual(labels: Mapping[str, str], annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Expressions, of which one holds for a new object whose rules need a review.

    Args:
        labels: of ours that need none besides the queue name, by patterns of their values.
        annotations: of ours that need none, likewise.
    """
    usual = {QUEUE_LABEL: SUBDOMAIN["pattern"], PRIORITY_CLASS_LABEL: "", **labels}
    return (
        unlike("metadata.labels", f"{KUEUE}/", usual),
        unlike("metadata.annotations", f"{KUEUE}/", annotations),
    )


def webhook_path(resource: Resource, *, mutating: bool) -> str:
    """The path of the webhook of a kind (KEP-369)."""
    verb = "mutate" if mutating else "validate"
    group = resource.group.replace(".", "-")
    return f"/{verb}-{group}-{resource.version}-{resource.kind.lower()}"


def webhook_entries(
    integrations: Iterable[Integration],
    settings: JobSettings,
    default_namespaces: Collection[str] = (),
) -> tuple[WebhookEntry, ...]:
    """The entries of the enabled integrations, mutating and validating.

    Args:
        integrations: the kinds.
        settings: the configuration.
        default_namespaces: those with a LocalQueue `default`.
    """
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
    return (*entries, *_for_default_queues(entries, sorted(default_namespaces)))


def _for_default_queues(
    entries: Sequence[WebhookEntry], namespaces: Sequence[str]
) -> list[WebhookEntry]:
    """For each entry that writes into queued objects, one for objects without a queue name.

    None for a kind with an entry that matches them in all namespaces. Objects with pod templates
    get a queue name in an update, too, unless some of their pods are ready.
    """
    unnamed = _label("DoesNotExist")
    covered = {each.path for each in entries if each.entry["objectSelector"] == unnamed}
    made = []
    for each in entries:
        if not each.mutating or each.path in covered:
            continue
        entry = copy.deepcopy(each.entry)
        name, dot, domain = entry["name"].partition(".")
        entry["name"] = f"{name}{DEFAULT_SUFFIX}{dot}{domain}"
        entry["objectSelector"] = unnamed
        entry["namespaceSelector"] = _narrowed(entry.get("namespaceSelector") or {}, namespaces)
        if any("UPDATE" in rule["operations"] for rule in entry["rules"]):
            entry["matchConditions"] = [dict(_NEW_OR_NOT_READY)]
        made.append(WebhookEntry(True, each.path, entry))
    return made


def _narrowed(selector: Mapping[str, Any], namespaces: Sequence[str]) -> Obj:
    """A selector of only these of the selected namespaces.

    Every namespace has a label with its name, so that "does not exist" holds for none.
    """
    name: Obj = {"key": NAMESPACE_NAME_LABEL, "operator": "DoesNotExist"}
    if not namespaces:
        return {"matchExpressions": [name]}
    name = {"key": NAMESPACE_NAME_LABEL, "operator": "In", "values": [*namespaces]}
    return {**selector, "matchExpressions": [name, *(selector.get("matchExpressions") or ())]}


def namespaces_of(webhooks: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The `default_namespaces` for which present entries were made."""
    return frozenset(
        name
        for webhook in webhooks
        if webhook["name"].partition(".")[0].endswith(DEFAULT_SUFFIX)
        for each in (webhook.get("namespaceSelector") or {}).get("matchExpressions") or ()
        if (each["key"], each["operator"]) == (NAMESPACE_NAME_LABEL, "In")
        for name in each["values"]
    )


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
        **failing_closed(entry_name(integration, suffix, mutating=mutating)),
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
    judged = ("spec",) if integration.validate is no_rules else integration.judged
    if not mutating and judged is not None:
        new: tuple[str, ...] = ()
        more: tuple[str, ...] = ()
        if integration.plain:
            new = (*unusual({}, {}), _ASKS)
            more = (f"{_ASKS} && {changed(_NOTES)}",)
        judged = (*JUDGED_METADATA, *judged)
        entry["matchConditions"] = [new_or_changed(*judged, new=new, more=more)]
    return WebhookEntry(mutating, webhook_path(resource, mutating=mutating), entry)


def rbac_rules(integrations: Iterable[Integration]) -> tuple[Obj, ...]:
    """The rules of a ClusterRole that the reconcilers of these integrations need."""
    rules: list[Obj] = []
    for integration in integrations:
        group, plural = integration.resource.group, integration.resource.plural
        if integration.watches:
            rules += [
                _rule(group, plural, *READ, "patch", "delete"),
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
        _rule(kueue, "localqueues", *WATCH),
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
