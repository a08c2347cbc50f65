"""What to do about a workload's requests for nodes: pure (KEP-993 story 1, spec/jobs 6.3).

One request at a time. Each attempt is a ProvisioningRequest with a name of its own; a failed one
stays until the workload is done with its quota, so that it can be read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.checks import ProvisioningRequestConfigSpec, ProvisioningRetryStrategy
from kueuelib.api.kueue import PodSetUpdate
from kueuelib.api.meta import Obj, find_condition, parse_time
from kueuelib.checks.verdicts import Pending, Ready, Rejected, Verdict
from kueuelib.controllers import workload_state as states

PROVISIONED, FAILED = "Provisioned", "Failed"
BOOKING_EXPIRED, CAPACITY_REVOKED = "BookingExpired", "CapacityRevoked"
PARAMETER_PREFIX = "provreq.kueue.x-k8s.io/"
"""Annotations of a Workload with this prefix become parameters of its request."""
CONSUME = (
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
)
CLASS_NAME = (
    "autoscaling.x-k8s.io/provisioning-class-name",
    "cluster-autoscaler.kubernetes.io/provisioning-class-name",
)
NAME_LIMIT = 253
_KEPT = 247
SYNC_PAUSE = 1.0
"""Seconds until a request that is being deleted is looked at again."""


@attrs.frozen
class PodSetRequest:
    """The pods of one pod set that need nodes."""

    name: str
    count: int


@attrs.frozen
class Wanted:
    """One request for nodes.

    Attributes:
        name: of the ProvisioningRequest.
        attempt: 1 is the first.
        class_name: how the autoscaler provisions.
        parameters: for the provisioning class.
        pod_sets: what needs nodes.
    """

    name: str
    attempt: int
    class_name: str
    parameters: Mapping[str, str]
    pod_sets: tuple[PodSetRequest, ...]

    def template_of(self, pod_set: str) -> str:
        """The name of the PodTemplate of a pod set."""
        return fitting(f"ppt-{self.name}-{pod_set}")

    def matches(self, request: Mapping[str, Any]) -> bool:
        """Whether a raw ProvisioningRequest asks for the same."""
        spec = request["spec"]
        refs = [(one["podTemplateRef"]["name"], one["count"]) for one in spec.get("podSets") or ()]
        mine = [(self.template_of(one.name), one.count) for one in self.pod_sets]
        return (
            spec.get("provisioningClassName") == self.class_name
            and dict(spec.get("parameters") or {}) == dict(self.parameters)
            and refs == mine
        )


@attrs.frozen
class Decision:
    """What to do now.

    Attributes:
        verdict: of the check.
        create: the request that has to exist, with its templates, or None.
        delete: names of requests that nobody wants.
    """

    verdict: Verdict
    create: Wanted | None = None
    delete: tuple[str, ...] = ()


def fitting(name: str) -> str:
    """A name that the API server accepts; a long one is cut and gets a hash."""
    if len(name) <= NAME_LIMIT:
        return name
    return f"{name[:_KEPT]}-{hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:5]}"


def pod_sets_of(wl: Mapping[str, Any], managed: Sequence[str]) -> tuple[PodSetRequest, ...]:
    """The pod sets that need nodes, as they were admitted.

    Args:
        wl: the raw Workload, with quota.
        managed: only pod sets that ask for one of these resources; empty: all.
    """
    assigned = {
        one["name"]: one.get("count")
        for one in (states.status_of(wl).get("admission") or {}).get("podSetAssignments") or ()
    }
    found = []
    for pod_set in wl["spec"]["podSets"]:
        count = assigned.get(pod_set["name"])
        count = pod_set.get("count", 1) if count is None else count
        if count and (not managed or {*managed} & _resources(pod_set["template"])):
            found.append(PodSetRequest(pod_set["name"], count))
    return tuple(found)


def _resources(template: Mapping[str, Any]) -> set[str]:
    spec = template.get("spec") or {}
    found: set[str] = set()
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        resources = container.get("resources") or {}
        found |= (resources.get("requests") or {}).keys() | (resources.get("limits") or {}).keys()
    return found


def wanted(
    wl: Mapping[str, Any], check: str, spec: ProvisioningRequestConfigSpec, attempt: int
) -> Wanted:
    """The request of one attempt."""
    meta = wl["metadata"]
    own = {
        name.removeprefix(PARAMETER_PREFIX): value
        for name, value in (meta.get("annotations") or {}).items()
        if name.startswith(PARAMETER_PREFIX)
    }
    return Wanted(
        fitting(f"{meta['name']}-{check}-{attempt}"),
        attempt,
        spec.provisioning_class_name,
        {**spec.parameters, **own},
        pod_sets_of(wl, spec.managed_resources),
    )


def decide(
    wl: Mapping[str, Any],
    check: str,
    spec: ProvisioningRequestConfigSpec,
    requests: Sequence[Obj],
    now: float,
) -> Decision:
    """What to do about one AdmissionCheck of a workload that holds quota.

    Args:
        wl: the raw Workload.
        check: the AdmissionCheck.
        spec: its parameters.
        requests: the raw ProvisioningRequests of the workload.
        now: seconds since the epoch.
    """
    retry = spec.retry_strategy or ProvisioningRetryStrategy()
    attempts = [wanted(wl, check, spec, n + 1) for n in range(retry.backoff_limit_count + 1)]
    if not attempts[0].pod_sets:
        return Decision(Ready("No pod set needs nodes"))
    by_name = {request["metadata"]["name"]: request for request in requests}
    found = [(one, by_name[one.name]) for one in attempts if one.name in by_name]
    admitted = states.is_admitted(wl)
    if not found:
        # An admitted workload whose request was deleted has its nodes already.
        if admitted:
            return Decision(Ready("Provisioned"))
        return Decision(Pending("Waiting for the nodes to be provisioned"), attempts[0])
    unused = tuple(one.name for one, request in found if not one.matches(request))
    if unused and not admitted:
        return Decision(Pending("The request for nodes is renewed", again=SYNC_PAUSE), None, unused)
    latest, request = found[-1]
    if _is(request, CAPACITY_REVOKED) and admitted:
        return Decision(Rejected(_text(request, CAPACITY_REVOKED, "The capacity was revoked")))
    if _is(request, FAILED):
        return _after_failure(attempts, latest, request, FAILED, retry, now)
    if _is(request, BOOKING_EXPIRED) and not admitted:
        return _after_failure(attempts, latest, request, BOOKING_EXPIRED, retry, now)
    if _is(request, PROVISIONED):
        return Decision(Ready(_text(request, PROVISIONED, "Provisioned"), updates(latest)))
    message = _text(request, "Accepted", "Waiting for the nodes to be provisioned")
    return Decision(Pending(message), latest)


def _after_failure(
    attempts: Sequence[Wanted],
    latest: Wanted,
    request: Mapping[str, Any],
    type: str,
    retry: ProvisioningRetryStrategy,
    now: float,
) -> Decision:
    condition = _condition(request, type)
    message = condition.get("message") or type
    if latest.attempt == len(attempts):
        return Decision(Rejected(message))
    pause = min(
        retry.backoff_base_seconds * 2.0 ** min(latest.attempt - 1, 30), retry.backoff_max_seconds
    )
    since = condition.get("lastTransitionTime")
    deadline = (parse_time(since) if since else now) + pause
    text = f"Retrying after failure: {message}"
    if deadline <= now:
        return Decision(Pending(text), attempts[latest.attempt])
    return Decision(Pending(text, again=deadline - now))


def updates(request: Wanted) -> tuple[PodSetUpdate, ...]:
    """What pods need so that they get the nodes that were made for them."""
    annotations = {
        **dict.fromkeys(CONSUME, request.name),
        **dict.fromkeys(CLASS_NAME, request.class_name),
    }
    return tuple(PodSetUpdate(one.name, annotations=annotations) for one in request.pod_sets)


def _condition(request: Mapping[str, Any], type: str) -> Mapping[str, Any]:
    return find_condition((request.get("status") or {}).get("conditions"), type)


def _is(request: Mapping[str, Any], type: str) -> bool:
    return _condition(request, type).get("status") == "True"


def _text(request: Mapping[str, Any], type: str, default: str) -> str:
    return str(_condition(request, type).get("message") or default)
