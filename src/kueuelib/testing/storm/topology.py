"""Storms in which nodes come, go, lie about their capacity, and lose taints and labels (KEP-2724).

The bundled manager places Jobs in racks. Its laws here are about places only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kueuelib.api.codec import decode
from kueuelib.api.kinds import KUEUE, V1BETA2
from kueuelib.api.meta import is_true, labels_of
from kueuelib.api.workload import HOST, PodSetAssignment
from kueuelib.embedded.cluster.contract import RUN_SECONDS, SIMULATED
from kueuelib.testing.storm.bundled import BundledManager
from kueuelib.testing.storm.draws import Draws
from kueuelib.testing.storm.history import Commit, Obj
from kueuelib.testing.storm.profiles import WORKLOADS, Profile
from kueuelib.testing.storm.run import LIMIT
from kueuelib.testing.storm.trial import ClusterState, GivenLaws, Trial, warm_up
from kueuelib.testing.storm.users import Scenario, acts
from kueuelib.testing.storm.users.acts import Act

RACK, POOL = "storm.example/rack", "storm.example/pool"
RACKS, IN_RACK, CPUS, SLOTS = 2, 3, 8, 6
SECONDS = 180.0
EVENTS = (6, 14)
"""How often something happens to a node, at least and at most."""
AWAY = (0.5, 60.0)
"""How long it lasts, in seconds."""
JOBS, NODES = "jobs.batch", "nodes"
ENDLESS = 100_000
TAINT: Final = {"key": "storm.example/repair", "value": "yes"}

# ---- users: a queue with room for all, Jobs, and what happens to nodes ---------------------------


def _node(rack: int, number: int) -> Obj:
    name = f"rack-{rack}-node-{number}"
    labels = {HOST: name, RACK: f"rack-{rack}", POOL: "yes", SIMULATED: "true"}
    capacity = {"cpu": str(CPUS), "memory": "64Gi", "pods": str(SLOTS)}
    meta = {"name": name, "labels": labels}
    status = {"capacity": capacity, "allocatable": capacity}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": status}


def _typed(kind: str, name: str, spec: Obj, namespace: str = "") -> Obj:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": f"{KUEUE}/{V1BETA2}", "kind": kind, "metadata": meta, "spec": spec}


def _nodes() -> list[Obj]:
    return [_node(rack, number) for rack in range(RACKS) for number in range(IN_RACK)]


def scenario(draws: Draws, profile: Profile) -> Scenario:
    """Draws Jobs, and what happens to nodes.

    Args:
        draws: decisions by label.
        profile: the number of jobs.
    """
    levels = {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]}
    flavor = {"nodeLabels": {POOL: "yes"}, "topologyName": "racks"}
    rows = [{"name": "cpu", "nominalQuota": "1000"}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "racks", "resources": rows}]}
    queue = {
        "namespaceSelector": {},
        "resourceGroups": [group],
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    setup = [
        *((NODES, node) for node in _nodes()),
        (f"topologies.{KUEUE}", _typed("Topology", "racks", levels)),
        (f"resourceflavors.{KUEUE}", _typed("ResourceFlavor", "racks", flavor)),
        (f"clusterqueues.{KUEUE}", _typed("ClusterQueue", "racks", queue)),
        (
            f"localqueues.{KUEUE}",
            _typed("LocalQueue", "racks", {"clusterQueue": "racks"}, "default"),
        ),
        *(
            (
                f"workloadpriorityclasses.{KUEUE}",
                {**_typed("WorkloadPriorityClass", name, {}), "value": value},
            )
            for name, value in (("low", 1), ("high", 9))
        ),
    ]
    planned = [
        act
        for number in range(draws.integer("works", *profile.jobs))
        for act in _job(draws, number)
    ]
    for number in range(draws.integer("events", *EVENTS)):
        planned += _event(draws, f"event-{number}")
    planned.sort(key=lambda act: (act.at, act.label))
    return Scenario(
        tuple(_create(0.0, resource, obj) for resource, obj in setup),
        tuple(planned),
        tuple(act for node in _nodes() for act in _restored(node)),
    )


def _create(at: float, resource: str, obj: Obj) -> Act:
    meta = obj["metadata"]
    place = (resource, meta.get("namespace", ""), meta["name"])
    if "spec" in obj and not obj["spec"]:
        obj = {key: value for key, value in obj.items() if key != "spec"}
    return Act(at, f"create-{resource}-{meta['name']}", acts.CREATE, *place, obj)


def _job(draws: Draws, number: int) -> Iterator[Act]:
    label = f"job-{number}"
    level = draws.choice(f"{label}/level", (RACK, HOST))
    kind = draws.choice(f"{label}/kind", ("required", "preferred", "unconstrained", "none"))
    notes = {f"{KUEUE}/podset-{kind}-topology": "true" if kind == "unconstrained" else level}
    seconds = draws.choice(f"{label}/seconds", (5, 20, 60, ENDLESS))
    pods = draws.integer(f"{label}/pods", 1, 5)
    requests = {"cpu": str(draws.integer(f"{label}/cpu", 1, 3))}
    container = {"name": "c", "image": "i", "resources": {"requests": requests}}
    template = {
        "metadata": {
            "annotations": {RUN_SECONDS: str(seconds), **(notes if kind != "none" else {})}
        },
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    name = draws.choice(f"{label}/priority", ("low", "high"))
    labels = {f"{KUEUE}/queue-name": "racks", f"{KUEUE}/priority-class": name}
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 1000, "template": template}
    if draws.chance(f"{label}/indexed", 0.5):
        spec |= {"completionMode": "Indexed"}
    meta = {"name": label, "namespace": "default", "labels": labels}
    at = draws.uniform(f"{label}/at", 0.0, SECONDS * 0.7)
    yield _create(
        at, JOBS, {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
    )
    if draws.chance(f"{label}/deleted", 0.15):
        gone = at + draws.uniform(f"{label}/gone", 1.0, 100.0)
        yield Act(gone, f"{label}/delete", acts.DELETE, JOBS, "default", label)


def _event(draws: Draws, label: str) -> Iterator[Act]:
    """Something happens to a node, and is undone later."""
    node = draws.choice(f"{label}/node", _nodes())
    place = (NODES, "", node["metadata"]["name"])
    at = draws.uniform(f"{label}/at", 1.0, SECONDS)
    back = at + draws.scaled(f"{label}/away", *AWAY)
    spec, status = {"taints": None, "unschedulable": None}, node["status"]
    match draws.choice(
        f"{label}/what", ("gone", "unready", "tainted", "drained", "smaller", "label")
    ):
        case "gone":
            yield Act(at, f"{label}/away", acts.DELETE, *place)
            yield Act(back, f"{label}/back", acts.CREATE, *place, _plain(node))
        case "unready":
            yield Act(at, f"{label}/away", acts.PATCH_STATUS, *place, _ready("Unknown"))
            yield Act(back, f"{label}/back", acts.PATCH_STATUS, *place, _ready("True"))
        case "tainted":
            bad = {"spec": {"taints": [{**TAINT, "effect": "NoSchedule"}]}}
            yield Act(at, f"{label}/away", acts.PATCH, *place, bad)
            yield Act(back, f"{label}/back", acts.PATCH, *place, {"spec": spec})
        case "drained":
            bad = {"spec": {"taints": [{**TAINT, "effect": "NoExecute"}]}}
            yield Act(at, f"{label}/away", acts.PATCH, *place, bad)
            yield Act(back, f"{label}/back", acts.PATCH, *place, {"spec": spec})
        case "smaller":
            less = {"allocatable": {**status["allocatable"], "cpu": "2"}}
            yield Act(at, f"{label}/away", acts.PATCH_STATUS, *place, less)
            yield Act(back, f"{label}/back", acts.PATCH_STATUS, *place, status)
        case _:
            yield Act(
                at, f"{label}/away", acts.PATCH, *place, {"metadata": {"labels": {RACK: None}}}
            )
            labels = {"metadata": {"labels": node["metadata"]["labels"]}}
            yield Act(back, f"{label}/back", acts.PATCH, *place, labels)


def _plain(node: Obj) -> Obj:
    return {key: value for key, value in node.items() if key != "spec"}


def _ready(status: str) -> Obj:
    at = "2026-01-01T00:00:00Z"
    times = {"lastHeartbeatTime": at, "lastTransitionTime": at}
    return {
        "conditions": [
            {"type": "Ready", "status": status, "reason": "Played", "message": "", **times}
        ]
    }


def _restored(node: Obj) -> Iterator[Act]:
    name = node["metadata"]["name"]
    place = (NODES, "", name)
    yield Act(0.0, f"calm-create-{name}", acts.CREATE, *place, _plain(node))
    labels = {"labels": node["metadata"]["labels"]}
    body = {"metadata": labels, "spec": {"taints": None, "unschedulable": None}}
    yield Act(0.0, f"calm-spec-{name}", acts.PATCH, *place, body)
    yield Act(
        0.0, f"calm-status-{name}", acts.PATCH_STATUS, *place, {**node["status"], **_ready("True")}
    )


# ---- laws ----------------------------------------------------------------------------------------


def _holds_quota(wl: Mapping[str, Any]) -> bool:
    return is_true(wl, "QuotaReserved") and not is_true(wl, "Finished")


def _places(wl: Mapping[str, Any]) -> dict[str, Counter[str]]:
    """How many pods of each pod set are on each host."""
    admission = (wl.get("status") or {}).get("admission") or {}
    places: dict[str, Counter[str]] = {}
    for raw in admission.get("podSetAssignments") or ():
        one = decode(PodSetAssignment, raw)
        if one.topology_assignment is not None:
            domains = one.topology_assignment.domains
            places[one.name] = Counter({values[-1]: count for values, count in domains})
    return places


def _cpu(wl: Mapping[str, Any], name: str) -> int:
    (pod_set,) = (one for one in wl["spec"]["podSets"] if one["name"] == name)
    (container,) = pod_set["template"]["spec"]["containers"]
    return int(container["resources"]["requests"]["cpu"])


def _used(state: ClusterState) -> tuple[Counter[str], Counter[str]]:
    """The CPUs and the pods that are assigned to each host."""
    cpus: Counter[str] = Counter()
    pods: Counter[str] = Counter()
    for wl in state.objects(WORKLOADS):
        for name, places in _places(wl).items() if _holds_quota(wl) else ():
            for host, count in places.items():
                cpus[host] += count * _cpu(wl, name)
                pods[host] += count
    return cpus, pods


def no_node_is_overbooked(commit: Commit, state: ClusterState) -> Iterator[str]:
    """What is written never exceeds what a node has at its best."""
    if commit.resource != WORKLOADS or commit.new is None:
        return
    cpus, pods = _used(state)
    for places in _places(commit.new).values():
        for host in places:
            if cpus[host] > CPUS or pods[host] > SLOTS:
                yield f"{host}: {cpus[host]} of {CPUS} CPUs, {pods[host]} of {SLOTS} pods"


def required_pods_share_a_domain(commit: Commit, state: ClusterState) -> Iterator[str]:
    """All pods that have not ended are placed, those that require a level in one domain of it."""
    del state
    wl = commit.new
    if commit.resource != WORKLOADS or wl is None or not _holds_quota(wl):
        return
    ended = {one["name"]: one["count"] for one in wl["status"].get("reclaimablePods") or ()}
    for pod_set in wl["spec"]["podSets"]:
        places, count = _places(wl).get(pod_set["name"], Counter()), pod_set["count"]
        if not count - ended.get(pod_set["name"], 0) <= places.total() <= count:
            yield f"{places.total()} of {count} pods have places"
        level = (pod_set.get("topologyRequest") or {}).get("required")
        domains = {host if level == HOST else host.rpartition("-node-")[0] for host in places}
        if level and len(domains) > 1:
            yield f"pods are in {', '.join(sorted(domains))}"


def only_pods_of_a_failed_node_move(commit: Commit, state: ClusterState) -> Iterator[str]:
    """New places of a running Workload keep those on other nodes."""
    del state
    old, new = commit.old, commit.new
    if commit.resource != WORKLOADS or old is None or new is None:
        return
    if not (_holds_quota(old) and _holds_quota(new)):
        return
    failed = {one["name"] for one in old["status"].get("unhealthyNodes") or ()}
    for name, before in _places(old).items():
        for host, lost in (before - _places(new).get(name, Counter())).items():
            if host not in failed:
                yield f"{lost} pod(s) of {host} moved, but {sorted(failed)} failed"


def nothing_that_could_be_placed_sleeps(state: ClusterState) -> Iterator[str]:
    """At rest, no Workload waits whose pods have room in a domain that it asks for."""
    cpus, pods = _used(state)
    for wl in state.objects(WORKLOADS):
        if is_true(wl, "Finished") or _holds_quota(wl):
            continue
        (pod_set,) = wl["spec"]["podSets"]
        cpu, room = _cpu(wl, pod_set["name"]), defaultdict[str, int](int)
        level = (pod_set.get("topologyRequest") or {}).get("required")
        for node in _nodes():
            host = node["metadata"]["name"]
            fit = min((CPUS - cpus[host]) // cpu, SLOTS - pods[host])
            domain = host if level == HOST else labels_of(node)[RACK] if level else ""
            room[domain] += max(0, fit)
        if max(room.values()) >= pod_set["count"]:
            name, count = wl["metadata"]["name"], pod_set["count"]
            yield f"{name} waits for {count} pods of {cpu} CPUs: {dict(room)}"


def pods_run_where_they_are_placed(state: ClusterState) -> Iterator[str]:
    """At rest, the pods of each admitted Workload run on the hosts that it was assigned.

    On a node that was created again before its pods were collected, they still run.
    """
    again = {one.name for one in state.history if one.resource == NODES and one.new is None}
    running: defaultdict[str, Counter[str]] = defaultdict(Counter)
    ended: Counter[str] = Counter()
    for pod in state.objects("pods"):
        name = (pod["metadata"].get("annotations") or {}).get(f"{KUEUE}/workload")
        phase = (pod.get("status") or {}).get("phase")
        if name and phase == "Running":
            running[name][pod["spec"]["nodeName"]] += 1
        ended[name or ""] += phase == "Succeeded"
    for wl in state.objects(WORKLOADS):
        if not _holds_quota(wl):
            continue
        name, places = wl["metadata"]["name"], sum(_places(wl).values(), Counter[str]())
        elsewhere = (running[name] - places).keys() - again
        count = sum(pod_set["count"] for pod_set in wl["spec"]["podSets"])
        if elsewhere or running[name].total() + ended[name] != count:
            yield f"{name} has {dict(running[name])} instead of {dict(places)}"
        if wl["status"].get("unhealthyNodes"):
            yield f"{name} still lists {wl['status']['unhealthyNodes']}"


TOPOLOGY: Final = Trial(
    program=BundledManager(),
    laws=lambda objects, _tolerance: GivenLaws(
        objects,
        (nothing_that_could_be_placed_sleeps, pods_run_where_they_are_placed),
        (no_node_is_overbooked, required_pods_share_a_domain, only_pods_of_a_failed_node_move),
    ),
    scenario=scenario,
    limit=LIMIT,
    prepare=warm_up,
)
"""The bundled manager with nodes in racks, and the laws of places."""
