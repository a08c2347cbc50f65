"""Topologies: nodes that are in none of their domains, flavors that share nodes, Workloads on nodes
that are now in other domains, and requests without effect (KEP-2724).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from kueuelib.api import kinds
from kueuelib.api.batch import has_ended
from kueuelib.api.patterns import MAIN_POD_SET
from kueuelib.api.phrases import counted, some
from kueuelib.api.workload import HOST
from kueuelib.api.workload_state import is_admitted, is_evicted, is_finished
from kueuelib.app.doctor.finding import Finding, Severity, Subject, check, subject_of
from kueuelib.app.doctor.manager import no_manager
from kueuelib.app.doctor.snapshot import PLACES, ClusterSnapshot
from kueuelib.app.explaining.nodes import places_matter
from kueuelib.jobs.contract.topology import ignored_requests
from kueuelib.scheduler.explain.placements import (
    Misplacements,
    nodes_by_flavor,
    nodes_without_level,
)


@check("topology-levels", kinds.RESOURCE_FLAVORS.kind, PLACES)
def levels(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Nodes that are in no domain, because they lack the label of a level."""
    for one in nodes_without_level(snapshot.world):
        severity = Severity.ERROR if one.every else Severity.WARNING
        fix = f"kubectl label node {one.nodes[0]} {one.level}=...  # or correct spec.levels"
        yield Finding(severity, Subject(kinds.TOPOLOGIES.kind, one.topology), one.text, fix)


@check("topology-overlap", kinds.RESOURCE_FLAVORS.kind, PLACES)
def overlaps(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Flavors that share nodes and do not see each other's pods."""
    for one, another in combinations(nodes_by_flavor(snapshot.world), 2):
        (name, topology, nodes), (other, others, theirs) = one, another
        if topology.spec.levels[-1].node_label == others.spec.levels[-1].node_label == HOST:
            continue  # these see each other's pods
        names = {node.name for node in theirs}
        shared = [node.name for node in nodes if node.name in names]
        if shared:
            problem = (
                f"it shares {counted(len(shared), 'node')} ({some(shared)}) with flavor {other}, "
                f"but neither sees the other's pods, because not both topologies end with {HOST}: "
                "admitted pods may stay Pending"
            )
            fix = f"kubectl edit resourceflavor {name}  # give each flavor nodes of its own"
            yield Finding(Severity.WARNING, Subject("ResourceFlavor", name), problem, fix)


@check("placement-stale", "Workload", kinds.RESOURCE_FLAVORS.kind, PLACES, momentary=True)
def stale(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Admitted Workloads whose domains no longer exist, or whose nodes are no longer together in a
    domain of the level that their pods require.
    """
    if not places_matter(snapshot.world):
        return
    misplacements = Misplacements(snapshot.world)
    for key, workload in sorted(snapshot.world.workloads.items()):
        admission = workload.status.admission
        if admission is None or not is_admitted(workload):
            continue
        if is_finished(workload) or is_evicted(workload) or workload.metadata.deletion_timestamp:
            continue
        wrong = [*misplacements.of(workload, admission)]
        if wrong:
            levels = ",".join(dict.fromkeys(one.level for one in wrong))
            fix = (
                f"kubectl get nodes -L {levels}  # correct the labels, or let the manager place "
                "the pods again: set spec.active of the Workload to false, then to true"
            )
            problem = "; ".join(one.text for one in wrong)
            subject = Subject("Workload", key.name, key.namespace)
            yield Finding(Severity.WARNING, subject, problem, fix, no_manager(snapshot))


@check("topology-ignored", "Workload", "Job")
def ignored(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Labels and annotations for a topology that have no effect: one finding for each, about the
    first object that has it.
    """
    holders: dict[tuple[str, str], list[Subject]] = {}
    for job in snapshot.all("Job"):
        for text in () if has_ended(job) else ignored_requests(job["metadata"], ()):
            holders.setdefault((text, "job"), []).append(subject_of("Job", job))
    for workload in snapshot.all("Workload"):
        if is_finished(workload):
            continue
        for pod_set in workload["spec"].get("podSets") or ():
            where = f"spec.podSets[{pod_set.get('name', MAIN_POD_SET)}].template"
            for text in ignored_requests({}, [(where, pod_set["template"])]):
                subject = subject_of("Workload", workload)
                holders.setdefault((text, "workload"), []).append(subject)
    for (text, kind), (first, *others) in holders.items():
        more = f" (also in {counted(len(others), f'other {first.kind}')})" if others else ""
        show = f"kubectl -n {first.namespace} get {kind} {first.name} -o yaml"
        fix = f"{show}  # correct the pod template of the job, and submit the job again"
        yield Finding(Severity.WARNING, first, f"{text}{more}", fix)
