"""Decides about a workload's requests for nodes. Pure (KEP-993 story 1).

One request at a time. Each attempt is a ProvisioningRequest with a name of its own; a failed one
stays until the workload has released its quota, so that it can be inspected.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.checks import (
    IDENTICAL_POD_TEMPLATES,
    ProvisioningPodSetUpdates,
    ProvisioningRequestConfigSpec,
    ProvisioningRetryStrategy,
)
from kueuelib.api.kueue import PodSetUpdate
from kueuelib.api.meta import Obj, annotations_of, find_condition, is_true, parse_time
from kueuelib.api.names import MADE_FROM, PARAMETER_PREFIX, digest_of
from kueuelib.api.quantity import Quantity
from kueuelib.checks.moves import entry_of
from kueuelib.checks.verdicts import Pending, Ready, Rejected, Verdict
from kueuelib.workload import states

PROVISIONED, FAILED = "Provisioned", "Failed"
BOOKING_EXPIRED, CAPACITY_REVOKED = "BookingExpired", "CapacityRevoked"
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
class NodeRequest:
    """Pods that need nodes of one kind.

    Attributes:
        name: the pod set that describes them.
        count: how many pods.
        members: the pod sets that they belong to; by default only that one.
    """

    name: str
    count: int
    members: tuple[str, ...] = attrs.field()

    @members.default
    def _itself(self) -> tuple[str, ...]:
        return (self.name,)


@attrs.frozen
class RequestPlan:
    """One request for nodes.

    Attributes:
        name: of the ProvisioningRequest.
        attempt: 1 is the first.
        class_name: how the autoscaler provisions.
        parameters: for the provisioning class.
        pod_sets: the pods that need nodes.
        made_from: the digest of their templates and flavors.
    """

    name: str
    attempt: int
    class_name: str
    parameters: Mapping[str, str]
    pod_sets: tuple[NodeRequest, ...]
    made_from: str

    def template_of(self, pod_set: str) -> str:
        """The name of the PodTemplate of a pod set."""
        return fitting(f"ppt-{self.name}-{pod_set}")

    def matches(self, request: Mapping[str, Any]) -> bool:
        """Whether a raw ProvisioningRequest asks for the same.

        The Go manager's do not say what they were made from.
        """
        spec = request["spec"]
        made_from = annotations_of(request).get(MADE_FROM, self.made_from)
        refs = [(one["podTemplateRef"]["name"], one["count"]) for one in spec.get("podSets") or ()]
        mine = [(self.template_of(one.name), one.count) for one in self.pod_sets]
        return (
            spec.get("provisioningClassName") == self.class_name
            and dict(spec.get("parameters") or {}) == dict(self.parameters)
            and refs == mine
            and made_from == self.made_from
        )


@attrs.frozen
class ProvisioningStep:
    """The next step.

    Attributes:
        verdict: of the check.
        create: the request that has to exist, with its templates, or None.
        delete: names of requests that are not needed.
    """

    verdict: Verdict
    create: RequestPlan | None = None
    delete: tuple[str, ...] = ()


def fitting(name: str) -> str:
    """A name that the API server accepts; a long one is cut and gets a hash."""
    if len(name) <= NAME_LIMIT:
        return name
    return f"{name[:_KEPT]}-{hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:5]}"


def pod_sets_of(
    wl: Mapping[str, Any], managed: Sequence[str], policy: str = ""
) -> tuple[NodeRequest, ...]:
    """The pod sets that need nodes, as they were admitted.

    Args:
        wl: the raw Workload, with quota.
        managed: only pod sets that ask for one of these resources; empty: all.
        policy: which pod sets with the same flavors are merged; empty: none.
    """
    assigned = _assigned(wl)
    requests: list[tuple[Any, NodeRequest]] = []
    for pod_set in wl["spec"]["podSets"]:
        name, template = pod_set["name"], pod_set["template"]
        assignment = assigned.get(name) or {}
        count = assignment.get("count")
        count = pod_set.get("count", 1) if count is None else count
        if not count or (managed and not {*managed} & _resources(template)):
            continue
        kind = (_identity(template, policy), assignment.get("flavors") or {}) if policy else name
        for position, (other, same) in enumerate(requests):
            if other == kind:
                merged = NodeRequest(same.name, same.count + count, (*same.members, name))
                requests[position] = (kind, merged)
                break
        else:
            requests.append((kind, NodeRequest(name, count)))
    return tuple(request for _, request in requests)


def _assigned(wl: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    admission = states.status_of(wl).get("admission") or {}
    return {one["name"]: one for one in admission.get("podSetAssignments") or ()}


def _digest(wl: Mapping[str, Any], pod_sets: Sequence[NodeRequest]) -> str:
    """A short text that is the same for the same templates and flavors."""
    asked, assigned = {one.name for one in pod_sets}, _assigned(wl)
    pods = [
        (
            one["name"],
            _without_nothing(one["template"]),
            (assigned.get(one["name"]) or {}).get("flavors"),
        )
        for one in wl["spec"]["podSets"]
        if one["name"] in asked
    ]
    return digest_of(pods)


def _identity(template: Mapping[str, Any], policy: str) -> Any:
    """The parts of templates that must be equal for pod sets to be merged."""
    if policy == IDENTICAL_POD_TEMPLATES:
        return _without_nothing(template)
    spec = template.get("spec") or {}
    containers = [
        [(_needs(one), one.get("restartPolicy")) for one in spec.get(part) or ()]
        for part in ("containers", "initContainers")
    ]
    parts = ("nodeSelector", "tolerations", "affinity", "resourceClaims", "runtimeClassName")
    rest = (_without_nothing(spec.get(part)) for part in parts)
    return [containers, _needs(spec), _quantities(spec.get("overhead")), *rest]


def _needs(holder: Mapping[str, Any]) -> dict[str, Any]:
    """What a container or a pod requests; a limit without a request is one."""
    resources = holder.get("resources") or {}
    return _quantities({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _quantities(amounts: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: Quantity.parse(amount).fraction() for name, amount in (amounts or {}).items()}


def _without_nothing(value: Any) -> Any:
    """A raw value without nulls and empty values, which mean the same as absence."""
    if isinstance(value, Mapping):
        inner = {name: _without_nothing(one) for name, one in value.items()}
        return {name: one for name, one in inner.items() if one not in (None, {}, [])} or None
    if isinstance(value, list):
        return [_without_nothing(one) for one in value] or None
    return value


def _resources(template: Mapping[str, Any]) -> set[str]:
    spec = template.get("spec") or {}
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    return {name for holder in (spec, *containers) for name in _needs(holder)}


def wanted(
    wl: Mapping[str, Any], check: str, spec: ProvisioningRequestConfigSpec, attempts: int = 1
) -> list[RequestPlan]:
    """The requests of all attempts, which differ in name and number."""
    meta = wl["metadata"]
    own = {
        name.removeprefix(PARAMETER_PREFIX): value
        for name, value in (meta.get("annotations") or {}).items()
        if name.startswith(PARAMETER_PREFIX)
    }
    pod_sets = pod_sets_of(wl, spec.managed_resources, spec.pod_set_merge_policy)
    parameters, made_from = {**spec.parameters, **own}, _digest(wl, pod_sets)
    return [
        RequestPlan(
            fitting(f"{meta['name']}-{check}-{attempt}"),
            attempt,
            spec.provisioning_class_name,
            parameters,
            pod_sets,
            made_from,
        )
        for attempt in range(1, attempts + 1)
    ]


def decide(
    wl: Mapping[str, Any],
    check: str,
    spec: ProvisioningRequestConfigSpec,
    requests: Sequence[Obj],
    now: float,
) -> ProvisioningStep:
    """The next step for one AdmissionCheck of a workload that holds quota.

    Args:
        wl: the raw Workload.
        check: the AdmissionCheck.
        spec: its parameters.
        requests: the raw ProvisioningRequests of the workload.
        now: seconds since the epoch.
    """
    retry = spec.retry_strategy or ProvisioningRetryStrategy()
    limit = retry.backoff_limit_count + 1
    attempts = wanted(wl, check, spec, max(limit, len(requests)))
    by_name = {request["metadata"]["name"]: request for request in requests}
    pairs = [(one, by_name[one.name]) for one in attempts if one.name in by_name]
    if states.is_admitted(wl):
        return ProvisioningStep(_while_admitted(wl, check, by_name, pairs))
    if not attempts[0].pod_sets:
        return ProvisioningStep(Ready("No pod set needs nodes"))
    if not pairs:
        return ProvisioningStep(Pending("Waiting for the nodes to be provisioned"), attempts[0])
    if any(request["metadata"].get("deletionTimestamp") for _, request in pairs):
        return ProvisioningStep(
            Pending("An earlier request for nodes is being deleted", again=SYNC_PAUSE)
        )
    unused = tuple(one.name for one, request in pairs if not one.matches(request))
    if unused:
        return ProvisioningStep(
            Pending("The request for nodes is renewed", again=SYNC_PAUSE), None, unused
        )
    latest, request = pairs[-1]
    if is_true(request, CAPACITY_REVOKED):
        return ProvisioningStep(_revoked(request))
    for failure in (FAILED, BOOKING_EXPIRED):
        if is_true(request, failure):
            if latest.attempt >= limit:
                return ProvisioningStep(Rejected(_text(request, failure, failure)))
            return _after_failure(attempts, latest, request, failure, retry, now)
    if is_true(request, PROVISIONED):
        return ProvisioningStep(_provisioned(latest, request, spec.pod_set_updates))
    message = _text(request, "Accepted", "Waiting for the nodes to be provisioned")
    return ProvisioningStep(Pending(message), latest)


def _while_admitted(
    wl: Mapping[str, Any],
    check: str,
    by_name: Mapping[str, Obj],
    pairs: Sequence[tuple[RequestPlan, Obj]],
) -> Verdict:
    """An admitted workload has its nodes; only their revocation matters.

    The results of other attempts, and whether a request was deleted, no longer matter.
    """
    used = _used(wl, check)
    request = by_name.get(used) if used else pairs[-1][1] if pairs else None
    if request is not None and is_true(request, CAPACITY_REVOKED):
        return _revoked(request)
    return Ready(PROVISIONED)


def _revoked(request: Mapping[str, Any]) -> Rejected:
    return Rejected(_text(request, CAPACITY_REVOKED, "The capacity was revoked"))


def _used(wl: Mapping[str, Any], check: str) -> str:
    """The request whose nodes the pods use; empty without one."""
    for update in (entry_of(wl, check) or {}).get("podSetUpdates") or ():
        name = (update.get("annotations") or {}).get(CONSUME[0])
        if name:
            return str(name)
    return ""


def _provisioned(
    latest: RequestPlan, request: Mapping[str, Any], extra: ProvisioningPodSetUpdates | None
) -> Ready:
    details = (request.get("status") or {}).get("provisioningClassDetails") or {}
    selector, missing = {}, []
    for one in extra.node_selector if extra else ():
        detail = one.value_from_provisioning_class_detail
        if detail in details:
            selector[one.key] = str(details[detail])
        else:
            missing.append(detail)
    text = _text(request, PROVISIONED, "Provisioned")
    if missing:
        text += f" (without the details {', '.join(missing)}, which podSetUpdates asks for)"
    return Ready(text, updates(latest, selector))


def _after_failure(
    attempts: Sequence[RequestPlan],
    latest: RequestPlan,
    request: Mapping[str, Any],
    type: str,
    retry: ProvisioningRetryStrategy,
    now: float,
) -> ProvisioningStep:
    condition = find_condition((request.get("status") or {}).get("conditions"), type)
    message = condition.get("message") or type
    pause = min(
        retry.backoff_base_seconds * 2.0 ** min(latest.attempt - 1, 30), retry.backoff_max_seconds
    )
    since = condition.get("lastTransitionTime")
    deadline = (parse_time(since) if since else now) + pause
    text = f"Retrying after failure: {message}"
    if deadline <= now:
        return ProvisioningStep(Pending(text), attempts[latest.attempt])
    return ProvisioningStep(Pending(text, again=deadline - now))


def updates(
    request: RequestPlan, selector: Mapping[str, str] | None = None
) -> tuple[PodSetUpdate, ...]:
    """What pods need in order to run on the nodes that were made for them.

    Args:
        request: the request for these nodes.
        selector: labels of these nodes.
    """
    annotations = {
        **dict.fromkeys(CONSUME, request.name),
        **dict.fromkeys(CLASS_NAME, request.class_name),
    }
    return tuple(
        PodSetUpdate(name, annotations=annotations, node_selector=selector or {})
        for one in request.pod_sets
        for name in one.members
    )


def _text(request: Mapping[str, Any], type: str, default: str) -> str:
    condition = find_condition((request.get("status") or {}).get("conditions"), type)
    return str(condition.get("message") or default)
