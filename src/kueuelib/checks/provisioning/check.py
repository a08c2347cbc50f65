"""Carries out the decisions of `decision`: requests, their pod templates, the verdict."""

from __future__ import annotations

from typing import Any

from kueuelib.api import kinds
from kueuelib.api.checks import ProvisioningRequestConfig
from kueuelib.api.codec import decode
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import Obj, ObjectKey, Resource, key_of
from kueuelib.api.names import MADE_FROM
from kueuelib.checks.definition import Check, CheckContext, check, current
from kueuelib.checks.owned import OwnedObjects
from kueuelib.checks.provisioning.decision import (
    SYNC_PAUSE,
    ProvisioningStep,
    RequestPlan,
    decide,
)
from kueuelib.checks.verdicts import Pending, Verdict
from kueuelib.errors import AlreadyExists, ApiError, NotFound, PodSetError, TransportError
from kueuelib.jobs.contract.podset_info import FlavorNotFound, from_assignment, merge
from kueuelib.runtime.clock import SYSTEM_CLOCK
from kueuelib.workload import states

CONTROLLER_NAME = "kueue.x-k8s.io/provisioning-request"
GROUP = "autoscaling.x-k8s.io"
VERSIONS = ("v1", "v1beta1")
PROVISIONING_LABEL = "kueue.x-k8s.io/managed"
AGAIN = 5.0
"""Seconds until a call of the API server that failed is repeated."""


def provisioning_check(*, version: str = kinds.V1BETA2) -> Check:
    """The check, which follows its own objects; one per manager.

    Args:
        version: of the queueing API, as the API server serves it.
    """
    owned = OwnedObjects(GROUP, VERSIONS, "provisioningrequests", "ProvisioningRequest")

    configs = kinds.PROVISIONING_REQUEST_CONFIGS.at(version)

    @check(CONTROLLER_NAME, parameters=configs, owned=owned, recheck=300)
    async def provisioning(workload: Workload, parameters: Any) -> Verdict:
        context = current()
        if not owned.synced:
            kind = f"{owned.resource.plural}.{GROUP}"
            return Pending(f"{kind} cannot be read: is it installed?", again=AGAIN)
        try:
            wl = context.workload
            spec = decode(ProvisioningRequestConfig, parameters).spec
            requests = owned.of(workload.key, workload.uid)
            decision = decide(wl, context.check, spec, requests, SYSTEM_CLOCK.now())
            return await _carry_out(context, owned.resource, wl, requests, decision)
        except (ApiError, TransportError, FlavorNotFound, PodSetError) as error:
            return Pending(f"The request for nodes cannot be made: {error}", again=AGAIN)

    return provisioning


async def _carry_out(
    context: CheckContext,
    resource: Resource,
    wl: Obj,
    requests: tuple[Obj, ...],
    decision: ProvisioningStep,
) -> Verdict:
    namespace = key_of(wl).namespace
    for name in decision.delete:
        try:
            await context.client.delete(
                resource, ObjectKey(namespace, name), propagation="Background"
            )
        except NotFound:
            continue
    wanted = decision.create
    if wanted is None:
        return decision.verdict
    present = next((one for one in requests if one["metadata"]["name"] == wanted.name), None)
    if present is None:
        present = await _create_request(context, resource, wl, wanted)
    in_the_way = await _create_templates(context, wl, wanted, present)
    if in_the_way:
        message = (
            f"PodTemplate {in_the_way} does not belong to this request: waiting until it is gone"
        )
        return Pending(message, again=SYNC_PAUSE)
    return decision.verdict


async def _create_request(
    context: CheckContext, resource: Resource, wl: Obj, wanted: RequestPlan
) -> Obj:
    meta = wl["metadata"]
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": wanted.name,
            "namespace": meta["namespace"],
            "labels": {PROVISIONING_LABEL: "true"},
            "annotations": {MADE_FROM: wanted.made_from},
            "ownerReferences": [_owner(wl)],
        },
        "spec": {
            "provisioningClassName": wanted.class_name,
            "parameters": dict(wanted.parameters),
            "podSets": [
                {"podTemplateRef": {"name": wanted.template_of(one.name)}, "count": one.count}
                for one in wanted.pod_sets
            ],
        },
    }
    try:
        made = await context.client.create(resource, body)
    except AlreadyExists:
        request = await context.client.get(resource, ObjectKey(meta["namespace"], wanted.name))
        if request["metadata"].get("deletionTimestamp") or not wanted.matches(request):
            raise
        return request
    context.event(
        "Normal", "ProvisioningRequestCreated", f"Created ProvisioningRequest {wanted.name}"
    )
    return made


async def _create_templates(
    context: CheckContext, wl: Obj, wanted: RequestPlan, request: Obj
) -> str:
    """Creates the templates of the expected pods, with their assigned flavors.

    Returns:
        The name of a template that belongs to something else, such as an earlier request, with
        which the cluster deletes it. It may be about other pods. Empty if there is none.
    """
    owners = {request["metadata"]["uid"], wl["metadata"]["uid"]}  # the Go manager's start with wl
    pod_sets = {one["name"]: one for one in wl["spec"]["podSets"]}
    resource = kinds.RESOURCE_FLAVORS.at(wl["apiVersion"].rpartition("/")[2])
    admission = states.status_of(wl)["admission"]
    assigned = {one["name"]: one for one in admission["podSetAssignments"]}
    for one in wanted.pod_sets:
        key = ObjectKey(key_of(wl).namespace, wanted.template_of(one.name))
        try:
            present = await context.client.get(kinds.POD_TEMPLATES, key)
        except NotFound:
            pass
        else:
            refs = present["metadata"].get("ownerReferences") or ()
            if owners.isdisjoint(ref["uid"] for ref in refs):
                return key.name
            continue
        template = _copy(pod_sets[one.name].get("template") or {})
        assignment = assigned[one.name]
        flavors = {
            name: await context.client.get(resource, ObjectKey("", name))
            for name in {*(assignment.get("flavors") or {}).values()}
        }
        merge(template, from_assignment(assignment, one.count, flavors))
        body = {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "labels": {PROVISIONING_LABEL: "true"},
                "ownerReferences": [_owner(request)],
            },
            "template": template,
        }
        await context.client.create(kinds.POD_TEMPLATES, body)
    return ""


def _owner(obj: Obj) -> Obj:
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _copy(template: Obj) -> Obj:
    """A copy in which the merged parts may be changed."""
    copied = dict(template)
    for part in ("metadata", "spec"):
        if part in copied:
            copied[part] = dict(copied[part] or {})
    return copied
