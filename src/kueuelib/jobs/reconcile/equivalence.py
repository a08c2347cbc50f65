"""Decides whether a Workload still matches its job.

What a user writes into a waiting job is what counts: the Workload of a *suspended* job has to have
its counts, its templates as a whole, and its annotations for ProvisioningRequests, because any of
these may influence where or whether pods run, or what an admission check asks for. Only names of
pod sets are not compared, and while quota is held the priority is not, which can change on its own.

For a *running* job, and for a prebuilt Workload, only counts, tolerations, init containers and
containers count. The smallest counts concern no pod that runs: only waiting jobs have to agree with
their Workloads about them. A job that the Go manager started does not say which of its tolerations
the start added, and its flavor may have changed since: it may have any besides those of its
Workload.

Templates are compared by meaning: quantities by their value, absent equals empty. In containers,
absent also equals the default of the API server, which adds it to a Job but not to a Workload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.made_from import MADE_FROM, digest_of
from kueuelib.api.meta import Obj, annotations_of
from kueuelib.api.names import ORIGIN_KEYS, PARAMETER_PREFIX, QUOTA_RESERVED
from kueuelib.api.quantity import Quantity
from kueuelib.errors import InvalidQuantity
from kueuelib.jobs.batch.job import CONTROLLER_LABELS
from kueuelib.jobs.contract.generic_job import GenericJob, PodSet
from kueuelib.workload.states import condition, has_quota, status_of

_COMPARED = ("tolerations", "initContainers", "containers")
_PRIORITY = ("priority", "priorityClassName")
_QUANTITIES = ("requests", "limits", "overhead")
_NOT_COMPARED = ORIGIN_KEYS | CONTROLLER_LABELS
"""What a start and the Job controller write; the Go manager keeps the label with the Job's name."""
_OPEN = ("labelSelector", "namespaceSelector")
"""Selectors that select everything if they are empty, and nothing if they are absent."""


_DEFAULTS = frozenset(
    {
        ("terminationMessagePath", "/dev/termination-log"),
        ("terminationMessagePolicy", "File"),
        ("protocol", "TCP"),
        ("scheme", "HTTP"),
        ("apiVersion", "v1"),
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    }
)
"""What the API server adds to containers, their ports, probes and variables."""


def as_started(pod_sets: Sequence[PodSet], workload: Mapping[str, Any]) -> bool:
    """Whether the pod sets of a running job may be those of its Workload after a start."""
    stored = workload["spec"]["podSets"]
    admission = status_of(workload).get("admission") or {}
    counts = {each["name"]: each.get("count") for each in admission.get("podSetAssignments") or ()}
    return len(pod_sets) == len(stored) and all(
        _same(_as_stored(entry.raw(), other), _as_counted(other, counts.get(other["name"])))
        for entry, other in zip(pod_sets, stored, strict=True)
    )


def _as_counted(pod_set: Mapping[str, Any], count: int | None) -> Mapping[str, Any]:
    """A pod set with the count that was admitted; only a lower bound permits another one."""
    if count is None or pod_set.get("minCount") is None:
        return pod_set
    return {**pod_set, "count": count}


def _as_stored(pod_set: Mapping[str, Any], stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """A pod set without tolerations that its Workload lacks."""
    own, spec = _canonical(_pod_spec(stored).get("tolerations")) or (), _pod_spec(pod_set)
    shared = [each for each in spec.get("tolerations") or () if _canonical(each) in own]
    template = {**pod_set["template"], "spec": {**spec, "tolerations": shared}}
    return {**pod_set, "template": template}


def same_templates(wanted: Sequence[PodSet], workload: Mapping[str, Any]) -> bool:
    """Whether a Workload has the counts and templates of the given pod sets."""
    stored, ignored = workload["spec"]["podSets"], _PRIORITY if has_quota(workload) else ()
    if is_made_from(wanted, workload):
        return True
    return same_requests(wanted, workload) and all(
        _whole(first.raw(), ignored) == _whole(second, ignored)
        for first, second in zip(wanted, stored, strict=True)
    )


def same_requests(wanted: Sequence[PodSet], workload: Mapping[str, Any]) -> bool:
    """Whether a Workload asks for the same pods, and permits a start with as few of them."""
    stored = workload["spec"]["podSets"]
    return same_pod_sets(wanted, stored) and all(
        first.min_count == second.get("minCount")
        for first, second in zip(wanted, stored, strict=True)
    )


def same_parameters(job: GenericJob, workload: Obj) -> bool:
    """Whether a Workload has the job's annotations for ProvisioningRequests, and no other."""
    return _parameters(job.raw) == _parameters(workload)


def _parameters(obj: Obj) -> Mapping[str, str]:
    notes = annotations_of(obj)
    return {key: notes[key] for key in notes if key.startswith(PARAMETER_PREFIX)}


def is_made_from(wanted: Sequence[PodSet], workload: Mapping[str, Any]) -> bool:
    """Whether a Workload holds what the server has kept of these pod sets, and nothing else."""
    return annotations_of(workload).get(MADE_FROM) == made_from(wanted, workload)


def made_from(wanted: Sequence[PodSet], workload: Mapping[str, Any]) -> str:
    """A digest of the pod sets that an update writes into a Workload, and of its generation.

    It matches afterwards only if the update has not changed what was stored, nor has anybody since:
    the Workload has what the API server keeps of these pod sets. Quota fixes the pod sets, so the
    generation of its reservation counts, whatever else of the Workload changes later.
    """
    written = [entry.raw() for entry in wanted]
    generation = workload["metadata"].get("generation")
    if has_quota(workload):
        generation = condition(workload, QUOTA_RESERVED).get("observedGeneration", generation)
    return digest_of([generation, [(_counts(each), _whole(each, ())) for each in written]])


def with_least_of(
    wanted: Sequence[PodSet], stored: Sequence[Mapping[str, Any]]
) -> Sequence[PodSet]:
    """The pod sets of a running job with the smallest counts that were admitted."""
    if len(wanted) != len(stored):
        return wanted
    return [
        attrs.evolve(entry, min_count=other.get("minCount"))
        for entry, other in zip(wanted, stored, strict=True)
    ]


def same_pod_sets(wanted: Sequence[PodSet], stored: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the raw pod sets of a Workload ask for the same pods as the given ones."""
    return len(wanted) == len(stored) and all(
        _same(first.raw(), second) for first, second in zip(wanted, stored, strict=True)
    )


def _whole(pod_set: Mapping[str, Any], ignored: Sequence[str]) -> Any:
    """The parts of a template that count."""
    meta = (pod_set.get("template") or {}).get("metadata") or {}
    spec = {name: part for name, part in _pod_spec(pod_set).items() if name not in ignored}
    kept: Obj = {"spec": spec}
    for field in ("labels", "annotations"):
        written = meta.get(field) or {}
        kept[field] = {key: text for key, text in written.items() if key not in _NOT_COMPARED}
    return _canonical(kept)


def _same(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    if _counts(first)[0] != _counts(second)[0]:
        return False
    one, other = _pod_spec(first), _pod_spec(second)
    return all(
        one.get(field) == other.get(field)
        or _canonical(_written(one.get(field))) == _canonical(_written(other.get(field)))
        for field in _COMPARED
    )


def _written(value: Any) -> Any:
    """Containers, or tolerations, without what the API server adds by itself."""
    if isinstance(value, list | tuple):
        return [_written(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    default = _pull_policy(value.get("image"))
    return {
        key: _written(item)
        for key, item in value.items()
        if not (isinstance(item, str | int) and (key, item) in _DEFAULTS)
        and not (key == "imagePullPolicy" and item == default)
    }


def _pull_policy(image: Any) -> str:
    """When an image is pulled by default: always if its tag is `latest`, given or implied."""
    name, digest, _ = str(image).rpartition("/")[2].partition("@")
    tag = name.partition(":")[2] or ("" if digest else "latest")
    return "Always" if tag == "latest" else "IfNotPresent"


def _counts(pod_set: Mapping[str, Any]) -> tuple[int, int | None]:
    return pod_set.get("count", 1), pod_set.get("minCount")


def _pod_spec(pod_set: Mapping[str, Any]) -> Mapping[str, Any]:
    return (pod_set.get("template") or {}).get("spec") or {}


def _canonical(value: Any, *, quantities: bool = False) -> Any:
    """The value without meaningless parts; None if it is empty."""
    if isinstance(value, Mapping):
        fields = {}
        for key, item in value.items():
            kept = _canonical(item, quantities=key in _QUANTITIES)
            if quantities and item is not None:
                kept = _quantity(item)
            if kept is None and key in _OPEN:
                kept = item
            if kept is not None:
                fields[key] = kept
        return fields or None
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value] or None
    return None if value == "" else value


def _quantity(value: Any) -> Any:
    try:
        return Quantity.parse(value)
    except InvalidQuantity:
        return value
