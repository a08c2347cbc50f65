"""Decides which nodes of an admitted Workload have failed, and which of its pods must end.

A node that is gone has failed at once. One that is not ready, or has taints that the pods do not
tolerate forever, has failed once none of them still runs there (KEP-2724, "Node failures").
Pods that wait for a node that takes none end, so that their job makes others. Objects are raw.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import attrs

from kueuelib.api.codec import decode
from kueuelib.api.core import Taint, Toleration
from kueuelib.api.meta import Obj, find_condition, labels_of, parse_time
from kueuelib.api.names import POD_SET_LABEL, TOPOLOGY_GATE
from kueuelib.api.nodes import untolerated
from kueuelib.api.phrases import counted, some
from kueuelib.api.workload import HOST, Admission, PodSetAssignment
from kueuelib.scheduler.settings import NOT_READY_SECONDS, NodeFailureRules
from kueuelib.workload import states
from kueuelib.workload.phases import NODE_FAILURES

SEVERAL: Final = (
    "Workload eviction triggered due to multiple TAS assigned node failures, including: "
)


@attrs.frozen
class Hosts:
    """What is known of the hosts of a Workload.

    Attributes:
        nodes: the raw nodes with a host name; none if they are gone.
        tolerations: of a pod set, by its name, with those of its flavors and checks.
        pods: the raw pods of the Workload that have not ended.
    """

    nodes: Callable[[str], Sequence[Mapping[str, Any]]]
    tolerations: Callable[[str], Sequence[Toleration]]
    pods: Sequence[Obj]


@attrs.frozen
class Judgement:
    """What to do about a Workload.

    Attributes:
        failed: the hosts that need a replacement, the first of them first.
        eviction: why it is evicted instead; empty if it is not.
        ending: its raw pods that can never start.
        look_again: when time alone changes the answer, in seconds since the epoch, or None.
    """

    failed: tuple[str, ...] = ()
    eviction: str = ""
    ending: tuple[Obj, ...] = ()
    look_again: float | None = None

    def applied(self, wl: Obj, now: float) -> Obj:
        """The Workload with this in its status; the same object if it is there already."""
        if self.eviction:
            return states.evict(wl, NODE_FAILURES, self.eviction, now)
        return states.mark_unhealthy(wl, self.failed)


class _Health(enum.IntEnum):
    """How bad it is."""

    GOOD = 0
    CLOSED = 1
    """Nothing starts there, but what runs there keeps its place."""
    FAILED = 2


def hosts_of(assignments: Iterable[PodSetAssignment]) -> dict[str, frozenset[str]]:
    """The host names in the assignment of each pod set that has one at the level of hosts."""
    placed = ((one.name, one.topology_assignment) for one in assignments)
    return {
        name: frozenset([values[-1] for values, count in place.domains if values and count > 0])
        for name, place in placed
        if place is not None and place.levels[-1] == HOST
    }


def moves_text(before: Admission, after: Admission) -> str:
    """Which pods move to which nodes, as a sentence for people; empty if none move.

    Args:
        before: the admission with the failed node.
        after: the admission with its replacement.
    """
    new, moves = {one.name: _pods_on(one) for one in after.pod_set_assignments}, []
    for one in before.pod_set_assignments:
        lost = _pods_on(one) - new.get(one.name, Counter())
        gained = new.get(one.name, Counter()) - _pods_on(one)
        if lost and gained:
            pods = counted(lost.total(), "pod")
            move = "moves" if lost.total() == 1 else "move"
            nodes = "node" if len(gained) == 1 else "nodes"
            way = f"from node {some(lost)} to {nodes} {some(gained)}"
            moves.append(f"{pods} of pod set {one.name} {move} {way}")
    return ", ".join(moves)


def _pods_on(assignment: PodSetAssignment) -> Counter[str]:
    """How many pods of a pod set are placed on each host."""
    places, pods = assignment.topology_assignment, Counter[str]()
    for values, count in () if places is None else places.domains:
        pods[values[-1]] += count
    return pods


def is_plain(node: Mapping[str, Any]) -> bool:
    """Whether a node is ready and keeps no pods away, so that its pods need no look."""
    ready = find_condition((node.get("status") or {}).get("conditions"), "Ready")
    return ready.get("status") == "True" and not (node.get("spec") or {}).get("taints")


def judge(
    wl: Mapping[str, Any],
    assigned: Mapping[str, frozenset[str]],
    hosts: Hosts,
    now: float,
    rules: NodeFailureRules,
) -> Judgement:
    """Which nodes have failed for an admitted Workload, and what that means for it.

    Args:
        wl: the raw Workload.
        assigned: see `hosts_of`.
        hosts: what is known of them.
        now: seconds since the epoch.
        rules: when a node has failed.
    """
    looks = _Looks(rules, now, hosts.pods)
    healths: dict[str, _Health] = {}
    for host in sorted({host for names in assigned.values() for host in names}):
        nodes = hosts.nodes(host)
        if any(map(is_plain, nodes)):
            continue
        users = [hosts.tolerations(name) for name, names in assigned.items() if host in names]
        healths[host] = min((looks.at(node, host, users) for node in nodes), default=_Health.FAILED)
    failed = [host for host, health in healths.items() if health is _Health.FAILED]
    listed = [host for host in states.unhealthy_nodes(wl) if host in failed]
    in_order = (*listed, *(host for host in failed if host not in listed))
    if len(in_order) > max(len(listed), 1):
        return Judgement(eviction=f"{SEVERAL}{', '.join(in_order)}")
    closed = {host for host, health in healths.items() if health is not _Health.GOOD}
    ending = tuple([pod for pod in hosts.pods if _can_never_start(pod, assigned, closed)])
    return Judgement(in_order, "", ending, min(looks.again, default=None))


class _Looks:
    """Looks at nodes.

    Args:
        rules: when a node has failed.
        now: seconds since the epoch.
        pods: the raw pods; read only if a node is not plain.
    """

    def __init__(self, rules: NodeFailureRules, now: float, pods: Sequence[Obj]) -> None:
        self._rules = rules
        self._now = now
        self._pods = pods
        self.again: list[float] = []

    @cached_property
    def _staying(self) -> list[Obj]:
        """The specs of the pods that stay."""
        return [pod["spec"] for pod in self._pods if not _is_leaving(pod)]

    @cached_property
    def _running(self) -> set[str | None]:
        return {pod.get("nodeName") for pod in self._staying}

    @cached_property
    def _starting(self) -> set[str | None]:
        return {*map(_selected, self._staying)}

    def at(
        self, node: Mapping[str, Any], host: str, users: Sequence[Sequence[Toleration]]
    ) -> _Health:
        """How a node is for pod sets with these tolerations."""
        rules, is_used = self._rules, node["metadata"]["name"] in self._running
        ready = find_condition((node.get("status") or {}).get("conditions"), "Ready")
        if not ready:
            return _Health.FAILED
        if ready.get("status") != "True":
            if self._is_too_long(ready):
                return _Health.FAILED
            if not rules.waits_for_pods:
                return _Health.GOOD  # as long as it may return in time
            return _Health.CLOSED if is_used else _Health.FAILED
        taints = [decode(Taint, taint) for taint in (node.get("spec") or {}).get("taints") or ()]
        if not rules.taints or _tolerated(taints, map(_lasting, users)):
            return _Health.GOOD
        if _tolerated(taints, users):  # so the next pod can start there, for a time
            return _Health.GOOD if is_used or host in self._starting else _Health.FAILED
        return _Health.CLOSED if is_used and rules.waits_for_pods else _Health.FAILED

    def _is_too_long(self, ready: Mapping[str, Any]) -> bool:
        """Whether a rule says that a node has not been ready for too long."""
        if self._rules.waits_for_pods and not self._rules.not_ready_too_long:
            return False
        since = ready.get("lastTransitionTime")
        end = parse_time(since) + NOT_READY_SECONDS if since else self._now
        if end > self._now:
            self.again.append(end)
        return end <= self._now


def _tolerated(taints: Sequence[Taint], users: Iterable[Sequence[Toleration]]) -> bool:
    return all(untolerated(taints, user) is None for user in users)


def _lasting(tolerations: Sequence[Toleration]) -> list[Toleration]:
    return [one for one in tolerations if one.toleration_seconds is None]


def _can_never_start(
    pod: Mapping[str, Any], assigned: Mapping[str, frozenset[str]], closed: set[str]
) -> bool:
    """Whether a pod that has lost its gate waits for a closed host, or for one where its pod set
    has no place.
    """
    spec = pod["spec"]
    if spec.get("nodeName"):  # most pods
        return False
    host = _selected(spec)
    gates = [gate["name"] for gate in spec.get("schedulingGates") or ()]
    if host is None or TOPOLOGY_GATE in gates or _is_leaving(pod):
        return False
    places = assigned.get(labels_of(pod).get(POD_SET_LABEL, ""))
    return places is not None and (host in closed or host not in places)


def _selected(pod: Mapping[str, Any]) -> str | None:
    return (pod.get("nodeSelector") or {}).get(HOST)


def _is_leaving(pod: Mapping[str, Any]) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))
