"""What one cycle did with a workload, in the words of the tables and of the records."""

from __future__ import annotations

from typing import Any


def outcome(cycle: dict[str, Any], name: str, want: Any) -> Any:
    """What happened to a workload, in the words in which it is asked for."""
    if "preempt" in want:
        victims = cycle["preempted"].items()
        if isinstance(want["preempt"], dict):
            return {"preempt": {key: one["reason"] for key, one in victims if one["by"] == name}}
        return {"preempt": sorted(key for key, one in victims if one["by"] == name)}
    if name in cycle["pending"]:
        key = "skipped" if "skipped" in want else "pending"
        return {key: cycle["pending"][name]["class"]}
    if name not in cycle["admitted"]:
        return "not-head"
    pod_sets = list(cycle["admitted"][name].values())
    happened: dict[str, Any] = {}
    if "admit" in want:
        flavors = [pod_set["flavors"] for pod_set in pod_sets]
        happened["admit"] = flavors[0] if isinstance(want["admit"], dict) else flavors
    if "counts" in want:
        happened["counts"] = [pod_set["count"] for pod_set in pod_sets]
    return happened
