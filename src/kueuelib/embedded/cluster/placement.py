"""Chooses the node of a pod, or says why there is none; taints and evictions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from kueuelib.api.meta import Obj, find_condition, format_time, labels_of, parse_time
from kueuelib.api.nodes import UNSCHEDULABLE, allocatable
from kueuelib.api.quantity import Quantity
from kueuelib.embedded.builtins.fields import holds, listed, section
from kueuelib.embedded.builtins.pod_spec import NOT_READY, UNREACHABLE
from kueuelib.embedded.builtins.resources import pod_requests
from kueuelib.embedded.cluster.nodes import is_endless
from kueuelib.errors import InvalidSelector
from kueuelib.machinery.selectors import from_expressions

# ---- the taints for the state of a node, and when they evict a pod. Pure -------------------------

_PREFIX: Final = "node.kubernetes.io"
_BY_CONDITION: Final[Mapping[str, str]] = {
    "MemoryPressure": f"{_PREFIX}/memory-pressure",
    "DiskPressure": f"{_PREFIX}/disk-pressure",
    "PIDPressure": f"{_PREFIX}/pid-pressure",
    "NetworkUnavailable": f"{_PREFIX}/network-unavailable",
}
_OWN: Final = frozenset((UNSCHEDULABLE, NOT_READY, UNREACHABLE, *_BY_CONDITION.values()))


def taints_of(node: Mapping[str, Any], now: float) -> list[Obj]:
    """The taints that a node should have, as the node lifecycle controller keeps them.

    A node that is not ready or unknown accepts no pods, and loses those that do not tolerate the
    taint. One that never reported a status only accepts none.

    Args:
        node: raw.
        now: seconds since the epoch, for the time of taints that evict pods.
    """
    present = listed(section(node, "spec"), "taints")
    state = section(node, "status")
    wanted = [(key, "NoSchedule") for name, key in _BY_CONDITION.items() if holds(state, name)]
    if section(node, "spec").get("unschedulable"):
        wanted.append((UNSCHEDULABLE, "NoSchedule"))
    status = find_condition(state.get("conditions"), "Ready").get("status")
    if status != "True":
        key = UNREACHABLE if status == "Unknown" else NOT_READY
        wanted += [(key, "NoSchedule"), *([] if status is None else [(key, "NoExecute")])]
    known = {(each.get("key"), each.get("effect")): each for each in present}
    return [
        *(each for each in present if each.get("key") not in _OWN),
        *(known.get(each) or _taint(*each, now) for each in wanted),
    ]


def _taint(key: str, effect: str, now: float) -> Obj:
    added = {"timeAdded": format_time(now)} if effect == "NoExecute" else {}
    return {"key": key, "effect": effect, **added}


def ending_taints(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The taints of a node that evict pods."""
    taints = listed(section(node, "spec"), "taints")
    return [each for each in taints if each.get("effect") == "NoExecute"]


def eviction_due(pod: Mapping[str, Any], taints: Sequence[Mapping[str, Any]]) -> float | None:
    """When the taints of its node evict a pod, in seconds since the epoch; None: never.

    A toleration holds for its `tolerationSeconds`; the shortest one counts.

    Args:
        pod: raw.
        taints: those of its node that evict pods.
    """
    dues = []
    for taint in taints:
        added = parse_time(taint["timeAdded"]) if taint.get("timeAdded") else 0.0
        seconds = [
            each.get("tolerationSeconds")
            for each in listed(pod["spec"], "tolerations")
            if tolerates(each, taint)
        ]
        limits = [each for each in seconds if each is not None]
        if limits or not seconds:
            dues.append(added + max(0, min(limits, default=0)))
    return min(dues, default=None)


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Whether a toleration matches a taint, for any time."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    key = toleration.get("key")
    if key and key != taint.get("key"):
        return False
    if (toleration.get("operator") or "Equal") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")


# --------------------------------------------------------------------------------------------------


def matches_selector(pod: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Whether the node has the labels that the pod selects, and satisfies its affinity."""
    labels = labels_of(node)
    spec = pod["spec"]
    if any(labels.get(key) != value for key, value in section(spec, "nodeSelector").items()):
        return False
    wanted = section(
        spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if not wanted:
        return True
    name = node["metadata"]["name"]
    return any(_matches_term(term, labels, name) for term in listed(wanted, "nodeSelectorTerms"))


def _matches_term(term: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    parts = (
        (listed(term, "matchExpressions"), labels),
        (listed(term, "matchFields"), {"metadata.name": name}),
    )
    try:
        return any(expressions for expressions, _ in parts) and all(
            from_expressions(expressions).matches(known) for expressions, known in parts
        )
    except InvalidSelector:
        return False


def untolerated_taint(pod: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The first taint that keeps the pod off the node."""
    tolerations = listed(pod["spec"], "tolerations")
    for taint in taints_of(node, 0.0):
        if taint.get("effect") not in ("NoSchedule", "NoExecute"):
            continue
        if not any(tolerates(one, taint) for one in tolerations):
            return taint
    return None


@attrs.define
class NodeRoom:
    """The used part of a node's allocatable resources."""

    allocatable: Mapping[str, Quantity]
    endless: bool
    used: dict[str, Quantity] = attrs.field(factory=dict)
    pods: int = 0

    def lacking(self, requests: Mapping[str, Quantity]) -> str:
        """Why not everything fits, in the words of the scheduler; empty if it does."""
        most = self.allocatable.get("pods")
        if most is not None and self.pods >= most.value():
            return "Too many pods"
        for name, wanted in requests.items():
            if not wanted:
                continue
            has = self.allocatable.get(name)
            if has is None:
                if self.endless:
                    continue
                return f"Insufficient {name}"
            used = self.used.get(name)
            if (used + wanted if used is not None else wanted) > has:
                return f"Insufficient {name}"
        return ""

    def take(self, requests: Mapping[str, Quantity]) -> None:
        """Adds a pod."""
        self.pods += 1
        for name, wanted in requests.items():
            used = self.used.get(name)
            self.used[name] = wanted if used is None else used + wanted

    def give_back(self, requests: Mapping[str, Quantity]) -> None:
        """Removes a pod."""
        self.pods -= 1
        for name, wanted in requests.items():
            self.used[name] = self.used[name] - wanted


def room_of(node: Mapping[str, Any]) -> NodeRoom:
    """The room of a node without pods."""
    return NodeRoom(allocatable(node), endless=is_endless(node))


@attrs.frozen
class NodeChoice:
    """The node for a pod, or why there is none.

    Attributes:
        node: its name; empty if there is none.
        message: in the words of the scheduler, for the condition and the event.
        cramped: whether more room on some node would help.
    """

    node: str
    message: str = ""
    cramped: bool = False


def place(
    pod: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]], rooms: Mapping[str, NodeRoom]
) -> NodeChoice:
    """Finds the node with the fewest pods on which a pod fits; among equals, the first by name."""
    requests = pod_requests(pod["spec"])
    best: tuple[int, str] | None = None
    problems: dict[str, int] = {}
    cramped = False
    total = 0
    for node in nodes:
        total += 1
        name = node["metadata"]["name"]
        problem = _unfit(pod, node)
        if not problem:
            problem = rooms[name].lacking(requests)
            cramped = cramped or bool(problem)
        if problem:
            problems[problem] = problems.get(problem, 0) + 1
        else:
            rank = (rooms[name].pods, name)
            best = rank if best is None else min(best, rank)
    if best is not None:
        return NodeChoice(best[1])
    if not total:
        return NodeChoice("", "no nodes available to schedule pods")
    why = ", ".join(f"{count} {text}" for text, count in sorted(problems.items()))
    return NodeChoice("", f"0/{total} nodes are available: {why}.", cramped)


def _unfit(pod: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    """Why a node does not accept the pod, apart from room; empty if it does."""
    taint = untolerated_taint(pod, node)
    if taint is not None:
        if taint.get("key") == UNSCHEDULABLE:
            return "node(s) were unschedulable"
        shown = f"{taint.get('key')}: {taint.get('value') or ''}"
        return f"node(s) had untolerated taint(s) {{{shown}}}"
    if not matches_selector(pod, node):
        return "node(s) didn't match Pod's node affinity/selector"
    return ""
