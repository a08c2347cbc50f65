"""Jobs and Pods that are not started, and what keeps them: found by dry runs of their starts."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from kueuelib.api import kinds
from kueuelib.api.answers import expect_change, is_changed_back
from kueuelib.api.meta import Obj, Resource, find_condition, key_of, labels_of
from kueuelib.api.names import ADMITTED, NAMESPACE_NAME_LABEL
from kueuelib.api.patch import merge_patch
from kueuelib.app.doctor.calls import CALL_SECONDS, covers, first_line
from kueuelib.app.doctor.snapshot import ClusterSnapshot, TriedStart
from kueuelib.app.explaining.gather import at_once
from kueuelib.app.refusers import OUR_CONFIGURATIONS, lacks_permission
from kueuelib.errors import ApiError, Conflict, Forbidden, NotFound, TransportError
from kueuelib.jobs.pods.reading import PodStage, stage_of
from kueuelib.machinery.selectors import from_label_selector
from kueuelib.runtime.client import Client
from kueuelib.runtime.queries import PatchType, content_type_of, object_path, params_of
from kueuelib.workload.states import Phase, condition, phase_of

PATIENCE = 60.0
"""Seconds after which a start is overdue."""
TRIED = 10
"""How many starts are tried: what keeps one mostly keeps all."""
STARTS: dict[str, tuple[Resource, Obj]] = {
    "Job": (kinds.JOBS, {"spec": {"suspend": False}}),
    "Pod": (kinds.PODS, {"spec": {"schedulingGates": None}}),
}
"""The kinds whose objects are tried, each with the merge patch of a start."""
_ADMISSION = "admissionregistration.k8s.io"
_POLICY = "MutatingAdmissionPolicy"


@attrs.frozen
class HeldBack:
    """A Job or Pod that is not started although its Workload was admitted a while ago.

    Attributes:
        kind: its kind.
        obj: the raw one.
        workload: its raw Workload.
        age: seconds since the admission.
    """

    kind: str
    obj: Obj
    workload: Obj
    age: float


def waited(snapshot: ClusterSnapshot, obj: Obj) -> float:
    """Seconds since an object could have a Workload: since it exists, and the kind is served."""
    crd = snapshot.find(kinds.CRDS.kind, f"{kinds.WORKLOADS.plural}.{kinds.WORKLOADS.group}") or {}
    served = find_condition((crd.get("status") or {}).get("conditions"), "Established")
    since = [obj["metadata"].get("creationTimestamp"), served.get("lastTransitionTime")]
    return min((snapshot.age(one) for one in since if one), default=0.0)


def held_back(snapshot: ClusterSnapshot) -> Iterator[HeldBack]:
    """The Jobs and Pods whose start is overdue."""
    held = [
        *(("Job", job) for job in snapshot.all("Job") if job["spec"].get("suspend")),
        *(("Pod", pod) for pod in snapshot.all("Pod") if stage_of(pod) is PodStage.GATED),
    ]
    for kind, obj in held:
        workload = snapshot.workload_of(obj)
        if workload is None or phase_of(workload) is not Phase.ADMITTED:
            continue
        age = snapshot.age(condition(workload, ADMITTED).get("lastTransitionTime"))
        is_late = min(age, waited(snapshot, obj)) >= PATIENCE  # a replacement is younger
        if is_late and not obj["metadata"].get("deletionTimestamp"):
            yield HeldBack(kind, obj, workload, age)


async def try_starts(client: Client, snapshot: ClusterSnapshot) -> tuple[TriedStart, ...]:
    """Makes dry runs of the first overdue starts, and compares the answers.

    Args:
        client: whose cluster.
        snapshot: what was read.
    """
    held = list(held_back(snapshot))[:TRIED]
    tries = await at_once(*(_tried(client, one) for one in held))
    back = {one.kind for one in tries if one is not None and one.is_changed_back}
    policies = await _policies(client) if back else []
    return tuple(
        attrs.evolve(one, changers=tuple(_changers(snapshot, policies, one)))
        if one.kind in back
        else one
        for one in tries
        if one is not None
    )


async def _tried(client: Client, held: HeldBack) -> TriedStart | None:
    """One dry run; None if the caller may not make it, or if the object has changed."""
    resource, patch = STARTS[held.kind]
    obj, problem, back = held.obj, "", False
    try:
        answer = await client.request(
            "PATCH",
            object_path(resource, key_of(obj)),
            params=params_of(dryRun="All"),
            body=patch,
            content_type=content_type_of(PatchType.MERGE),
            timeout=CALL_SECONDS,
            verb="patch",
        )
        expect_change(obj, merge_patch(obj, patch), answer)
    except (NotFound, Conflict):
        return None
    except (ApiError, TransportError) as error:
        problem, back = first_line(error), is_changed_back(error)
        if isinstance(error, Forbidden) and lacks_permission(problem):
            return None
    return TriedStart(held.kind, obj["metadata"]["uid"], problem, is_changed_back=back)


async def _policies(client: Client) -> list[Obj]:
    """The mutating policies that something binds, as far as they are served and may be listed."""
    for version in ("v1", "v1beta1"):
        kind = Resource(_ADMISSION, version, "mutatingadmissionpolicies", _POLICY, namespaced=False)
        bindings = Resource(
            _ADMISSION, version, f"{_POLICY.lower()}bindings", f"{_POLICY}Binding", namespaced=False
        )
        try:
            bound = {one["spec"]["policyName"] for one in (await client.list(bindings)).items}
            policies = (await client.list(kind)).items
        except NotFound:
            continue
        except Forbidden:
            return []
        return [one for one in policies if one["metadata"]["name"] in bound]
    return []


def _changers(
    snapshot: ClusterSnapshot, policies: list[Obj], tried: TriedStart
) -> Iterator[tuple[str, str]]:
    """What may change a start back: kinds and names of policies and webhook configurations."""
    resource, _ = STARTS[tried.kind]
    obj = next(one for one in snapshot.all(tried.kind) if one["metadata"]["uid"] == tried.uid)
    space = obj["metadata"]["namespace"]
    labels = {NAMESPACE_NAME_LABEL: space, **snapshot.world.namespaces.get(space, {})}

    def concerns(rules: str, match: Obj) -> bool:
        selects = (("namespaceSelector", labels), ("objectSelector", labels_of(obj)))
        return any(covers(one, resource, "UPDATE", "") for one in match.get(rules) or ()) and all(
            from_label_selector(match.get(field) or {}).matches(has) for field, has in selects
        )

    for policy in policies:
        if concerns("resourceRules", policy["spec"].get("matchConstraints") or {}):
            yield _POLICY.lower(), policy["metadata"]["name"]
    for one in snapshot.all(kinds.MUTATING_WEBHOOKS.kind):
        name = one["metadata"]["name"]
        if name not in OUR_CONFIGURATIONS and any(
            concerns("rules", hook) for hook in one.get("webhooks") or ()
        ):
            yield kinds.MUTATING_WEBHOOKS.kind.lower(), name
