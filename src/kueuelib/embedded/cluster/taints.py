"""The taints for the state of a node, and when they evict a pod. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kueuelib.api.meta import Obj, find_condition, format_time, parse_time
from kueuelib.embedded.builtins.pod_placement import NOT_READY, UNREACHABLE
from kueuelib.embedded.builtins.raw import holds, listed, section

_PREFIX: Final = "node.kubernetes.io"
UNSCHEDULABLE: Final = f"{_PREFIX}/unschedulable"
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
