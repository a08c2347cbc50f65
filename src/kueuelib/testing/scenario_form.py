"""Validates the description of a scenario, before it is run.

Every key is known here or refused: a scenario with a misspelled key, or with a feature that the
runner does not support, must not be decided as if that key were absent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from kueuelib.api.preemption_policies import RECLAIM_WITHIN_COHORT, WITHIN_CLUSTER_QUEUE
from kueuelib.api.quantity import ZERO, Quantity
from kueuelib.errors import FieldError, InvalidObject, InvalidQuantity

FINAL_SHARE, INITIAL_SHARE = "LessThanOrEqualToFinalShare", "LessThanInitialShare"
EXCEEDS_QUOTA = "exceedQuotaUntilVictimsLeave"
"""Whether room is given away before its victims have left, as by the Go manager."""
PARALLEL = "parallelPreemptors"
"""Whether the next heads are decided while a preemptor waits, unlike in the Go manager."""

_SCENARIO = "Scenario"
_STRATEGIES = ("BestEffortFIFO", "StrictFIFO")
_STOPS = ("None", "Hold", "HoldAndDrain")
_POLICIES = {
    "within": WITHIN_CLUSTER_QUEUE,
    "reclaim": RECLAIM_WITHIN_COHORT,
}
_FUNGIBILITY = {
    "borrow": ("Borrow", "MayStopSearch", "TryNextFlavor"),
    "preempt": ("Preempt", "MayStopSearch", "TryNextFlavor"),
    "preference": ("", "BorrowingOverPreemption", "PreemptionOverBorrowing"),
}
_PREEMPTION_STRATEGIES = ([FINAL_SHARE], [INITIAL_SHARE], [FINAL_SHARE, INITIAL_SHARE])

_DESCRIBING = ("id", "tags", "given", "expect")
"""The keys of a scenario without effect on decisions."""

_TOP = (
    *_DESCRIBING,
    *("cqs", "cohorts", "flavors", "missing_flavors", "namespaces", "admitted", "pending"),
    *("cycles", "finish", "release_delay", "gates", "fairSharing"),
    *("topologies", "nodes", "pods", "events"),
    EXCEEDS_QUOTA,
    PARALLEL,
)
_QUEUE = (
    *("cohort", "groups", "strategy", "active", "stopPolicy", "nsSelector"),
    *("preemption", "fung", "fairSharing", "provisioning"),
)
_GATES = ("FlavorFungibility", "PartialAdmission", "PrioritySortingWithinCohort")
_TAINT = ("key", "value", "effect")
_TOLERATION = ("key", "operator", "value", "effect", "tolerationSeconds")
_POD_SET = ("name", "req", "count", "min", "reclaimed", "sel", "tol", "topology")
_WORKLOAD = ("name", "cq", "ns", "prio", "created", "podsets", "req")
_OF_PLACE = {
    "admitted": ("t", "flv", "reserved_only", "evicted", "unhealthy"),
    "pending": ("arrive", "last"),
}
_OF_PLACED_POD_SET = {"admitted": ("flv", "assigned", "assignment"), "pending": ()}


def check(scenario: Any) -> None:
    """Refuses an invalid scenario.

    Args:
        scenario: the description.

    Raises:
        InvalidObject: it names the scenario's id and every invalid field.
    """
    name = scenario.get("id", "without id") if isinstance(scenario, Mapping) else "without id"
    errors = list(_scenario(scenario))
    if errors:
        raise InvalidObject(_SCENARIO, str(name), errors)


def _scenario(scenario: Any) -> Iterator[FieldError]:
    if not isinstance(scenario, Mapping):
        yield _wrong("scenario", "must be an object with cqs, admitted and pending")
        return
    yield from _unknown("", scenario, _TOP)
    queues = scenario.get("cqs")
    if not isinstance(queues, Mapping):
        yield _wrong("cqs", "must be an object: the ClusterQueues by their names")
        return
    cycles = scenario.get("cycles", 1)
    if not isinstance(cycles, int) or cycles < 1:
        yield _wrong("cycles", f"must be a number of at least 1, not {cycles!r}")
    exceeds = scenario.get(EXCEEDS_QUOTA, False)
    if not isinstance(exceeds, bool):
        yield _wrong(EXCEEDS_QUOTA, f"must be true or false, not {exceeds!r}")
    yield from _object("gates", scenario.get("gates", {}), _GATES)
    yield from _flavors(scenario.get("flavors", {}))
    for name, queue in queues.items():
        yield from _queue(f"cqs.{name}", queue)
    yield from _cohorts(scenario.get("cohorts", ()))
    if "fairSharing" in scenario:
        yield from _fair_sharing(scenario["fairSharing"])
    seen: set[str] = set()
    for place in _OF_PLACE:
        for index, workload in enumerate(scenario.get(place, ())):
            yield from _workload(place, f"{place}[{index}]", workload, queues, seen)


def _fair_sharing(sharing: Any) -> Iterator[FieldError]:
    path = "fairSharing"
    errors = list(_object(path, sharing, ("enable", "preemptionStrategies")))
    yield from errors
    if errors:
        return
    if not isinstance(sharing.get("enable"), bool):
        yield _wrong(f"{path}.enable", f"must be true or false, not {sharing.get('enable')!r}")
    strategies = sharing.get("preemptionStrategies", _PREEMPTION_STRATEGIES[-1])
    if strategies not in _PREEMPTION_STRATEGIES:
        lists = " or ".join(f"[{', '.join(one)}]" for one in _PREEMPTION_STRATEGIES)
        yield _wrong(f"{path}.preemptionStrategies", f"must be {lists}, not {strategies!r}")


def _flavors(flavors: Any) -> Iterator[FieldError]:
    if not isinstance(flavors, Mapping):
        yield _wrong("flavors", "must be an object: the flavors by their names")
        return
    for name, flavor in flavors.items():
        path = f"flavors.{name}"
        yield from _object(path, flavor, ("labels", "taints", "tol", "topologyName"))
        if isinstance(flavor, Mapping):
            yield from _rules(f"{path}.taints", flavor.get("taints", ()), _TAINT)
            yield from _rules(f"{path}.tol", flavor.get("tol", ()), _TOLERATION)


def _rules(path: str, rules: Any, known: Collection[str]) -> Iterator[FieldError]:
    """What is wrong with taints or tolerations; a taint may be text in Kueue's form."""
    for index, rule in enumerate(rules):
        if not isinstance(rule, str):
            yield from _object(f"{path}[{index}]", rule, known)


def _cohorts(cohorts: Any) -> Iterator[FieldError]:
    if not isinstance(cohorts, list | tuple):
        yield _wrong("cohorts", "must be a list of objects with a name")
        return
    seen = set()
    for index, cohort in enumerate(cohorts):
        path = f"cohorts[{index}]"
        if not isinstance(cohort, Mapping) or not isinstance(cohort.get("name"), str):
            yield _wrong(path, "must be an object with a name")
            continue
        name = cohort["name"]
        if name in seen:
            yield _wrong(f"{path}.name", f"must be unique, but {name} is there already")
        seen.add(name)
        yield from _unknown(path, cohort, ("name", "parent", "groups", "fairSharing"))
        yield from _groups(path, cohort.get("groups", []))
        yield from _weight(path, cohort)


def _queue(path: str, queue: Any) -> Iterator[FieldError]:
    if not isinstance(queue, Mapping) or not isinstance(queue.get("groups"), list):
        yield _wrong(path, "must be an object with groups, a list of flavors by their names")
        return
    yield from _unknown(path, queue, _QUEUE)
    yield from _one_of(f"{path}.strategy", queue.get("strategy", _STRATEGIES[0]), _STRATEGIES)
    yield from _one_of(f"{path}.stopPolicy", queue.get("stopPolicy", _STOPS[0]), _STOPS)
    for table, options in (("preemption", _POLICIES), ("fung", _FUNGIBILITY)):
        for key, value in queue.get(table, {}).items():
            if key in options:
                yield from _one_of(f"{path}.{table}.{key}", value, options[key])
            elif table != "preemption" or key != "bwc":
                yield _wrong(f"{path}.{table}.{key}", f"must be one of {', '.join(options)}")
            elif value is not None:
                yield from _object(f"{path}.{table}.{key}", value, ("max",))
    yield from _weight(path, queue)
    yield from _groups(path, queue["groups"])


def _weight(path: str, owner: Mapping[str, Any]) -> Iterator[FieldError]:
    if "fairSharing" not in owner:
        return
    path, sharing = f"{path}.fairSharing", owner["fairSharing"]
    errors = list(_object(path, sharing, ("weight",)))
    yield from errors
    if errors or "weight" not in sharing:
        return
    weight = sharing["weight"]
    try:
        usable = Quantity.parse(weight) >= ZERO
    except InvalidQuantity:
        usable = False
    if not usable:
        text = f"must be a number or the text of a quantity of at least 0, not {weight!r}"
        yield _wrong(f"{path}.weight", text)


def _groups(path: str, groups: Any) -> Iterator[FieldError]:
    if not isinstance(groups, list | tuple):
        yield _wrong(f"{path}.groups", "must be a list of objects: flavors by their names")
        return
    for index, group in enumerate(groups):
        if not isinstance(group, Mapping):
            yield _wrong(f"{path}.groups[{index}]", "must be an object: flavors by their names")
            continue
        for flavor, quotas in group.items():
            if not isinstance(quotas, Mapping):
                at = f"{path}.groups[{index}].{flavor}"
                yield _wrong(at, "must be an object: quotas by resource")
                continue
            for resource, quota in quotas.items():
                yield from _quota(f"{path}.groups[{index}].{flavor}.{resource}", quota)


def _quota(path: str, quota: Any) -> Iterator[FieldError]:
    parts = str(quota).split("/")
    if len(parts) > 3 or not all(part == "-" or part.isdecimal() for part in parts):
        yield _wrong(path, f"must be nominal/borrowing/lending in whole units, not {quota!r}")


def _workload(
    place: str, path: str, workload: Any, queues: Collection[str], seen: set[str]
) -> Iterator[FieldError]:
    if not isinstance(workload, Mapping) or not isinstance(workload.get("name"), str):
        yield _wrong(path, "must be an object with a name")
        return
    yield from _unknown(path, workload, (*_WORKLOAD, *_OF_PLACE[place]))
    if workload["name"] in seen:
        yield _wrong(f"{path}.name", f"must be unique, but {workload['name']} is there already")
    seen.add(workload["name"])
    if workload.get("cq") not in queues:
        names = ", ".join(queues)
        yield _wrong(f"{path}.cq", f"must be one of {names}, not {workload.get('cq')!r}")
    pod_sets = workload.get("podsets") or [workload]
    for index, pod_set in enumerate(pod_sets):
        at = f"{path}.podsets[{index}]" if pod_set is not workload else path
        if not isinstance(pod_set, Mapping) or not isinstance(pod_set.get("req"), Mapping):
            yield _wrong(f"{at}.req", "must be an object: amounts by resource")
            continue
        if pod_set is not workload:
            yield from _unknown(at, pod_set, (*_POD_SET, *_OF_PLACED_POD_SET[place]))
            yield from _rules(f"{at}.tol", pod_set.get("tol", ()), _TOLERATION)
        for resource, amount in pod_set["req"].items():
            if not isinstance(amount, int) or amount < 0:
                text = f"must be a whole number of at least 0, not {amount!r}"
                yield _wrong(f"{at}.req.{resource}", text)


def _object(path: str, value: Any, known: Collection[str]) -> Iterator[FieldError]:
    """What is wrong with an object of known keys."""
    if not isinstance(value, Mapping):
        yield _wrong(path, f"must be an object with any of {', '.join(known)}, not {value!r}")
        return
    yield from _unknown(path, value, known)


def _unknown(path: str, value: Mapping[str, Any], known: Collection[str]) -> Iterator[FieldError]:
    for key in value:
        if key not in known:
            near = get_close_matches(str(key), known, n=1)
            fix = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
            yield _wrong(f"{path}.{key}".lstrip("."), f"unknown key; {fix}")


def _wrong(path: str, message: str) -> FieldError:
    return FieldError(path, "FieldValueInvalid", message)


def _one_of(path: str, value: Any, options: Collection[str]) -> Iterator[FieldError]:
    if value not in options:
        names = ", ".join(option or '""' for option in options)
        yield _wrong(path, f"must be one of {names}, not {value!r}")
