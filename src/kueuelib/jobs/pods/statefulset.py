"""The integration `statefulset`: the pods of a StatefulSet are one group, admitted as a whole.

The webhook makes them a group by labels and annotations of the pod template; the integration `pod`
does everything else. A StatefulSet creates its pods one after the other, and replaces a pod only
once it is gone. So the group is admitted before all of its pods exist, finished pods are released
at once, and the StatefulSet owns the Workload. Its replicas say how many pods there are. It may be
scaled only to 0 and from 0, because the quota of a Workload never changes.
"""

from __future__ import annotations

import copy
from typing import ClassVar

from kueuelib.api.kinds import STATEFUL_SETS
from kueuelib.api.meta import Obj, Resource, annotations_of, labels_of
from kueuelib.api.names import (
    GROUP_FAST,
    GROUP_LABEL,
    GROUP_SERVING,
    GROUP_TOTAL_COUNT,
    QUEUE_LABEL,
    SUSPENDING_PARENT,
    is_dns1123_subdomain,
)
from kueuelib.api.validation.fields import gate_errors
from kueuelib.errors import FieldError
from kueuelib.jobs.contract.field_rules import (
    IMMUTABLE,
    NO_SUBDOMAIN,
    forbidden,
    invalid,
    label_path,
)
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.paths import value
from kueuelib.jobs.contract.topology import asking_annotations, topology_errors
from kueuelib.jobs.pods.integration import POD
from kueuelib.jobs.pods.parents import STATEFUL_SET, group_name, replicas_of
from kueuelib.jobs.pods.shapes import role_hash
from kueuelib.jobs.pods.templates import (
    COPIED,
    SHAPE,
    TemplateWebhook,
    mark,
    pass_on,
    template_entries,
)
from kueuelib.jobs.reconcile.self_wired import SelfWired, Wired
from kueuelib.jobs.webhooks.manifests import WATCH

_FIRST_TO_ZERO = "scale the StatefulSet to 0 first"


class StatefulSet(GenericJob):
    """Names the kind; its objects are never treated as jobs."""

    resource: ClassVar[Resource] = STATEFUL_SETS


def with_group(obj: Obj, old: Obj | None = None) -> Obj:
    """The StatefulSet with a template that makes its pods a group; unchanged without a queue.

    The number of pods is written only once: a change would replace the running pods.

    Args:
        obj: the raw StatefulSet.
        old: the one that it replaces.
    """
    own_labels = labels_of(obj)
    if not own_labels.get(QUEUE_LABEL) or _is_of_another(obj):
        return obj
    changed = copy.deepcopy(obj)
    template = changed["spec"]["template"]
    labels = {key: own_labels[key] for key in COPIED if own_labels.get(key)}
    labels[GROUP_LABEL] = group_name(obj["metadata"]["name"])
    known = (template.get("metadata") or {}).get("annotations") or {}
    notes = {
        SUSPENDING_PARENT: STATEFUL_SET,
        GROUP_TOTAL_COUNT: known.get(GROUP_TOTAL_COUNT) or str(replicas_of(obj) or 1),
        GROUP_FAST: "true",
        GROUP_SERVING: "true",
    }
    mark(template, labels, notes)
    pass_on(template, obj, old)
    return changed


def validate_stateful_set(new: Obj, old: Obj | None) -> tuple[FieldError, ...]:
    """Every broken rule; while there are pods, the source of the Workload must not change."""
    if _is_of_another(new):
        return ()
    labels = labels_of(new)
    queue, path = labels.get(QUEUE_LABEL, ""), label_path(QUEUE_LABEL)
    errors = [*gate_errors(new, old)]
    if queue and not is_dns1123_subdomain(queue):
        errors.append(invalid(path, queue, NO_SUBDOMAIN))
    errors += _topology(new, old)
    before = {} if old is None else labels_of(old)
    if old is None or not before.get(QUEUE_LABEL):
        return tuple(errors)
    if not queue:
        errors.append(invalid(path, queue, IMMUTABLE))
    replicas, wanted = replicas_of(old), replicas_of(new)
    if replicas:
        errors += [
            forbidden(label_path(key), f"{IMMUTABLE}: {_FIRST_TO_ZERO}")
            for key in COPIED
            if labels.get(key) != before.get(key) and (queue or key != QUEUE_LABEL)
        ]
        if wanted not in (0, replicas):
            errors.append(forbidden("spec.replicas", _FIRST_TO_ZERO))
        if role_hash(_pod_spec(old)) != role_hash(_pod_spec(new)):
            text = f"the requests and placement of running pods must not change: {_FIRST_TO_ZERO}"
            errors.append(forbidden("spec.template.spec", text))
    elif wanted and value(new, "status.replicas"):
        text = "pods from before still exist; wait until they are gone"
        errors.append(forbidden("spec.replicas", text))
    return tuple(errors)


def _topology(new: Obj, old: Obj | None) -> list[FieldError]:
    """What is wrong with the topology that its pods ask for, unless it was wrong before."""
    judged = [
        [
            *topology_errors(
                "spec.template.metadata.annotations",
                asking_annotations(obj["spec"]["template"]),
                replicas_of(obj) or None,
            )
        ]
        for obj in (new, old)
        if obj is not None
    ]
    known = {error.path for error in judged[1]} if old is not None else ()
    return [error for error in judged[0] if error.path not in known]


def _is_of_another(obj: Obj) -> bool:
    """Whether it belongs to a LeaderWorkerSet, whose labels it has and which is queued itself."""
    return annotations_of(obj["spec"]["template"]).get(SUSPENDING_PARENT, "") not in (
        "",
        STATEFUL_SET,
    )


def _pod_spec(obj: Obj) -> Obj:
    spec: Obj = obj["spec"]["template"].get("spec") or {}
    return spec


STATEFULSET = SelfWired(
    STATEFUL_SET,
    StatefulSet,  # type: ignore[type-abstract]  # none is made
    makes_pods=False,
    watches=False,
    shape=SHAPE,
    implies=(POD.name,),
    wire=lambda parts: Wired((), TemplateWebhook(parts, with_group, validate_stateful_set)),
    entries=lambda settings: template_entries(
        STATEFUL_SETS, settings, "spec.template", "spec.replicas"
    ),
    rules=lambda: (
        {
            "apiGroups": [STATEFUL_SETS.group],
            "resources": [STATEFUL_SETS.plural],
            "verbs": list(WATCH),
        },
    ),
)
