"""Runs recorded cases of parts of topology-aware scheduling: data in, data out (KEP-2724)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kueuelib.api.codec import decode, encode
from kueuelib.api.conversion import topology_assignment
from kueuelib.api.core import PodSpec
from kueuelib.api.kueue import CHECK_READY, Topology
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.names import ADMITTED, EVICTED, FINISHED, QUOTA_RESERVED
from kueuelib.api.pods import FAILED, SUCCEEDED
from kueuelib.api.quantity import Quantity, amount_of
from kueuelib.api.workload import Domain, TopologyAssignment, TopologyRequest
from kueuelib.scheduler import events
from kueuelib.scheduler.quota.queue_spec import Flavor, flavor_of
from kueuelib.scheduler.topology.demand import POD_SLOTS, Unplaceable
from kueuelib.scheduler.topology.leaf_room import LeafRoom
from kueuelib.scheduler.topology.nodes import NodeCache, TopologyOfFlavor, node_facts
from kueuelib.scheduler.topology.placement import Misfit, NoDomain
from kueuelib.scheduler.topology.pod_sets import Domains, Member, NoPlace, move, place_all
from kueuelib.scheduler.topology.ungater import PlacedPodSet, PodOfSet, ungated
from kueuelib.testing.builders import make_check, make_flavor


def is_encoding(case: Mapping[str, Any]) -> bool:
    """Whether a case asks for the slices of domains."""
    return "domains" in case


def is_ungating(case: Mapping[str, Any]) -> bool:
    """Whether a case asks which pods lose their gate."""
    return "podsets" in case and "topologies" not in case


def is_placement(case: Mapping[str, Any]) -> bool:
    """Whether a case asks where pod sets are placed."""
    return "podsets" in case and "topologies" in case


def encoding_of(case: Mapping[str, Any]) -> Obj:
    """The assignment with the `domains` of a case, as `v1beta2` has it."""
    encoded: Obj = encode(topology_assignment(case["levels"], _domains(case)))
    shown = {key: part for key, part in encoded.items() if part}
    return {"id": case.get("id"), "encoded": shown}


def ungating_of(case: Mapping[str, Any]) -> Obj:
    """What one pass of the ungater adds to the node selectors of pods."""
    pods: dict[str, list[PodOfSet]] = {}
    for pod in case["pods"]:
        if pod["phase"] not in (SUCCEEDED, FAILED):
            one = PodOfSet(
                pod["name"], pod["labels"], pod.get("offset", ""), pod["gated"], pod.get("sel", {})
            )
            pods.setdefault(pod["podset"], []).append(one)
    pod_sets = [_placed(each) for each in case["podsets"]]
    return {
        "id": case.get("id"),
        "ungated": ungated(pod_sets, pods, case.get("unhealthy", ())),
    }


def _placed(pod_set: Mapping[str, Any]) -> PlacedPodSet:
    request = TopologyRequest(
        pod_index_label=pod_set.get("podIndexLabel"),
        sub_group_index_label=pod_set.get("subGroupIndexLabel"),
        sub_group_count=pod_set.get("subGroupCount"),
        pod_set_group_name=pod_set.get("group"),
    )
    assignment = pod_set["assignment"]
    levels = tuple(assignment["levels"])
    return PlacedPodSet(pod_set["name"], pod_set["count"], request, levels, _domains(assignment))


def _domains(assignment: Mapping[str, Any]) -> tuple[Domain, ...]:
    return tuple([(tuple(values), count) for values, count in assignment["domains"]])


# ---- placements: nodes and pod sets as data, domains as data ------------------------------------

_CLASSES = (
    ("no requested topology level", "no-level"),
    ("podset slice topology", "slice-above"),
    ("additional slice layer", "bad-layer"),
    ("no topology domains", "no-domains"),
    ("Cannot replace", "stale"),
    ("cannot find replacement", "no-replacement"),
)


def node_of(node: Mapping[str, Any]) -> Obj:
    """The raw Node of a description."""
    ready = "True" if node.get("ready", True) else "False"
    spec: Obj = {"taints": list(node.get("taints", ()))}
    if node.get("unschedulable"):
        spec["unschedulable"] = True
    return {
        "metadata": {"name": node["name"], "labels": node.get("labels", {})},
        "spec": spec,
        "status": {
            "allocatable": {name: str(amount) for name, amount in node["alloc"].items()},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


_NAMES = {
    "required": "required",
    "preferred": "preferred",
    "unconstrained": "unconstrained",
    "sliceTopology": "podSetSliceRequiredTopology",
    "sliceSize": "podSetSliceSize",
    "group": "podSetGroupName",
    "constraints": "podsetSliceRequiredTopologyConstraints",
}
"""The fields of a described topology request, each with that of the object."""


def topology_request(description: Mapping[str, Any] | None) -> Obj | None:
    """The raw topology request of a described pod set; None if it has none."""
    if description is None:
        return None
    return {_NAMES[key]: given for key, given in description.items()}


def described_request(request: TopologyRequest) -> Obj:
    """The description of a topology request, from which `topology_request` makes the same."""
    raw = encode(request)
    return {key: raw[name] for key, name in _NAMES.items() if raw.get(name) is not None}


def topology_of(flavor: Flavor, topologies: Mapping[str, Sequence[str]]) -> TopologyOfFlavor | None:
    """What decides about the nodes of a described flavor; None if it has no topology."""
    levels = topologies.get(flavor.topology)
    if levels is None:
        return None
    return TopologyOfFlavor(flavor.topology, tuple(levels), flavor.labels, flavor.tolerations)


def foreign_request(pod: Mapping[str, Any]) -> Mapping[str, int] | None:
    """What a described pod takes of its node; None if it takes nothing."""
    if pod.get("tas") or pod.get("phase") in (SUCCEEDED, FAILED) or not pod.get("node"):
        return None
    return {**amounts(pod.get("req", {})), POD_SLOTS: 1}


def amounts(request: Mapping[str, Any]) -> dict[str, int]:
    """Described requests in the units of the scheduler."""
    quantities = ((name, Quantity.parse(str(amount))) for name, amount in request.items())
    return {name: amount_of(name, quantity) for name, quantity in quantities}


def pods_of(description: Mapping[str, Any]) -> PodSpec:
    """The selectors, tolerations and affinity of a described pod set."""
    raw: Obj = {
        "containers": [],
        "nodeSelector": description.get("sel") or {},
        "tolerations": list(description.get("tol") or ()),
    }
    if description.get("affinity"):
        terms = [
            {
                "matchExpressions": [
                    {"key": one["key"], "operator": one["op"], "values": one.get("values") or []}
                    for one in term
                ]
            }
            for term in description["affinity"]
        ]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        raw["affinity"] = {"nodeAffinity": required}
    return decode(PodSpec, raw)


def placement_of(case: Mapping[str, Any]) -> Obj:
    """Places the pod sets of one case.

    Args:
        case: topologies, flavors, nodes, pods of others, usage and pod sets.

    Returns:
        The domains of all pod sets, or those that failed and why.
    """
    cache = NodeCache()
    for name, each in case["flavors"].items():
        made = make_flavor(
            name, each.get("labels"), (), each.get("tol", ()), topologyName=each["topologyName"]
        )
        cache.set_flavor(name, topology_of(flavor_of(made), case["topologies"]))
    for node in case["nodes"]:
        cache.set_node(node_facts(node_of(node)))
    for index, pod in enumerate(case.get("pods", ())):
        cache.set_pod(index, pod.get("node", ""), foreign_request(pod))
    for used in case.get("usage", ()):
        levels = case["topologies"][case["flavors"][used["flavor"]]["topologyName"]]
        domain = tuple(used["values"]), used["count"]
        taken = Domains(used["flavor"], tuple(levels), (domain,), amounts(used["req"]))
        cache.charge(taken.charges)
    room = LeafRoom(cache.freeze())
    members = [_member(one) for one in case["podsets"]]
    if case.get("unhealthy"):
        return {"id": case.get("id"), **_replaced(case, room, members)}
    placed = place_all(room, members, empty=case.get("simulateEmpty", False))
    return {"id": case.get("id"), **_shown(placed)}


def _member(description: Mapping[str, Any]) -> Member:
    raw = topology_request(description.get("topology"))
    return Member(
        description["name"],
        description["flavor"],
        description["count"],
        amounts(description["req"]),
        pods_of(description),
        None if raw is None else decode(TopologyRequest, raw),
    )


def _replaced(case: Mapping[str, Any], room: LeafRoom, members: list[Member]) -> Obj:
    placed: dict[str, Domains] = {}
    left = room.fork()
    for member, description in zip(members, case["podsets"], strict=True):
        old = _domains(description["assignment"])
        outcome = move(left, member, old, case["unhealthy"][0])
        if isinstance(outcome, NoPlace):
            return _shown((outcome,))
        placed[member.name] = outcome
        left.take(outcome.charges)
    return _shown(placed)


def _shown(placed: Mapping[str, Domains] | tuple[NoPlace, ...]) -> Obj:
    if isinstance(placed, Mapping):
        return {"placed": {name: shown_domains(one) for name, one in placed.items()}}
    by_text = sorted((each.why for each in placed), key=lambda why: why.text)
    return {
        "failed": sorted(name for each in placed for name in each.pod_sets),
        "class": _class_of(by_text[0]),
        "reason": " | ".join(why.text for why in by_text),
    }


def shown_domains(placed: Domains | TopologyAssignment) -> Obj:
    """The places of a pod set in the form of the cases."""
    return {
        "levels": list(placed.levels),
        "domains": [[list(values), count] for values, count in placed.domains],
    }


def _class_of(why: Misfit) -> str:
    if isinstance(why, NoDomain):
        return "not-fit"
    assert isinstance(why, Unplaceable)
    return next((name for text, name in _CLASSES if why.text.startswith(text)), "other")


# ---- the scheduler: what scenarios have beside those of quota ------------------------------------

PROVISIONING = "provisioning"
"""The check that nodes are made for pods."""


def facts(scenario: Mapping[str, Any]) -> Iterator[events.Event]:
    """Topologies, nodes, pods of others and checks of a scenario."""
    for name, levels in scenario.get("topologies", {}).items():
        listed = [{"nodeLabel": level} for level in levels]
        raw = {"metadata": {"name": name}, "spec": {"levels": listed}}
        yield events.TopologySet(decode(Topology, raw))
    for node in scenario.get("nodes", ()):
        yield events.NodeSet(node_facts(node_of(node)))
    for pod in scenario.get("pods", ()):
        yield _foreign(pod)
    if any(queue.get(PROVISIONING) for queue in scenario["cqs"].values()):
        yield events.CheckSet(make_check(PROVISIONING, controllerName=_CONTROLLER))


_CONTROLLER = "kueue.x-k8s.io/provisioning-request"


def checks_of(queue: Mapping[str, Any]) -> Obj:
    """The checks of a described ClusterQueue."""
    flavors = queue.get(PROVISIONING)
    if not flavors:
        return {}
    rule: Obj = {"name": PROVISIONING}
    if flavors is not True:
        rule["onFlavors"] = list(flavors)
    return {"admissionChecksStrategy": {"admissionChecks": [rule]}}


def assignment_of(pod_set: Mapping[str, Any]) -> Obj:
    """The places of a described pod set with quota, for its assignment."""
    given = pod_set.get("assignment")
    if given is None:
        return {}
    return {"topologyAssignment": encode(topology_assignment(given["levels"], _domains(given)))}


def unhealthy(nodes: Iterable[str]) -> Obj:
    """The status of a Workload some of whose nodes failed."""
    listed = [{"name": name} for name in nodes]
    return {"unhealthyNodes": listed} if listed else {}


def _foreign(pod: Mapping[str, Any]) -> events.ForeignPod:
    request = None if pod.get("deleted") else foreign_request(pod)
    return events.ForeignPod(ObjectKey("default", pod["name"]), pod.get("node", ""), request)


def events_after(scenario: Mapping[str, Any], cycle: int) -> Iterator[events.Event]:
    """What happens to nodes and pods of others after a cycle."""
    happened = scenario.get("events", {}).get(str(cycle), {})
    for node in happened.get("nodes", ()):
        if node.get("deleted"):
            yield events.NodeGone(node["name"])
        else:
            yield events.NodeSet(node_facts(node_of(node)))
    for pod in happened.get("pods", ()):
        yield _foreign(pod)


def marks_after(scenario: Mapping[str, Any], cycle: int, raw: Mapping[str, Obj]) -> dict[str, Obj]:
    """What changes in the status of Workloads with quota after a cycle.

    Args:
        scenario: the scenario.
        cycle: its number.
        raw: the Workloads, by name.
    """
    happened = scenario.get("events", {}).get(str(cycle), {})
    marks: dict[str, Obj] = {}
    for name, nodes in happened.get("unhealthy", {}).items():
        status = raw[name].get("status", {}) if name in raw else {}
        used = _hosts(status.get("admission"))
        failed = [node for node in nodes if node in used]
        if failed and _holds(status, ADMITTED):
            known = [one["name"] for one in status.get("unhealthyNodes", ())]
            marks.setdefault(name, {}).update(unhealthy([*known, *failed]))
    for name, update in happened.get("ready", {}).items():
        status = raw[name].get("status", {}) if name in raw else {}
        if _holds(status, QUOTA_RESERVED):
            updates = [
                {
                    "name": one["name"],
                    "nodeSelector": update.get("sel", {}),
                    "tolerations": list(update.get("tol", ())),
                }
                for one in raw[name]["spec"]["podSets"]
            ]
            ready = {"name": PROVISIONING, "state": CHECK_READY, "podSetUpdates": updates}
            marks.setdefault(name, {})["admissionChecks"] = [ready]
    return marks


def _holds(status: Obj, condition: str) -> bool:
    return any(
        one["type"] == condition and one["status"] == "True" for one in status.get("conditions", ())
    ) and not any(
        one["type"] in (FINISHED, EVICTED) and one["status"] == "True"
        for one in status.get("conditions", ())
    )


def _hosts(admission: Obj | None) -> set[str]:
    assigned = () if admission is None else admission["podSetAssignments"]
    placed = [one["topologyAssignment"] for one in assigned if "topologyAssignment" in one]
    return {values[-1] for each in placed for values, _ in decode(TopologyAssignment, each).domains}
