"""Queues that cannot admit anything, and Workloads that are in no queue."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from re import sub

from kueuelib.api import kueue
from kueuelib.api.kinds import ADMISSION_CHECKS as ADMISSION_CHECK
from kueuelib.api.kinds import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS
from kueuelib.api.meta import find_condition
from kueuelib.api.names import (
    ACTIVE,
    REASON_CHECK_INACTIVE,
    REASON_COHORT_CYCLE,
    REASON_STOPPED,
    REASON_TERMINATING,
)
from kueuelib.api.phrases import some
from kueuelib.app.doctor.checks.finalizers import recreation
from kueuelib.app.doctor.finding import Finding, Severity, Subject, check
from kueuelib.app.doctor.manager import gone, look, no_manager
from kueuelib.app.doctor.snapshot import ADMISSION_CHECKS, COHORTS, LABELS, Snapshot
from kueuelib.checks.provisioning.check import CONTROLLER_NAME
from kueuelib.scheduler.explain.obstacles import (
    Problem,
    absent_objects,
    inactive_checks,
    missing_labels,
    topologies,
    wrong_queue_name,
)
from kueuelib.scheduler.pending.workload_info import holds_quota, is_finished
from kueuelib.scheduler.quota.queue_spec import queue_spec

MISSING_FLAVOR, TOPOLOGY = "flavor-missing", "flavor-topology"


@check("queue-inactive", "ClusterQueue", "ResourceFlavor", ADMISSION_CHECKS)
def inactive(snapshot: Snapshot) -> Iterator[Finding]:
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
            fix, follows = recreation(name), gone(snapshot, CLUSTER_QUEUES)
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
def missing_flavors(snapshot: Snapshot) -> Iterator[Finding]:
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
def topology(snapshot: Snapshot) -> Iterator[Finding]:
    """ResourceFlavors that ClusterQueues name and that name a Topology."""
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


@check("queue-status", "ClusterQueue", "ResourceFlavor", ADMISSION_CHECKS, COHORTS, momentary=True)
def status(snapshot: Snapshot) -> Iterator[Finding]:
    """ClusterQueues whose status contradicts their objects."""
    for queue in snapshot.all("ClusterQueue"):
        name = queue["metadata"]["name"]
        if name not in snapshot.world.cluster_queues:
            continue
        state = snapshot.engine.activity(name)
        said = find_condition((queue.get("status") or {}).get("conditions"), ACTIVE)
        if said.get("status") != ("True" if state.active else "False"):
            now = said.get("status") or "missing"
            problem = (
                f"its condition Active is {now}, and should be {state.active}: {state.message}"
            )
            subject = Subject("ClusterQueue", name)
            follows = (*no_manager(snapshot), *gone(snapshot, CLUSTER_QUEUES))
            yield Finding(Severity.WARNING, subject, problem, look(snapshot), follows)


@check("local-queue", "ClusterQueue", "LocalQueue", LABELS)
def local_queues(snapshot: Snapshot) -> Iterator[Finding]:
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


def _without_cluster_queue(snapshot: Snapshot, queue: kueue.LocalQueue, where: str) -> str:
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
def queue_names(snapshot: Snapshot) -> Iterator[Finding]:
    """Workloads that are in no LocalQueue, those that name the same one together."""
    world, lost = snapshot.world, dict[Problem, list[str]]()
    for key, workload in sorted(world.workloads.items()):
        if is_finished(workload) or holds_quota(workload) or not workload.spec.active:
            continue
        if world.local_queue_of(workload) is None:
            lost.setdefault(wrong_queue_name(world, key), []).append(key.name)
    for told, names in lost.items():
        kind, _, place = told.subject.partition(" ")
        namespace, _, name = place.partition("/")
        problem = told.problem
        if kind == "LocalQueue":
            problem += f", and these Workloads name it: {some(names)}"
        fix = f"kubectl -n {namespace} get workloads  # {told.fix}"
        follows = gone(snapshot, LOCAL_QUEUES)
        yield Finding(Severity.ERROR, Subject(kind, name, namespace), problem, fix, follows)
