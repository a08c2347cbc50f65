"""Computes the patches that bring a Workload's status to the result of `transitions`.

The admission bundle (`status.admission`, `status.requeueState`, `status.resourceRequests`,
`status.schedulingStats`, the past execution time, and the conditions of `BUNDLE`) is one
server-side apply of the manager `kueue-admission`. It is always complete, because omitted fields
are removed. The list of checks is replaced by a merge patch, because only that
removes fields of a check's controller. If both change, the checks are written first, so that free
quota never appears beside an old approval. Every body names the UID and the resource version that
it is made from, so that it never applies to another or a changed object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from kueuelib.api import names
from kueuelib.api.meta import Obj
from kueuelib.api.names import ADMISSION_MANAGER
from kueuelib.workload import states

CHECKS_MANAGER = "kueue-workload-checks"

BUNDLE = (
    names.QUOTA_RESERVED,
    names.ADMITTED,
    names.EVICTED,
    names.REQUEUED,
    names.PREEMPTED,
    names.DEACTIVATION_TARGET,
)
"""The condition types that belong to the admission bundle."""

_FIELDS = (
    "admission",
    "requeueState",
    "resourceRequests",
    "schedulingStats",
    "accumulatedPastExecutionTimeSeconds",
    "accumulatedPastExexcutionTimeSeconds",  # the name of v1beta1
)


@attrs.frozen
class StatusWrite:
    """One patch of the status subresource of a Workload.

    Attributes:
        style: `apply` (server-side, with force) or `merge`.
        body: the patch, with `metadata.uid`, and with `metadata.resourceVersion` unless races are
            harmless.
        field_manager: on whose behalf.
    """

    style: Literal["apply", "merge"]
    body: Obj
    field_manager: str

    def at(self, resource_version: str) -> StatusWrite:
        """The same patch, conditional on another resource version."""
        metadata = {**self.body["metadata"], "resourceVersion": resource_version}
        return attrs.evolve(self, body={**self.body, "metadata": metadata})


def status_writes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[StatusWrite, ...]:
    """The patches, in order, that turn the status of `old` into that of `new`."""
    writes = []
    if (list(states.check_states(old))) != (list(states.check_states(new))):
        body = _identity(old)
        body["status"] = {"admissionChecks": list(states.check_states(new)) or None}
        writes.append(StatusWrite("merge", body, CHECKS_MANAGER))
    if admission_bundle(old) != admission_bundle(new):
        body = {**_identity(old), "status": admission_bundle(new)}
        writes.append(StatusWrite("apply", body, ADMISSION_MANAGER))
    return tuple(writes)


def admission_bundle(wl: Mapping[str, Any]) -> Obj:
    """The part of the status that `kueue-admission` owns."""
    status = states.status_of(wl)
    bundle: Obj = {
        "conditions": [
            dict(entry)
            for entry in sorted(status.get("conditions") or (), key=lambda entry: entry["type"])
            if entry["type"] in BUNDLE
        ]
    }
    for field in _FIELDS:
        if status.get(field):
            bundle[field] = status[field]
    return bundle


def _identity(wl: Mapping[str, Any]) -> Obj:
    meta = wl["metadata"]
    fields = ("name", "namespace", "uid", "resourceVersion")
    return {
        "apiVersion": wl["apiVersion"],
        "kind": wl["kind"],
        "metadata": {field: meta[field] for field in fields},
    }
