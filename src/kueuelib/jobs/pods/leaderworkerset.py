"""The integration of LeaderWorkerSets: the pods of each replica are one group.

The webhook marks the pod templates. The pod webhook then names the group of each pod, because all
replicas have the same templates. Each replica has its own Workload, owned by the LeaderWorkerSet.
Leader and workers are admitted together, even if the workers are created later.
"""

from __future__ import annotations

import copy
from typing import ClassVar

from kueuelib.api.kinds import LEADER_WORKER_SETS, PODS
from kueuelib.api.meta import Obj, Resource, annotations_of, labels_of
from kueuelib.api.names import (
    GROUP_SERVING,
    INDEX_OFFSET,
    POD_SET_GROUP,
    QUEUE_LABEL,
    ROLE_HASH,
    SUSPENDING_PARENT,
)
from kueuelib.api.pods import PodTemplateSpec
from kueuelib.api.schema import struct_schema
from kueuelib.errors import FieldError
from kueuelib.jobs.contract.field_rules import IMMUTABLE, forbidden
from kueuelib.jobs.contract.generic_job import DEFAULT_POD_SET, GenericJob
from kueuelib.jobs.contract.paths import value
from kueuelib.jobs.contract.topology import asking_annotations, errors_of_pod_sets
from kueuelib.jobs.pods.deployment import queueing_errors
from kueuelib.jobs.pods.integration import POD
from kueuelib.jobs.pods.parents import (
    LEADER,
    LEADER_WORKER_SET,
    WORKER,
    groups_of,
    pod_sets_of,
)
from kueuelib.jobs.pods.shapes import role_hash
from kueuelib.jobs.pods.templates import COPIED, TemplateWebhook, mark, pass_on, template_entries
from kueuelib.jobs.reconcile.self_wired import SelfWired, Wired
from kueuelib.jobs.webhooks.manifests import READ
from kueuelib.runtime.webhook.admission import shape_with

_PATH = "spec.leaderWorkerTemplate"
_FIELDS = {LEADER: "leaderTemplate", WORKER: "workerTemplate", DEFAULT_POD_SET: "workerTemplate"}


class LeaderWorkerSet(GenericJob):
    """Names the kind; its objects are never treated as jobs."""

    resource: ClassVar[Resource] = LEADER_WORKER_SETS


def with_roles(obj: Obj, old: Obj | None = None) -> Obj:
    """The LeaderWorkerSet with templates that mark its pods as ours; unchanged without a queue.

    Args:
        obj: the raw LeaderWorkerSet.
        old: the one that it replaces.
    """
    own_labels = labels_of(obj)
    if not own_labels.get(QUEUE_LABEL):
        return obj
    changed = copy.deepcopy(obj)
    templates = changed["spec"]["leaderWorkerTemplate"]
    labels = {key: own_labels[key] for key in COPIED if own_labels.get(key)}
    leads = templates.get("leaderTemplate") is not None
    for role in (LEADER, WORKER) if leads else (DEFAULT_POD_SET,):
        notes = {SUSPENDING_PARENT: LEADER_WORKER_SET, GROUP_SERVING: "true", ROLE_HASH: role}
        template = templates[_FIELDS[role]]
        if role == WORKER and _counts_leader(template, old):
            notes[INDEX_OFFSET] = "1"
        mark(template, labels, notes)
        pass_on(template, obj, old)
    return changed


def _counts_leader(template: Obj, old: Obj | None) -> bool:
    """Whether the indices of workers start at 1, because the leader has 0.

    A group of pod sets knows that by itself. The template of running pods is left as it is.
    """
    if POD_SET_GROUP in asking_annotations(template):
        return False
    before = None if old is None else value(old, f"{_PATH}.{_FIELDS[WORKER]}")
    return before is None or INDEX_OFFSET in annotations_of(before)


def validate_leader_worker_set(new: Obj, old: Obj | None) -> tuple[FieldError, ...]:
    """Every broken rule; while there are replicas, what a replica asks for must not change."""
    errors = (*queueing_errors(new, old), *_topology(new, old))
    if old is None or not labels_of(old).get(QUEUE_LABEL) or not groups_of(old):
        return errors
    text = f"{IMMUTABLE}: scale the LeaderWorkerSet to 0 first, and wait until its pods are gone"
    if value(old, f"{_PATH}.size") != value(new, f"{_PATH}.size"):
        return (*errors, forbidden(f"{_PATH}.size", text))
    before, after = ({each.name: each for each in pod_sets_of(obj)} for obj in (old, new))
    if before.keys() != after.keys():
        return (*errors, forbidden(f"{_PATH}.leaderTemplate", text))
    text = f"the requests and placement of a replica: {text}"
    return (
        *errors,
        *(
            forbidden(f"{_PATH}.{_FIELDS[role]}.spec", text)
            for role, pod_set in before.items()
            if role_hash(pod_set.template["spec"]) != role_hash(after[role].template["spec"])
        ),
    )


def _topology(new: Obj, old: Obj | None) -> list[FieldError]:
    """What is wrong with the topology that a replica asks for, unless it was wrong before."""
    known = () if old is None else {error.path for error in _judged(old)}
    return [error for error in _judged(new) if error.path not in known]


def _judged(obj: Obj) -> list[FieldError]:
    pod_sets = [(each.path, value(obj, each.path), each.count) for each in pod_sets_of(obj)]
    return [*errors_of_pod_sets(pod_sets)]


LEADERWORKERSET = SelfWired(
    LEADER_WORKER_SET,
    LeaderWorkerSet,  # type: ignore[type-abstract]  # none is made
    makes_pods=False,
    watches=False,
    shape=shape_with(
        {
            f"{_PATH}.workerTemplate": struct_schema(PodTemplateSpec),
            f"{_PATH}.leaderTemplate": struct_schema(PodTemplateSpec),
            f"{_PATH}.size": {"type": "integer"},
            "spec.replicas": {"type": "integer"},
        },
        required=f"{_PATH}.workerTemplate",
    ),
    implies=(POD.name,),
    wire=lambda parts: Wired((), TemplateWebhook(parts, with_roles, validate_leader_worker_set)),
    entries=lambda settings: template_entries(LEADER_WORKER_SETS, settings, _PATH),
    rules=lambda: (
        {
            "apiGroups": [LEADER_WORKER_SETS.group],
            "resources": [LEADER_WORKER_SETS.plural],
            "verbs": list(READ),
        },
        {"apiGroups": [PODS.group], "resources": [PODS.plural], "verbs": ["get"]},
    ),
)
