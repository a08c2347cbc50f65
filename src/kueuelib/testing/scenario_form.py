"""What is wrong with the description of a scenario, before it is run (spec/scheduling 10.1)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kueuelib.errors import FieldError, InvalidObject

_SCENARIO = "Scenario"
_STRATEGIES = ("BestEffortFIFO", "StrictFIFO")
_STOPS = ("None", "Hold", "HoldAndDrain")
_POLICIES = {
    "within": ("Never", "LowerPriority", "LowerOrNewerEqualPriority"),
    "reclaim": ("Never", "LowerPriority", "Any"),
}
_FUNGIBILITY = {
    "borrow": ("Borrow", "MayStopSearch", "TryNextFlavor"),
    "preempt": ("Preempt", "MayStopSearch", "TryNextFlavor"),
    "preference": ("", "BorrowingOverPreemption", "PreemptionOverBorrowing"),
}


def check(scenario: Any) -> None:
    """Refuses a scenario that means nothing.

    Args:
        scenario: what was read.

    Raises:
        InvalidObject: the scenario by its id, and every field that is wrong.
    """
    name = scenario.get("id", "without id") if isinstance(scenario, Mapping) else "without id"
    errors = list(_scenario(scenario))
    if errors:
        raise InvalidObject(_SCENARIO, str(name), errors)


def _scenario(scenario: Any) -> Iterator[FieldError]:
    if not isinstance(scenario, Mapping):
        yield _wrong("scenario", "must be an object with cqs, admitted and pending")
        return
    queues = scenario.get("cqs")
    if not isinstance(queues, Mapping):
        yield _wrong("cqs", "must be an object: the ClusterQueues by their names")
        return
    cycles = scenario.get("cycles", 1)
    if not isinstance(cycles, int) or cycles < 1:
        yield _wrong("cycles", f"must be a number from 1 on, not {cycles!r}")
    for name, queue in queues.items():
        yield from _queue(f"cqs.{name}", queue)
    seen: set[str] = set()
    for place in ("admitted", "pending"):
        for index, found in enumerate(scenario.get(place, ())):
            yield from _workload(f"{place}[{index}]", found, queues, seen)


def _queue(path: str, queue: Any) -> Iterator[FieldError]:
    if not isinstance(queue, Mapping) or not isinstance(queue.get("groups"), list):
        yield _wrong(path, "must be an object with groups, a list of flavors by their names")
        return
    yield from _one_of(f"{path}.strategy", queue.get("strategy", _STRATEGIES[0]), _STRATEGIES)
    yield from _one_of(f"{path}.stopPolicy", queue.get("stopPolicy", _STOPS[0]), _STOPS)
    for table, options in (("preemption", _POLICIES), ("fung", _FUNGIBILITY)):
        for key, value in queue.get(table, {}).items():
            if key in options:
                yield from _one_of(f"{path}.{table}.{key}", value, options[key])
            elif key != "bwc":
                yield _wrong(f"{path}.{table}.{key}", f"must be one of {', '.join(options)}")
    for index, group in enumerate(queue["groups"]):
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
    path: str, found: Any, queues: Collection[str], seen: set[str]
) -> Iterator[FieldError]:
    if not isinstance(found, Mapping) or not isinstance(found.get("name"), str):
        yield _wrong(path, "must be an object with a name")
        return
    if found["name"] in seen:
        yield _wrong(f"{path}.name", f"must be unique, but {found['name']} is there already")
    seen.add(found["name"])
    if found.get("cq") not in queues:
        names = ", ".join(queues)
        yield _wrong(f"{path}.cq", f"must be one of {names}, not {found.get('cq')!r}")
    pod_sets = found.get("podsets") or [found]
    for index, pod_set in enumerate(pod_sets):
        at = f"{path}.podsets[{index}]" if pod_set is not found else path
        if not isinstance(pod_set, Mapping) or not isinstance(pod_set.get("req"), Mapping):
            yield _wrong(f"{at}.req", "must be an object: amounts by resource")
            continue
        for resource, amount in pod_set["req"].items():
            if not isinstance(amount, int) or amount < 0:
                text = f"must be a whole number from 0 on, not {amount!r}"
                yield _wrong(f"{at}.req.{resource}", text)


def _wrong(path: str, message: str) -> FieldError:
    return FieldError(path, "FieldValueInvalid", message)


def _one_of(path: str, value: Any, options: Collection[str]) -> Iterator[FieldError]:
    if value not in options:
        names = ", ".join(option or '""' for option in options)
        yield _wrong(path, f"must be one of {names}, not {value!r}")
