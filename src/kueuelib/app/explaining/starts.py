"""Why an object gets no Workload, does not start, or keeps its quota."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kueuelib.api.kinds import EVENTS, JOBS, PODS, WORKLOADS
from kueuelib.api.meta import (
    Obj,
    ObjectKey,
    Resource,
    annotations_of,
    controller_of,
    labels_of,
    parse_time,
)
from kueuelib.api.names import (
    ADMITTED,
    IS_GROUP_WORKLOAD,
    MANAGED_LABEL,
    NAMESPACE_NAME_LABEL,
    QUEUE_LABEL,
    REASON_FAILED_TO_START,
)
from kueuelib.api.phrases import some
from kueuelib.app.foreign_finalizers import foreign_finalizers, removal_of
from kueuelib.app.refusers import STANDING, ago, find_remedy, latest, problem_of, said, standing
from kueuelib.errors import Forbidden, NotFound
from kueuelib.jobs.batch import BATCH_JOB
from kueuelib.jobs.contract.settings import JobSettings, QuotaReleaseStrategy
from kueuelib.jobs.pods.integration import NAME as POD_FRAMEWORK
from kueuelib.jobs.pods.reading import PodStage, is_selected, queue_of, stage_of
from kueuelib.jobs.reconcile.refusals import START_REFUSED
from kueuelib.jobs.reconcile.steps import COMPOSE_ERROR, CREATED_WORKLOAD, STARTED
from kueuelib.runtime.client import Client
from kueuelib.scheduler.explain.problems import Problem
from kueuelib.scheduler.explain.world import World
from kueuelib.workload import states

# ---- finds Jobs and Pods that no manager queues because they name no queue -----------------------

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


# ---- what an evicted Workload waits for before its quota is released -----------------------------

_UNTIL = {
    QuotaReleaseStrategy.ON_TERMINATION: "none of its pods runs, except pods being deleted",
    QuotaReleaseStrategy.ON_TERMINAL: "its pods have ended",
}


def leaving_note(workload: Obj, jobs: JobSettings) -> tuple[str, ...]:
    """When the quota of a raw Workload is released; nothing if it is not being evicted."""
    if not states.is_evicted(workload) or not states.has_quota(workload):
        return ()
    strategy = jobs.release_of(group=annotations_of(workload).get(IS_GROUP_WORKLOAD) == "true")
    until = f"{_UNTIL[strategy]} ({strategy}, see quotaReleaseStrategy in the configuration)"
    return (f"it is being evicted; its quota is released as soon as {until}",)


def failed_node_note(world: World, workload: Obj) -> tuple[str, ...]:
    """Which nodes of an admitted raw Workload have failed and are not replaced yet."""
    failed = states.unhealthy_nodes(workload)
    if not failed or not states.is_admitted(workload) or states.is_evicted(workload):
        return ()
    has = "has" if len(failed) == 1 else "have"
    nodes = "node" if len(failed) == 1 else "nodes"
    text = f"{nodes} {some(failed)} {has} failed, and the pods there wait for another node"
    name = workload["status"]["admission"]["clusterQueue"]
    queue = world.cluster_queues.get(name)
    if queue is not None and queue.spec.stop_policy != "None":
        text += f", which none gets before ClusterQueue {name} is no longer stopped"
    return (text,)


def deletion_problem(obj: Obj, kind: Resource) -> Problem | None:
    """What keeps a raw object that was deleted; None if it was not, or only Kubernetes does."""
    others = foreign_finalizers(obj) if obj["metadata"].get("deletionTimestamp") else ()
    if not others:
        return None
    text = f"it is being deleted, and finalizer {some(others)} of another program keeps it"
    name = obj["metadata"]["name"]
    return Problem(f"{kind.kind} {name}", text, removal_of(kind.kind.lower(), obj, others))


# --------------------------------------------------------------------------------------------------


async def refusal_notes(client: Client, workload: Obj, now: float) -> tuple[str, ...]:
    """What the API server refuses for a Workload and its job, the start of the job first.

    Args:
        client: whose cluster.
        workload: the raw Workload.
        now: seconds since the epoch.
    """
    if states.is_finished(workload):
        return ()
    job = await _job(client, workload)
    held = _is_held(job) if states.phase_of(workload) is states.Phase.ADMITTED else False
    owner = next(iter(_owners(workload)), {}).get("uid", "")
    meta = workload["metadata"]
    try:
        about = [await _events(client, meta["namespace"], one) for one in (meta["uid"], owner)]
    except Forbidden as error:
        return (f"an Event may say why its job is not started: {error}",) if held else ()
    events = [event for each in about for event in each]
    notes = []
    start = None if held is False else _start(events, workload, held=bool(held), now=now)
    for before, what, event in (
        ("its job is not started. ", "the start", start),
        ("", "it", standing(events, workload, job, now)),
    ):
        if event is None:
            continue
        text = event["message"] if before else problem_of(event)
        notes.append(f"{before}{text} ({ago(event, now)})")
        fix = await find_remedy(client, event["message"], meta["namespace"])
        notes += [f"what refuses {what}: {fix}"] if fix else []
    return tuple(notes)


def _start(events: Sequence[Obj], workload: Obj, *, held: bool, now: float) -> Obj | None:
    """The Event about a start that fails; None if the start has succeeded since, as far as known.

    Args:
        events: about the Workload and its job.
        workload: the raw Workload, which is admitted.
        held: whether the job is known to wait for its start.
        now: seconds since the epoch.
    """
    event = latest(
        one
        for one in events
        if one["reason"] == REASON_FAILED_TO_START and one["message"].startswith(START_REFUSED)
    )
    if event is None:
        return None
    at = parse_time(event["lastTimestamp"])
    since = states.condition(workload, ADMITTED).get("lastTransitionTime")
    started = latest(one for one in events if one["reason"] == STARTED)
    over = started is not None and parse_time(started["lastTimestamp"]) >= at
    if (since and at < parse_time(since)) or (not held and (over or now - at > STANDING)):
        return None
    return event


async def creation_problem(client: Client, obj: Obj, title: str, now: float) -> Problem | str:
    """Why no Workload is made for an object, as the manager reported it last.

    Args:
        client: whose cluster.
        obj: the raw object.
        title: its kind and name.
        now: seconds since the epoch.

    Returns:
        The problem, or a note if Events may not be listed; empty if nothing was reported.
    """
    meta = obj["metadata"]
    try:
        events = await _events(client, meta["namespace"], meta["uid"])
    except Forbidden as error:
        return f"an Event may say why it has no Workload: {error}"
    event = latest(one for one in events if one["reason"] in (COMPOSE_ERROR, CREATED_WORKLOAD))
    if event is None or event["reason"] != COMPOSE_ERROR:
        return ""
    problem = f"it has no Workload; {said(event, now)}"
    fix = await find_remedy(client, event["message"], meta["namespace"])
    return Problem(title, problem, fix or "correct what the message names")


async def _events(client: Client, namespace: str, uid: str) -> Sequence[Obj]:
    """The Events about an object.

    Raises:
        Forbidden: the caller may not list Events.
    """
    if not uid:
        return ()
    return (await client.list(EVENTS, namespace, field_selector=f"involvedObject.uid={uid}")).items


def _owners(workload: Obj) -> Iterator[Obj]:
    """The references to the owners of a Workload, the job before others."""
    owners = workload["metadata"].get("ownerReferences") or ()
    yield from sorted(owners, key=lambda one: not one.get("controller"))


async def _job(client: Client, workload: Obj) -> Obj | None:
    """A Job or Pod of a Workload, one that waits for its start if there is one; None if there is
    none that can be read.
    """
    last = None
    for owner in _owners(workload):
        resource = next((one for one in (JOBS, PODS) if one.kind == owner["kind"]), None)
        if resource is None or owner["apiVersion"] != resource.api_version:
            continue
        key = ObjectKey(workload["metadata"]["namespace"], owner["name"])
        try:
            obj = await client.get(resource, key)
        except (Forbidden, NotFound):
            continue
        obj["kind"] = resource.kind
        last = obj
        if _is_held(obj):
            break
    return last


def _is_held(job: Obj | None) -> bool | None:
    """Whether a Job or Pod waits for its start; None without one."""
    if job is None:
        return None
    if job["kind"] == PODS.kind:
        return stage_of(job) is PodStage.GATED
    return bool(job["spec"].get("suspend"))
