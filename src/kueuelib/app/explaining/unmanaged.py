"""Finds Jobs and Pods that no manager queues because they name no queue."""

from __future__ import annotations

from kueuelib.api.kinds import JOBS, PODS, WORKLOADS
from kueuelib.api.meta import Obj, controller_of, labels_of
from kueuelib.api.names import MANAGED_LABEL, NAMESPACE_NAME_LABEL, QUEUE_LABEL
from kueuelib.jobs.catalog.batch import BATCH_JOB
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.pods.integration import NAME as POD_FRAMEWORK
from kueuelib.jobs.pods.reading import queue_of
from kueuelib.jobs.pods.selection import is_selected
from kueuelib.scheduler.explain.obstacles import Problem
from kueuelib.scheduler.explain.world import World

_NOT_IN = "does not admit namespace {}"
_FRAMEWORKS = {JOBS.kind: BATCH_JOB.name, PODS.kind: POD_FRAMEWORK}


def unmanaged(
    obj: Obj, title: str, settings: JobSettings, world: World, *, submitted: bool
) -> Problem | None:
    """Why no Workload is made for an object; None when one is made.

    Objects that name a queue pass in every selected namespace: which kinds a manager handles is not
    known here.

    Args:
        obj: the raw Job, Pod or Workload.
        title: its kind and name.
        settings: the manager's settings for jobs.
        world: the facts, for the labels of the namespace and the queues there.
        submitted: whether the object is in the cluster; a running Job keeps its queue there.
    """
    kind, namespace = obj["kind"], obj["metadata"]["namespace"]
    if kind == WORKLOADS.kind:
        return None
    if kind == PODS.kind and labels_of(obj).get(MANAGED_LABEL) == "true":
        return None
    labels = {NAMESPACE_NAME_LABEL: namespace, **world.namespaces.get(namespace, {})}
    if queue_of(obj):
        if settings.selects(labels):
            return None
        why = f"names a queue, but managedJobsNamespaceSelector {_NOT_IN.format(namespace)}"
        problem = f"{why}, so no manager queues it: it gets no Workload, and {_held(obj)}"
        return Problem(title, problem, "submit it in another namespace, or change the selector")
    if settings.manage_jobs_without_queue_name:
        left_out = _left_out(obj, kind, settings, labels)
        if not left_out:
            return None
        why = f"names no queue, and {left_out}"
    else:
        why = "names no queue"
    problem = f"{why}, so no manager queues it: it gets no Workload, and {_held(obj)}"
    return Problem(title, problem, _fix(obj, world, submitted=submitted))


def _left_out(obj: Obj, kind: str, settings: JobSettings, labels: dict[str, str]) -> str:
    """Why not even `manageJobsWithoutQueueName` includes the object; empty when it does."""
    framework = _FRAMEWORKS[kind]
    if framework not in settings.frameworks:
        return f"integrations.frameworks of the configuration does not list {framework}"
    namespace = obj["metadata"]["namespace"]
    if not settings.manages("", labels):
        return f"managedJobsNamespaceSelector {_NOT_IN.format(namespace)}"
    if kind == PODS.kind and not is_selected(obj, settings, namespace, labels):
        return "integrations.podOptions of the configuration leaves it out"
    return ""


def _held(obj: Obj) -> str:
    owner = controller_of(obj)
    if owner is not None:
        return f"nothing holds it, unless {owner['kind']} {owner['name']}, which owns it, is queued"
    if obj["kind"] == JOBS.kind and obj["spec"].get("suspend"):
        return "nothing but its own spec.suspend: true holds it, which no manager changes"
    return "nothing holds it"


def _fix(obj: Obj, world: World, *, submitted: bool) -> str:
    namespace = obj["metadata"]["namespace"]
    local = sorted(one.name for one in world.local_queues if one.namespace == namespace)
    where = f"to one of {', '.join(local)}" if local else "to the name of a LocalQueue"
    none = "" if local else f" (namespace {namespace} has none yet)"
    if submitted and not (obj["kind"] == JOBS.kind and obj["spec"].get("suspend")):
        return f"submit it again with the label {QUEUE_LABEL} set {where}{none}"
    return f"set the label {QUEUE_LABEL} {where}{none}"
