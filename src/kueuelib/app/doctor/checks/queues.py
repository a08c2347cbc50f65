"""Queues that cannot admit anything, Workloads in no queue, and objects that do not disappear."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from re import sub

from kueuelib.api import kueue
from kueuelib.api.kinds import ADMISSION_CHECKS as ADMISSION_CHECK
from kueuelib.api.kinds import (
    API_SERVICES,
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOAD_PRIORITY_CLASSES,
)
from kueuelib.api.kinds import COHORTS as COHORT
from kueuelib.api.meta import Obj, ObjectKey, key_of
from kueuelib.api.missing_features import TOPOLOGY as PLACING
from kueuelib.api.missing_features import absence
from kueuelib.api.names import (
    ACTIVE,
    REASON_CHECK_INACTIVE,
    REASON_COHORT_CYCLE,
    REASON_STOPPED,
    REASON_TERMINATING,
)
from kueuelib.api.phrases import duration, some
from kueuelib.api.workload_state import has_quota, is_finished
from kueuelib.app.doctor.checks.managers import has_just_begun
from kueuelib.app.doctor.finding import Finding, Severity, Subject, check, subject_of
from kueuelib.app.doctor.manager import (
    NAMESPACE_STUCK,
    REFUSED,
    TERMINATING,
    gone,
    is_ending,
    look,
    no_manager,
)
from kueuelib.app.doctor.snapshot import ADMISSION_CHECKS, COHORTS, LABELS, ClusterSnapshot
from kueuelib.app.explaining.gather import NEEDED
from kueuelib.app.foreign_finalizers import (
    OURS,
    forced_deletion_of,
    foreign_finalizers,
    recreation_of,
    removal_of,
)
from kueuelib.checks.provisioning.check import CONTROLLER_NAME
from kueuelib.jobs.pods.reading import PodStage, group_of, stage_of
from kueuelib.scheduler.explain.problems import (
    Problem,
    absent_objects,
    inactive_checks,
    missing_labels,
    topologies,
    wrong_queue_name,
)
from kueuelib.scheduler.quota.queue_spec import queue_spec
from kueuelib.workload import states
from kueuelib.workload.phases import condition
from kueuelib.workload.states import is_deleted

# ---- finalizers: deleted objects that do not disappear -------------------------------------------

PATIENCE = 60.0
"""Seconds that a deletion may take."""
_KINDS = ("ClusterQueue", "ResourceFlavor", "Topology", "AdmissionCheck", "Workload")


def _recreation(snapshot: ClusterSnapshot, kind: str, obj: Obj) -> str:
    """The command that creates a deleted object again; a deletion cannot be cancelled.

    A ClusterQueue that still counts quota waits for its Workloads. A flavor, a topology or a check
    is there again at once, because its users would have to be changed first.
    """
    foreign = foreign_finalizers(obj)
    waits = kind == CLUSTER_QUEUES.kind and users_of(snapshot, kind, obj["metadata"]["name"])
    ended = () if waits or not _is_stuck(snapshot, obj) else OURS
    fix = recreation_of(kind.lower(), obj, (*foreign, *ended))
    notes = ["creates it again"]
    if waits:
        notes[0] += " once the Workloads that hold its quota have ended"
    notes[0] += "; a deletion cannot be cancelled"
    if kind in (RESOURCE_FLAVORS.kind, ADMISSION_CHECK.kind):
        notes.append("if you meant to delete it, take it out of these ClusterQueues instead")
    elif kind == TOPOLOGIES.kind:
        notes.append("if you meant to delete it, delete these ResourceFlavors too")
    elif foreign or ended:
        notes.append("if you meant to delete it, run only kubectl patch")
    return f"{fix}  # {'; '.join(notes)}"


@check("finalizer-stuck", *(one.kind for one in NEEDED), before_migration=True)
def stuck(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Queueing objects that carry a finalizer long after they were deleted: ours, or only those of
    other programs.
    """
    yield from _held_by_others(snapshot)
    for kind in _KINDS:
        for obj in snapshot.all(kind):
            if not _is_stuck(snapshot, obj):
                continue
            users = users_of(snapshot, kind, obj["metadata"]["name"])
            if users and is_ending(snapshot, kind):
                continue  # nobody can create it again; see what keeps its kind
            age = duration(snapshot.age(obj["metadata"]["deletionTimestamp"]))
            if users:
                problem = f"it was deleted {age} ago and stays while in use by {some(users)}"
                fix = _recreation(snapshot, kind, obj)
                follows = ("queue-inactive",) if kind == "ClusterQueue" else ()
                yield Finding(Severity.HINT, subject_of(kind, obj), problem, fix, follows)
            else:
                problem = f"it was deleted {age} ago, nothing uses it, and its finalizer stays"
                yield _kept(snapshot, kind, obj, problem)


def _held_by_others(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Deleted objects that only other programs keep, and with them their namespaces."""
    others_of = (LOCAL_QUEUES, COHORT, WORKLOAD_PRIORITY_CLASSES, JOBS)
    for kind in (*_KINDS, *(one.kind for one in others_of)):
        if is_ending(snapshot, kind):
            continue  # see what keeps the kind
        for obj in snapshot.all(kind):
            age, others = snapshot.age(obj["metadata"].get("deletionTimestamp")), None
            if age > PATIENCE and not _has_ours(obj):
                others = foreign_finalizers(obj)
            if others:
                kept = f"finalizer {some(others)} of another program keeps it"
                kept += ", and with it its namespace" if _is_in_deletion(snapshot, obj) else ""
                problem = f"it was deleted {duration(age)} ago, and {kept}"
                fix = removal_of(kind.lower(), obj, others)
                fix += "  # or let that program remove its finalizer"
                held = snapshot.workload_of(obj) if kind == JOBS.kind else None
                if held is not None and has_quota(held) and not is_finished(held):
                    name = held["metadata"]["name"]
                    problem += f"; its Workload {name} holds quota while its pods run"
                follows: tuple[str, ...] = ()
                needed = _needed_by(snapshot, kind, obj)
                if needed or kind == CLUSTER_QUEUES.kind:
                    problem += f"; it is in use by {some(needed)}" if needed else ""
                    fix = _recreation(snapshot, kind, obj)
                    follows = ("queue-inactive",) if kind == CLUSTER_QUEUES.kind else ()
                yield Finding(Severity.WARNING, subject_of(kind, obj), problem, fix, follows)


def _needed_by(snapshot: ClusterSnapshot, kind: str, obj: Obj) -> Sequence[str]:
    """What would miss a deleted object, as kind and name; nothing does in a deleted namespace."""
    world, key = snapshot.world, key_of(obj)
    if _is_in_deletion(snapshot, obj):
        return ()
    if kind == LOCAL_QUEUES.kind:
        queue = world.local_queues.get(key)
        inside = [one for one in world.workloads.values() if world.local_queue_of(one) is queue]
        return [f"Workload {one.key}" for one in inside if queue and not is_finished(one)]
    if kind == WORKLOAD_PRIORITY_CLASSES.kind:
        refs = [(each, one.spec.priority_class_ref) for each, one in world.workloads.items()]
        return [f"Workload {each}" for each, ref in refs if ref and ref.name == key.name]
    if kind == COHORT.kind:
        queues, _ = world.below(key.name)
        return [f"ClusterQueue {name}" for name in sorted(queues)]
    named = [
        f"LocalQueue {each}"
        for each, one in sorted(world.local_queues.items())
        if kind == CLUSTER_QUEUES.kind and one.spec.cluster_queue == key.name
    ]
    return [*users_of(snapshot, kind, key.name), *named]


@check(NAMESPACE_STUCK, NAMESPACES.kind, API_SERVICES.kind)
def stuck_namespaces(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Namespaces that are not deleted because an aggregated API does not answer; the manager's own
    also for what is left in it.
    """
    apis = " ".join(
        one["metadata"]["name"]
        for one in snapshot.all(API_SERVICES.kind)
        if condition(one, "Available").get("status") == "False"
    )
    for obj in snapshot.all(NAMESPACES.kind):
        name, age = obj["metadata"]["name"], snapshot.age(obj["metadata"].get("deletionTimestamp"))
        ours = name == snapshot.namespace
        message = _deletion_problem(obj, _UNKNOWN if not ours else (*_UNKNOWN, *_LEFT))
        if age <= PATIENCE or not message:
            continue
        fix = f"kubectl describe namespace {name}  # says what is left in it"
        if apis:
            fix = (
                f"kubectl describe apiservice {apis}  # repair its server; or, if nothing needs "
                f"the API: kubectl delete apiservice {apis}"
            )
        problem = f"it was deleted {duration(age)} ago and stays: {message}"
        severity = Severity.ERROR if ours else Severity.WARNING
        yield Finding(severity, subject_of(NAMESPACES.kind, obj), problem, fix)


_UNKNOWN = ("NamespaceDeletionDiscoveryFailure", "NamespaceDeletionGroupVersionParsingFailure")
_LEFT = ("NamespaceFinalizersRemaining", "NamespaceContentRemaining")


def _deletion_problem(namespace: Obj, types: Sequence[str]) -> str:
    """What the API server says of the first of these conditions that is true; empty without one."""
    conditions = (condition(namespace, one) for one in types)
    return next((one.get("message") or "" for one in conditions if one.get("status") == "True"), "")


def _is_in_deletion(snapshot: ClusterSnapshot, obj: Obj) -> bool:
    """Whether the namespace of an object is being deleted, as far as it was read."""
    space = snapshot.find("Namespace", obj["metadata"].get("namespace") or "")
    return space is not None and is_deleted(space)


@check("pod-finalizer-stuck", "Pod", "Workload", before_migration=True)
def stuck_pods(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Pods that carry our finalizer long after their deletion and end; the first one of each group
    that waits for replacements.

    A manager keeps the finalizer on purpose of a pod that has succeeded until its group is
    finished, and while other pods of the group are still ending.
    """
    yield from _lost_with_nodes(snapshot)
    reported: set[ObjectKey] = set()
    ending = {_group_key(pod) for pod in snapshot.all("Pod") if stage_of(pod) is PodStage.LEAVING}
    for pod in snapshot.all("Pod"):
        stage = stage_of(pod)
        grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        waits = stage is PodStage.LEAVING or (group_of(pod) and _group_key(pod) in ending)
        if waits or not _is_stuck(snapshot, pod, grace):
            continue
        age = duration(snapshot.age(pod["metadata"]["deletionTimestamp"]))
        group = _going_on(snapshot, pod) if stage.is_over else None
        if group is None:
            problem = f"it was deleted {age} ago, does not run, and its finalizer stays"
            yield _kept(snapshot, "Pod", pod, problem)
        elif stage is PodStage.FAILED and key_of(group) not in reported:
            reported.add(key_of(group))
            yield _awaiting(snapshot, pod, group, age)


def _lost_with_nodes(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Pods that should have ended a while ago, on nodes that say nothing, and that hold quota."""
    for pod in () if snapshot.why_unseen(NODES.kind) else snapshot.all("Pod"):
        age, workload = snapshot.age(pod["metadata"].get("deletionTimestamp")), None
        if stage_of(pod) is PodStage.LEAVING and age > PATIENCE:
            workload = snapshot.workload_of(pod)
        node = snapshot.find(NODES.kind, pod["spec"].get("nodeName") or "")
        silent = node is None or condition(node, "Ready").get("status") == "Unknown"
        if workload is None or not has_quota(workload) or is_finished(workload) or not silent:
            continue
        place, name = pod["spec"]["nodeName"], workload["metadata"]["name"]
        state = "does not exist" if node is None else "does not answer"
        problem = f"it should have ended {duration(age)} ago, but its node {place} {state}; its "
        problem += f"Workload {name} holds quota until then"
        fix = f"{forced_deletion_of(pod)}  # if its node is really down"
        yield Finding(Severity.WARNING, subject_of("Pod", pod), problem, fix)


def _group_key(pod: Obj) -> ObjectKey:
    return ObjectKey(pod["metadata"].get("namespace") or "", group_of(pod))


def _going_on(snapshot: ClusterSnapshot, pod: Obj) -> Obj | None:
    """The Workload of a pod's group, which may still be replaced; None if it has no such group."""
    if not group_of(pod):
        return None
    key = _group_key(pod)
    workload = snapshot.find("Workload", key.name, key.namespace)
    goes_on = workload is not None and not states.is_finished(workload) and not is_deleted(workload)
    return workload if goes_on else None


def _awaiting(snapshot: ClusterSnapshot, pod: Obj, group: Obj, age: str) -> Finding:
    """A group that waits for replacements."""
    holds = ", and its quota is held until then" if has_quota(group) else ""
    stays = f"was deleted {age} ago and stays until it is replaced or the group ends{holds}"
    problem = f"its pod {pod['metadata']['name']} {stays}"
    meta = group["metadata"]
    end = f"kubectl delete workload {meta['name']} -n {meta['namespace']}"
    fix = f"create a pod in its place; or, to end the group and its other pods: {end}"
    if _is_in_deletion(snapshot, group):
        fix = f"{end}  # ends its other pods too; no pod can replace it in a deleted namespace"
    return Finding(Severity.HINT, subject_of("Workload", group), problem, fix)


def _kept(snapshot: ClusterSnapshot, kind: str, obj: Obj, problem: str) -> Finding:
    """An object whose finalizer a running manager would remove, unless that is refused."""
    refused = (REFUSED,) if kind == "Workload" and snapshot.refusal(obj) else ()
    follows = (*refused, *no_manager(snapshot), TERMINATING)
    fix = _release(kind, obj)
    if kind == CLUSTER_QUEUES.kind and not is_ending(snapshot, kind):
        fix = _recreation(snapshot, kind, obj)
    return Finding(Severity.ERROR, subject_of(kind, obj), problem, fix, follows)


def _is_stuck(snapshot: ClusterSnapshot, obj: Obj, grace: float = 0.0) -> bool:
    return _has_ours(obj) and snapshot.age(obj["metadata"].get("deletionTimestamp")) > (
        PATIENCE + grace
    )


def _has_ours(obj: Obj) -> bool:
    return any(name in OURS for name in obj["metadata"].get("finalizers") or ())


def users_of(snapshot: ClusterSnapshot, kind: str, name: str) -> Sequence[str]:
    """The users that keep a deleted object, as kind and name.

    Args:
        snapshot: the cluster.
        kind: of the object.
        name: of the object.
    """
    world = snapshot.world
    if kind == "ClusterQueue":
        return [
            f"Workload {key}"
            for key, one in sorted(world.workloads.items())
            if has_quota(one) and world.home_of(one) == name
        ]
    if kind == TOPOLOGIES.kind:
        flavors = snapshot.all(RESOURCE_FLAVORS.kind)  # `world` has none with it without its nodes
        using = [one for one in flavors if (one.get("spec") or {}).get("topologyName") == name]
        return [
            f"ResourceFlavor {each}" for each in sorted(one["metadata"]["name"] for one in using)
        ]
    specs = [(each, queue_spec(queue)) for each, queue in sorted(world.cluster_queues.items())]
    if kind == "ResourceFlavor":
        return [f"ClusterQueue {each}" for each, spec in specs if name in spec.flavors]
    if kind == "AdmissionCheck":
        return [
            f"ClusterQueue {each}"
            for each, spec in specs
            if name in {one.name for one in spec.checks}
        ]
    return ()


def _release(kind: str, obj: Obj) -> str:
    """The command that removes our finalizer."""
    meta = obj["metadata"]
    place = next(number for number, name in enumerate(meta["finalizers"]) if name in OURS)
    where = f"-n {meta['namespace']} " if meta.get("namespace") else ""
    body = f'[{{"op":"remove","path":"/metadata/finalizers/{place}"}}]'
    patch = f"kubectl patch {where}{kind.lower()} {meta['name']} --type=json -p '{body}'"
    return f"{patch}  # a manager that manages it does the same"


# --------------------------------------------------------------------------------------------------

MISSING_FLAVOR, TOPOLOGY = "flavor-missing", "flavor-topology"


@check("queue-inactive", "ClusterQueue", "ResourceFlavor", ADMISSION_CHECKS)
def inactive(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """ClusterQueues that cannot admit anything, with all causes, except those that only a cycle of
    Cohorts cuts off.
    """
    ours = {
        f"AdmissionCheck {name}"
        for name, one in snapshot.world.checks.items()
        if one.spec.controller_name == CONTROLLER_NAME
    }
    for name in sorted(snapshot.world.cluster_queues):
        activity = snapshot.engine.activity(name)
        if activity.active or activity.reason == REASON_COHORT_CYCLE:
            continue
        severity = Severity.HINT if activity.reason == REASON_STOPPED else Severity.ERROR
        problem, fix = activity.message, f"kubectl edit clusterqueue {name}"
        silent = inactive_checks(snapshot.world, snapshot.world.cluster_queues[name])
        follows: tuple[str, ...] = ()
        absent = absent_objects(snapshot.world, snapshot.world.cluster_queues[name])
        if activity.reason == REASON_TERMINATING:
            waiting = snapshot.world.lines().get(name, ())
            severity = Severity.ERROR if waiting else Severity.HINT
            problem += f"; these Workloads wait in it: {some(waiting)}" if waiting else ""
            obj = snapshot.find(CLUSTER_QUEUES.kind, name) or {}
            fix = _recreation(snapshot, CLUSTER_QUEUES.kind, obj)
            follows = gone(snapshot, CLUSTER_QUEUES)
        elif absent:
            kinds = {one.subject.partition(" ")[0] for one in absent}
            if kinds == {RESOURCE_FLAVORS.kind} and not silent:
                follows = (MISSING_FLAVOR,)
            elif kinds == {ADMISSION_CHECK.kind}:
                follows = gone(snapshot, ADMISSION_CHECK)
            fix += f"  # {'; '.join(f'{one.subject}: {one.fix}' for one in absent)}"
        elif placed := topologies(snapshot.world, snapshot.world.cluster_queues[name]):
            follows = () if silent else (TOPOLOGY,)
            fix += f"  # {'; '.join(one.fix for one in (*silent, *placed))}"
        elif activity.reason == REASON_CHECK_INACTIVE and silent:
            fix = "; ".join(one.fix for one in silent)
            if {one.subject for one in silent} <= ours:
                follows = no_manager(snapshot)
        if activity.reason == REASON_STOPPED:
            body = '{"spec":{"stopPolicy":"None"}}'
            fix = f"kubectl patch clusterqueue {name} --type=merge -p '{body}'"
        subject = Subject("ClusterQueue", name)
        yield Finding(severity, subject, problem, fix, follows)


@check(MISSING_FLAVOR, "ClusterQueue", "ResourceFlavor")
def missing_flavors(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """ResourceFlavors that ClusterQueues name and that do not exist."""
    users: dict[str, list[str]] = {}
    for name, queue in sorted(snapshot.world.cluster_queues.items()):
        for flavor in queue_spec(queue).flavors:
            if snapshot.find("ResourceFlavor", flavor) is None:
                users.setdefault(flavor, []).append(name)
    for flavor, queues in sorted(users.items()):
        where = f"ClusterQueue {some(queues)}"
        problem = f"it does not exist, and nothing is admitted in {where}, which names it"
        take_out = f"or take it out of spec.resourceGroups of {where}"
        fix = f"kubectl get resourceflavors,clusterqueues  # create {flavor}, {take_out}"
        subject, follows = Subject("ResourceFlavor", flavor), gone(snapshot, RESOURCE_FLAVORS)
        yield Finding(Severity.ERROR, subject, problem, fix, follows)


@check(TOPOLOGY, "ClusterQueue", "ResourceFlavor", before_migration=True)
def topology(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """ResourceFlavors that ClusterQueues name, and whose Topology is missing or ignored."""
    if not snapshot.world.settings.places_pods:
        yield from _without_places(snapshot)
    users: dict[Problem, list[str]] = {}
    for name, queue in sorted(snapshot.world.cluster_queues.items()):
        for one in topologies(snapshot.world, queue):
            users.setdefault(one, []).append(name)
    for one, queues in sorted(users.items(), key=lambda each: each[0].subject):
        where = f"ClusterQueue {some(queues)}"
        problem = f"{one.problem}, so nothing is admitted in {where}, which names the flavor"
        fix = f"kubectl get resourceflavors,clusterqueues  # {one.fix}"
        subject = Subject("ResourceFlavor", one.subject.partition(" ")[2])
        yield Finding(Severity.ERROR, subject, problem, fix)


def _without_places(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """ResourceFlavors whose Topology has no effect."""
    for name, flavor in sorted(snapshot.world.flavors.items()):
        if topology := flavor.spec.topology_name:
            problem = f'spec.topologyName "{topology}" has no effect: {absence(PLACING)}'
            fix = "remove TopologyAwareScheduling: false from featureGates of the configuration"
            yield Finding(Severity.WARNING, Subject(RESOURCE_FLAVORS.kind, name), problem, fix)


@check("queue-status", "ClusterQueue", "ResourceFlavor", ADMISSION_CHECKS, COHORTS, momentary=True)
def status(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """ClusterQueues whose status contradicts their objects."""
    if has_just_begun(snapshot):
        return
    for queue in snapshot.all("ClusterQueue"):
        name = queue["metadata"]["name"]
        if name not in snapshot.world.cluster_queues or is_deleted(queue):
            continue  # its last status may stay; see queue-inactive
        state = snapshot.engine.activity(name)
        said = condition(queue, ACTIVE)
        if said.get("status") != ("True" if state.active else "False"):
            now = said.get("status") or "missing"
            problem = (
                f"its condition Active is {now}, and should be {state.active}: {state.message}"
            )
            subject = Subject("ClusterQueue", name)
            follows = (*no_manager(snapshot), *gone(snapshot, CLUSTER_QUEUES))
            yield Finding(Severity.WARNING, subject, problem, look(snapshot), follows)


@check("local-queue", "ClusterQueue", "LocalQueue", LABELS)
def local_queues(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """LocalQueues from which nothing gets into a ClusterQueue."""
    world = snapshot.world
    for key, local_queue in sorted(world.local_queues.items()):
        subject = Subject("LocalQueue", key.name, key.namespace)
        where = f"-n {key.namespace} localqueue {key.name}"
        if local_queue.spec.stop_policy != kueue.NONE:
            body = '{"spec":{"stopPolicy":"None"}}'
            fix = f"kubectl patch {where} --type=merge -p '{body}'"
            problem = f"spec.stopPolicy is {local_queue.spec.stop_policy}"
            yield Finding(Severity.HINT, subject, problem, fix)
        queue = world.cluster_queues.get(local_queue.spec.cluster_queue)
        if queue is None:
            known = some(sorted(world.cluster_queues)) or "none"
            problem = (
                f"ClusterQueue {local_queue.spec.cluster_queue} does not exist; there are: {known}"
            )
            fix = _without_cluster_queue(snapshot, local_queue, where)
            yield Finding(Severity.ERROR, subject, problem, fix, gone(snapshot, CLUSTER_QUEUES))
            continue
        selector = queue_spec(queue).selector
        labels = world.namespaces.get(key.namespace, {})
        if not selector.matches(labels):
            problem = (
                f"ClusterQueue {queue.name} does not admit namespace {key.namespace}: "
                f"spec.namespaceSelector is {selector}"
            )
            wanted = missing_labels(selector, labels) or ()
            texts = " ".join(f"{name}={value}" for name, value in wanted)
            fix = f"kubectl label namespace {key.namespace} {texts}"
            if not wanted or any(name in labels for name, _ in wanted):
                fix = f"kubectl edit clusterqueue {queue.name}  # let spec.namespaceSelector match"
                fix += f" the namespace, or change its labels ({texts})" if wanted else " it"
            yield Finding(Severity.ERROR, subject, problem, fix)


def _without_cluster_queue(snapshot: ClusterSnapshot, queue: kueue.LocalQueue, where: str) -> str:
    """What to do about a LocalQueue whose ClusterQueue does not exist."""
    world, wrong = snapshot.world, queue.spec.cluster_queue
    create = f"create ClusterQueue {wrong}"
    show = f"kubectl get {where} -o yaml"
    if any(world.local_queue_of(one) is queue for one in world.workloads.values()):
        return f"{show}  # {create}: Workloads are in this LocalQueue"
    alike = get_close_matches(wrong, sorted(world.cluster_queues))
    meant = [one for one in alike if sub(r"\D", "", one) == sub(r"\D", "", wrong)]
    if meant:
        change = f"sed 's|clusterQueue: {wrong}$|clusterQueue: {meant[0]}|'"
        replace = "kubectl replace --force -f -"
        return f"{show} | {change} | {replace}  # or {create}"
    return f"{show}  # {create}, or remove this LocalQueue if nobody submits to it"


@check("queue-name", "LocalQueue", "Workload")
def queue_names(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Workloads that are in no LocalQueue, those that name the same one together."""
    world, lost = snapshot.world, dict[Problem, list[str]]()
    for key, workload in sorted(world.workloads.items()):
        if is_finished(workload) or has_quota(workload) or not workload.spec.active:
            continue
        if workload.metadata.deletion_timestamp is not None:
            continue  # no queue is missing for it
        if world.local_queue_of(workload) is None:
            lost.setdefault(wrong_queue_name(world, key), []).append(key.name)
    for wrong, names in lost.items():
        kind, _, place = wrong.subject.partition(" ")
        namespace, _, name = place.partition("/")
        problem = wrong.problem
        if kind == "LocalQueue":
            problem += f", and these Workloads name it: {some(names)}"
            homes = snapshot.homes_of(ObjectKey(namespace, name))
            problem += f"; it led to ClusterQueue {some(homes)}" if homes else ""
        fix = f"kubectl -n {namespace} get workloads  # {wrong.fix}"
        follows = gone(snapshot, LOCAL_QUEUES)
        yield Finding(Severity.ERROR, Subject(kind, name, namespace), problem, fix, follows)
