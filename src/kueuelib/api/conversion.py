"""Converts raw objects of `v1beta1` into `v1beta2` and back, without loss.

Only the levels that change are copied; everything else is shared with the given object, so that a
conversion costs little and the given object is never changed. Incomplete objects may be converted
too: what is absent stays absent.

What has no counterpart stays under its old name, as an unknown field of the other version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, Final

import orjson

from kueuelib.api.kinds import KUEUE, V1BETA2, VERSIONS
from kueuelib.api.meta import Obj
from kueuelib.api.workload import (
    DOMAIN_LIMIT,
    HOST,
    MOST_DOMAINS,
    SLICE_LIMIT,
    Domain,
    DomainValues,
    LevelValues,
    PodCounts,
    TopologyAssignment,
    TopologyAssignmentSlice,
)
from kueuelib.errors import FieldError, InvalidObject

# Both wire forms of topology assignments (KEP-2724): domains in `v1beta1`, slices in `v1beta2`.
# A slice stores what its domains have in common once: a value, a prefix, a suffix, a number of
# pods. Either function returns None for what has no counterpart in the other form, so that it is
# kept as it is.


def domains_of(levels: Any, slices: Any) -> list[Obj] | None:
    """The raw domains of raw slices, in their order.

    Args:
        levels: of the assignment.
        slices: as in `v1beta2`.
    """
    if not _are(str, levels) or not isinstance(slices, list):
        return None
    domains: list[Obj] = []
    for one in slices:
        columns = _columns(one, len(levels))
        if columns is None or len(domains) + one["domainCount"] > MOST_DOMAINS:
            return None
        rows = zip(*(_repeated(column, one["domainCount"]) for column in columns), strict=True)
        domains += ({"values": list(values), "count": count} for *values, count in rows)
    return domains


def topology_assignment(levels: Sequence[str], domains: Iterable[Domain]) -> TopologyAssignment:
    """The shortest form of an assignment.

    Args:
        levels: the label keys.
        domains: with one value for each of them.
    """
    raw = [{"values": [*values], "count": count} for values, count in domains]
    slices = slices_of([*levels], raw) or ()
    return TopologyAssignment(tuple(levels), tuple([_typed_slice(one) for one in slices]))


def _typed_slice(raw: Obj) -> TopologyAssignmentSlice:
    counts = raw["podCounts"]
    values = [(each.get("universal"), each.get("individual")) for each in raw["valuesPerLevel"]]
    return TopologyAssignmentSlice(
        raw["domainCount"],
        tuple([LevelValues(shared, own and _typed_values(own)) for shared, own in values]),
        PodCounts(counts.get("universal"), tuple(counts.get("individual", ()))),
    )


def _typed_values(raw: Obj) -> DomainValues:
    return DomainValues(raw.get("prefix"), raw.get("suffix"), tuple(raw["roots"]))


def slices_of(levels: Any, domains: Any) -> list[Obj] | None:
    """The shortest raw slices of raw domains.

    Args:
        levels: of the assignment.
        domains: as in `v1beta1`.
    """
    if not _are(str, levels) or not isinstance(domains, list):
        return None
    if not all(_is_domain(one, len(levels)) for one in domains):
        return None
    plain = [(tuple(one["values"]), one["count"]) for one in domains]
    by_prefix = [_slice(run) for run in _runs(plain, is_host=levels[-1:] == [HOST])]
    if len(by_prefix) < 2 or len(plain) > DOMAIN_LIMIT:
        return by_prefix
    whole = [_slice(plain)]
    return min(by_prefix, whole, key=lambda form: len(orjson.dumps(form)))


def _are(kind: type, values: Any) -> bool:
    return isinstance(values, list) and all(type(one) is kind for one in values)


def _is_domain(one: Any, levels: int) -> bool:
    return (
        isinstance(one, dict)
        and one.keys() == {"values", "count"}
        and type(one["count"]) is int
        and _are(str, one["values"])
        and len(one["values"]) == levels
    )


# ---- from slices


def _repeated(column: Any, count: int) -> Any:
    return column if isinstance(column, list) else [column] * count


def _columns(one: Any, levels: int) -> list[Any] | None:
    """The values of a slice level by level, then its counts: a list each, or what all share."""
    if not isinstance(one, dict) or one.keys() != {"domainCount", "valuesPerLevel", "podCounts"}:
        return None
    number, values = one["domainCount"], one["valuesPerLevel"]
    if type(number) is not int or not isinstance(values, list) or len(values) != levels:
        return None
    columns = [*(_column(each, str) for each in values), _column(one["podCounts"], int)]
    good = (isinstance(each, str | int) or (each and len(each) == number) for each in columns)
    return columns if all(good) else None


def _column(given: Any, kind: type) -> Any:
    """A list of values of one kind, or the value that all share; None for anything else."""
    if not isinstance(given, dict) or len(given) != 1:
        return None
    ((form, values),) = given.items()
    if form == "universal":
        return values if type(values) is kind else None
    if form != "individual":
        return None
    if kind is str and isinstance(values, dict) and {"roots"} <= values.keys() <= _PARTS:
        prefix, suffix, roots = values.get("prefix", ""), values.get("suffix", ""), values["roots"]
        if _are(str, [prefix, suffix]) and _are(str, roots):
            return [f"{prefix}{root}{suffix}" for root in roots]
        return None
    return values if kind is int and _are(int, values) else None


_PARTS: Final = frozenset(("prefix", "suffix", "roots"))


# ---- into slices


def _slice(domains: Sequence[Domain]) -> Obj:
    rows, counts = zip(*domains, strict=True)
    return {
        "domainCount": len(domains),
        "valuesPerLevel": [_values(column) for column in zip(*rows, strict=True)],
        "podCounts": {"universal": counts[0]} if len({*counts}) == 1 else {"individual": [*counts]},
    }


def _values(column: Sequence[str]) -> Obj:
    if len({*column}) == 1:
        return {"universal": column[0]}
    prefix = _beginning(column)
    suffix = _beginning([value[::-1] for value in column])[::-1]
    shortest = min(map(len, column))
    prefix = prefix[: shortest - len(suffix)]
    roots = [value[len(prefix) : len(value) - len(suffix)] for value in column]
    parts = {"prefix": prefix, "suffix": suffix}
    return {"individual": {**{key: text for key, text in parts.items() if text}, "roots": roots}}


def _beginning(texts: Sequence[str]) -> str:
    """What all texts begin with."""
    first, last = min(texts), max(texts)
    pairs = enumerate(zip(first, last, strict=False))
    return first[: next((at for at, (one, other) in pairs if one != other), len(first))]


def _runs(domains: Sequence[Domain], *, is_host: bool) -> list[Sequence[Domain]]:
    """Neighbours whose hosts have a prefix in common, as long as a slice may be."""
    prefixes = [_prefixes(values[-1]) for values, _ in domains] if is_host else []
    shared = Counter(prefix for each in prefixes for prefix in each)
    for depth in range(max(map(len, prefixes), default=0), 0, -1):
        keys = [_longest(each[:depth], shared) for each in prefixes]
        runs = [*_chunks(domains, keys)]
        if len(runs) <= SLICE_LIMIT:
            return runs
    return [*_chunks(domains, [""] * len(domains))]


def _prefixes(host: str) -> list[str]:
    """What a host name may share with others, up to each `-` but its last character."""
    return [host[: at + 1] for at, character in enumerate(host[:-1]) if character == "-"]


def _longest(prefixes: Sequence[str], shared: Mapping[str, int]) -> str:
    return next((prefix for prefix in reversed(prefixes) if shared[prefix] > 1), "")


def _chunks(domains: Sequence[Domain], keys: Sequence[str]) -> Iterator[Sequence[Domain]]:
    rest = iter(domains)
    for _, run in groupby(keys):
        left = sum(1 for _ in run)
        while left:
            chunk = [*islice(rest, min(left, DOMAIN_LIMIT))]
            left -= len(chunk)
            yield chunk


# --------------------------------------------------------------------------------------------------

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
