"""The integration `deployment`: the pods of a Deployment are queued one by one, as plain pods.

A Deployment has no Workload of its own. The webhook copies its queueing labels and admission gates
into its pod template; the integration `pod` does everything else.
"""

from __future__ import annotations

import copy
from typing import ClassVar

from kueuelib.api.kinds import DEPLOYMENTS
from kueuelib.api.meta import Obj, Resource, labels_of
from kueuelib.api.names import (
    ADMISSION_GATED_BY,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    is_dns1123_subdomain,
)
from kueuelib.api.validation.fields import gate_errors
from kueuelib.errors import FieldError
from kueuelib.jobs.contract.field_rules import IMMUTABLE, NO_SUBDOMAIN, invalid, label_path
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.paths import value
from kueuelib.jobs.pods.integration import POD
from kueuelib.jobs.pods.templates import (
    COPIED,
    SHAPE,
    TemplateWebhook,
    mark,
    pass_on,
    template_entries,
)
from kueuelib.jobs.reconcile.self_wired import SelfWired, Wired
from kueuelib.jobs.webhooks.manifests import READY


class Deployment(GenericJob):
    """Names the kind; its objects are never treated as jobs."""

    resource: ClassVar[Resource] = DEPLOYMENTS


def with_labels(obj: Obj, old: Obj | None = None) -> Obj:
    """The Deployment with its queueing labels and gates in its pod template; unchanged if it has no
    queue.

    Args:
        obj: the raw Deployment.
        old: the one that it replaces.
    """
    labels = labels_of(obj)
    if not labels.get(QUEUE_LABEL):
        return obj
    changed = copy.deepcopy(obj)
    copied = {key: labels[key] for key in COPIED if labels.get(key)}
    template = changed["spec"]["template"]
    mark(template, copied, {})
    pass_on(template, obj, old, ADMISSION_GATED_BY)
    return changed


def queueing_errors(new: Obj, old: Obj | None) -> tuple[FieldError, ...]:
    """Errors in queue and priority class of a parent; while pods are ready, they must not
    change.
    """
    labels, before = labels_of(new), {} if old is None else labels_of(old)
    queue, path = labels.get(QUEUE_LABEL, ""), label_path(QUEUE_LABEL)
    errors = [*gate_errors(new, old)]
    if queue != before.get(QUEUE_LABEL, "") and queue and not is_dns1123_subdomain(queue):
        errors.append(invalid(path, queue, NO_SUBDOMAIN))
    if old is None:
        return tuple(errors)
    running = bool(value(old, READY))
    moved = QUEUE_LABEL in before and queue != before[QUEUE_LABEL]
    if moved and (running or not queue):
        errors.append(invalid(path, queue, IMMUTABLE))
    classes = (before.get(PRIORITY_CLASS_LABEL), labels.get(PRIORITY_CLASS_LABEL))
    removed, added = classes[0] and not classes[1], classes[1] and not classes[0]
    if removed or (added and running):
        errors.append(invalid(label_path(PRIORITY_CLASS_LABEL), classes[1], IMMUTABLE))
    return tuple(errors)


DEPLOYMENT = SelfWired(
    "deployment",
    Deployment,  # type: ignore[type-abstract]  # none is made
    makes_pods=False,
    watches=False,
    shape=SHAPE,
    implies=(POD.name,),
    wire=lambda parts: Wired((), TemplateWebhook(parts, with_labels, queueing_errors)),
    entries=lambda settings: template_entries(DEPLOYMENTS, settings, "spec.template"),
)
