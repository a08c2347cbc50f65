"""Converts raw objects of `v1beta1` into `v1beta2` and back, without loss.

Only the levels that change are copied; everything else is shared with the given object, so that a
conversion costs little and the given object is never changed. Incomplete objects may be converted
too: what is absent stays absent.

What has no counterpart stays under its old name, as an unknown field of the other version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kueuelib.api.kinds import KUEUE, V1BETA2, VERSIONS
from kueuelib.api.meta import Obj
from kueuelib.api.topology_encoding import domains_of, slices_of
from kueuelib.errors import FieldError, InvalidObject

_Step = Callable[[Obj], None]

_STOP_SEARCH: Final = "MayStopSearch"
_FUNGIBILITY_OF_V1BETA1: Final = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}
_KINDS_BY_LOWER: Final = {
    "priorityclass": "PriorityClass",
    "workloadpriorityclass": "WorkloadPriorityClass",
}


def convert(obj: Obj, version: str) -> Obj:
    """A queueing object in the other version.

    Args:
        obj: the raw object; its `apiVersion` says which version it is in. It is not changed, and
            the result shares with it what is the same in both.
        version: `v1beta1` or `v1beta2`.

    Raises:
        InvalidObject: the object is of another group or of an unknown version.
    """
    old = obj.get("apiVersion")
    if old not in _API_VERSIONS or version not in VERSIONS:
        raise InvalidObject(str(obj.get("kind", "")), _name(obj), [_unsupported(old, version)])
    api_version = f"{KUEUE}/{version}"
    if old == api_version:
        return obj
    converted = {**obj, "apiVersion": api_version}
    step = (_UP if version == V1BETA2 else _DOWN).get(str(obj.get("kind")))
    if step is not None:
        step(converted)
    return converted


def _name(obj: Obj) -> str:
    metadata = obj.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def _unsupported(old: object, version: str) -> FieldError:
    known = ", ".join(f'"{api_version}"' for api_version in _API_VERSIONS)
    if old in _API_VERSIONS:
        old = f"{KUEUE}/{version}"
    return FieldError(
        "apiVersion",
        "FieldValueNotSupported",
        f'Unsupported value: "{old}": supported values: {known}',
    )


def _own(parent: Obj, name: str) -> Obj | None:
    """A private copy of a child object, put into its parent; None when it is not an object."""
    child = parent.get(name)
    if not isinstance(child, dict):
        return None
    parent[name] = child = dict(child)
    return child


def _rename(obj: Obj, old: str, new: str) -> None:
    if old in obj:
        obj[new] = obj.pop(old)


# ---- ClusterQueue


def _cluster_queue_up(obj: Obj) -> None:
    spec = _own(obj, "spec")
    if spec is None:
        return
    _rename(spec, "cohort", "cohortName")
    names = spec.get("admissionChecks")
    if isinstance(names, list) or names is None:
        spec.pop("admissionChecks", None)
    if isinstance(names, list) and names and not spec.get("admissionChecksStrategy"):
        entries = [{"name": name} for name in dict.fromkeys(names)]
        spec["admissionChecksStrategy"] = {"admissionChecks": entries}
    _fungibility(spec, {"Borrow": _STOP_SEARCH, "Preempt": _STOP_SEARCH})


def _cluster_queue_down(obj: Obj) -> None:
    spec = _own(obj, "spec")
    if spec is None:
        return
    _rename(spec, "cohortName", "cohort")
    strategy = spec.get("admissionChecksStrategy")
    if isinstance(strategy, dict) and strategy.keys() == {"admissionChecks"}:
        names = _plain_names(strategy["admissionChecks"])
        if names is not None:
            del spec["admissionChecksStrategy"]
            spec["admissionChecks"] = names
    _fungibility(spec, None)


def _plain_names(entries: object) -> list[str] | None:
    """The names of checks that hold for every flavor; None when an entry says more."""
    if not isinstance(entries, list):
        return None
    names = []
    for entry in entries:
        if not isinstance(entry, dict) or "name" not in entry:
            return None
        if len(entry) > 1 and (len(entry) > 2 or entry.get("onFlavors") != []):
            return None
        names.append(entry["name"])
    return names


def _fungibility(spec: Obj, up: Mapping[str, str] | None) -> None:
    if not spec.get("flavorFungibility"):
        return
    fungibility = _own(spec, "flavorFungibility")
    if fungibility is None:
        return
    for field, old in _FUNGIBILITY_OF_V1BETA1.items():
        value = fungibility.get(field)
        if up is None and value == _STOP_SEARCH:
            fungibility[field] = old
        elif up is not None and value == old:
            fungibility[field] = up[old]


# ---- LocalQueue


def _local_queue_up(obj: Obj) -> None:
    status = _own(obj, "status")
    if status is not None:
        _rename(status, "flavorUsage", "flavorsUsage")


def _local_queue_down(obj: Obj) -> None:
    status = _own(obj, "status")
    if status is not None:
        _rename(status, "flavorsUsage", "flavorUsage")


# ---- Workload


def _workload_up(obj: Obj) -> None:
    spec = obj.get("spec")
    if isinstance(spec, dict) and ("priorityClassName" in spec or "priorityClassSource" in spec):
        obj["spec"] = spec = dict(spec)
        name = spec.pop("priorityClassName", None)
        source = spec.pop("priorityClassSource", None)
        if name or source:
            rest = spec.get("priorityClassRef")
            spec["priorityClassRef"] = {
                **(rest if isinstance(rest, dict) else {}),
                **_class_reference(str(source or "")),
                "name": name or "",
            }
    _past_seconds(
        obj, "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds"
    )
    _placements(obj, "domains", "slices", slices_of)


def _workload_down(obj: Obj) -> None:
    spec = obj.get("spec")
    if isinstance(spec, dict) and isinstance(spec.get("priorityClassRef"), dict):
        obj["spec"] = spec = dict(spec)
        rest = dict(spec.pop("priorityClassRef"))
        group, kind = _pop_text(rest, "group"), _pop_text(rest, "kind")
        if name := rest.pop("name", None):
            spec["priorityClassName"] = name
        if group or kind:
            spec["priorityClassSource"] = f"{group}/{kind.lower()}" if group else kind
        if rest:
            spec["priorityClassRef"] = rest
    _past_seconds(
        obj, "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds"
    )
    _placements(obj, "slices", "domains", domains_of)


def _placements(
    obj: Obj, old: str, new: str, translated: Callable[[Any, Any], list[Obj] | None]
) -> None:
    """Translates the domains of topology assignments."""
    status = obj.get("status")
    admission = status.get("admission") if isinstance(status, dict) else None
    assignments = admission.get("podSetAssignments") if isinstance(admission, dict) else None
    if isinstance(status, dict) and isinstance(admission, dict) and isinstance(assignments, list):
        made = [_placement(one, old, new, translated) for one in assignments]
        if made != assignments:
            obj["status"] = {**status, "admission": {**admission, "podSetAssignments": made}}


def _placement(
    one: Any, old: str, new: str, translated: Callable[[Any, Any], list[Obj] | None]
) -> Any:
    placed = one.get("topologyAssignment") if isinstance(one, dict) else None
    if not isinstance(placed, dict) or old not in placed or new in placed:
        return one
    domains = translated(placed.get("levels"), placed[old])
    if domains is None:
        return one
    rest = {name: value for name, value in placed.items() if name != old}
    return {**one, "topologyAssignment": {**rest, new: domains}}


def _pop_text(obj: Obj, name: str) -> str:
    """Removes a text from an object and returns it; empty if there is none. Other values stay."""
    return obj.pop(name, None) or "" if isinstance(obj.get(name), str | None) else ""


def _class_reference(source: str) -> Obj:
    """Group and kind of a `priorityClassSource`; nothing for an empty one."""
    group, _, lower = source.rpartition("/")
    reference = {"group": group, "kind": _KINDS_BY_LOWER.get(lower, lower)}
    return {key: value for key, value in reference.items() if value}


def _past_seconds(obj: Obj, old: str, new: str) -> None:
    status = obj.get("status")
    if isinstance(status, dict) and old in status:
        obj["status"] = status = dict(status)
        status[new] = status.pop(old)


_API_VERSIONS: Final = tuple(f"{KUEUE}/{version}" for version in VERSIONS)
_UP: Final[Mapping[str, _Step]] = {
    "ClusterQueue": _cluster_queue_up,
    "LocalQueue": _local_queue_up,
    "Workload": _workload_up,
}
_DOWN: Final[Mapping[str, _Step]] = {
    "ClusterQueue": _cluster_queue_down,
    "LocalQueue": _local_queue_down,
    "Workload": _workload_down,
}
