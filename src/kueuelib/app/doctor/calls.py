"""Makes the API server call the webhooks, with requests that change nothing.

A webhook that hangs takes its whole deadline, so nothing here waits for something else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

import attrs

from kueuelib.api import kinds
from kueuelib.api.meta import Obj, ObjectKey, Resource, key_of, labels_of
from kueuelib.api.names import IN_USE_FINALIZER, NAMESPACE_NAME_LABEL, QUEUE_LABEL
from kueuelib.app.configuration import Configuration
from kueuelib.app.doctor.snapshot import ADMISSION, WebhookProbe
from kueuelib.app.explaining.gather import Lists, at_once
from kueuelib.app.refusers import OUR_CONFIGURATIONS, is_refusal, lacks_permission
from kueuelib.app.stored_versions import is_unconverted
from kueuelib.controllers.webhooks import TIMEOUT_SECONDS, queueing_entries
from kueuelib.errors import ApiError, Forbidden, KueuelibError, NotFound, TransportError
from kueuelib.jobs.batch import BATCH_JOB
from kueuelib.jobs.pods.integration import POD
from kueuelib.machinery.selectors import from_label_selector
from kueuelib.runtime.certificates import judge
from kueuelib.runtime.client import Client
from kueuelib.runtime.queries import (
    PatchType,
    collection_path,
    content_type_of,
    object_path,
    params_of,
)
from kueuelib.runtime.transport import Transport
from kueuelib.runtime.webhook.trust import from_secret

_PROBE, _NAMESPACE = "kueuelib-doctor", "default"
_STRICT = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What every namespace permits, so that nothing refuses a Pod before the webhooks are called."""
_CONTAINER = {"name": "c", "image": "i", "securityContext": _STRICT}
_POD = {"spec": {"containers": [_CONTAINER], "restartPolicy": "Never"}}
CONVERTED: tuple[tuple[Resource, Obj], ...] = (
    (kinds.CLUSTER_QUEUES, {}),
    (kinds.LOCAL_QUEUES, {"clusterQueue": _PROBE}),
    (kinds.WORKLOADS, {"podSets": [{"name": "main", "count": 1, "template": _POD}]}),
)
"""The kinds whose versions differ, each with a spec that is valid in all of them."""
NOT_SERVED = "the cluster does not serve the queueing kinds"
CALL_SECONDS = TIMEOUT_SECONDS + 2.0
"""Seconds after which the API server has reported that an admission webhook does not answer."""
_CREATE, _UPDATE = "CREATE", "UPDATE"
_FAMILIES: Mapping[str, str] = {kinds.JOBS.kind: BATCH_JOB.name, kinds.PODS.kind: POD.name}
"""The integrations without which a kind is none of ours."""
_WRITES: tuple[tuple[Resource, str, str], ...] = (
    (kinds.WORKLOADS, _CREATE, ""),
    (kinds.WORKLOADS, _UPDATE, ""),
    (kinds.WORKLOADS, _UPDATE, "status"),
    (kinds.CLUSTER_QUEUES, _UPDATE, "status"),
    (kinds.LOCAL_QUEUES, _UPDATE, "status"),
    (kinds.LEASES, _UPDATE, ""),
    (kinds.JOBS, _CREATE, ""),
    (kinds.JOBS, _UPDATE, ""),
    (kinds.PODS, _CREATE, ""),
    (kinds.PODS, _UPDATE, ""),
)
"""What the manager and users write, and other programs' webhooks may be called for: kind, operation
and subresource.
"""
_OWN = (kinds.LEASES, kinds.SECRETS)
"""What a manager writes for itself."""
_NOT_CALLED = ("failed calling webhook", "conversion webhook")
"""The message of an API server about a webhook that it cannot reach."""


def first_line(error: KueuelibError) -> str:
    """What a failure says, without its details."""
    return str(error).splitlines()[0]


async def admission(
    client: Client,
    version: str,
    resource: Resource = kinds.RESOURCE_FLAVORS,
    spec: Mapping[str, Any] = MappingProxyType({}),
) -> WebhookProbe | str:
    """Makes the API server call the admission webhooks.

    Args:
        client: whose cluster.
        version: of the queueing API; empty if it is not served.
        resource: a kind that gets our finalizer.
        spec: a valid one.

    Returns:
        The call, or why it was not possible.
    """
    if not version:
        return NOT_SERVED
    try:
        made = await _tried(client, resource.at(version), dict(spec))
    except Forbidden as error:
        if "denied the request" not in str(error):
            return first_line(error)
        by_us = any(f'"{one.entry["name"]}"' in str(error) for one in queueing_entries())
        return WebhookProbe(ADMISSION, "", by_us)  # a refusal is an answer
    except (ApiError, TransportError) as error:
        return WebhookProbe(ADMISSION, failure(error))
    by_us = IN_USE_FINALIZER in (made["metadata"].get("finalizers") or ())
    return WebhookProbe(ADMISSION, "", by_us)


@attrs.frozen
class _Write:
    """A write that is tried: of an existing object, or the creation of one in a namespace."""

    resource: Resource
    key: ObjectKey
    subresource: str
    creates: bool
    queue: str = ""

    @property
    def what(self) -> str:
        if self.subresource:
            return f"update the status of {self.resource.kind}s"
        return f"{'create' if self.creates else 'update'} {self.resource.kind}s"


async def others(
    client: Client, version: str, lists: Lists, configuration: Configuration, user: str = ""
) -> tuple[WebhookProbe, ...]:
    """Makes the API server call other programs' webhooks for what the manager and users write, and
    tries to write the Lease and the Secret with the certificate, without which no manager leads.
    The latter is tried as the manager, if the caller may act as its user: policies and webhooks may
    treat it differently.

    Args:
        client: whose cluster.
        version: of the queueing API; empty if it is not served.
        lists: what was read.
        configuration: the manager's.
        user: that of the manager; empty for the caller's.

    Returns:
        The calls that those webhooks did not answer, and the tries of the manager's own objects
        that are refused.
    """
    hooks = [
        one
        for kind in (kinds.MUTATING_WEBHOOKS.kind, kinds.VALIDATING_WEBHOOKS.kind)
        for configured in lists.of(kind)
        if configured["metadata"]["name"] not in OUR_CONFIGURATIONS
        for one in configured.get("webhooks") or ()
        if one.get("failurePolicy") != "Ignore"
    ]
    names = {one["name"] for one in hooks}
    spaces = {
        one["metadata"]["name"]: {NAMESPACE_NAME_LABEL: one["metadata"]["name"], **labels_of(one)}
        for one in lists.of(kinds.NAMESPACES.kind)
        if not one["metadata"].get("deletionTimestamp")
    }
    enabled = [
        write
        for write in _WRITES
        if _FAMILIES.get(write[0].kind, "") in {"", *configuration.integrations.frameworks}
    ]
    called = (
        _write_for(one, write, lists, spaces, configuration.lease)
        for one in hooks
        for write in enabled
    )
    writes = list(dict.fromkeys(one for one in called if one is not None and version))
    writes = list(dict.fromkeys((*writes, *_own(lists, configuration))))
    seconds = max((one.get("timeoutSeconds") or 10 for one in hooks), default=0) + 2.0
    async with _acting_as(client, user) as manager:

        async def error_of(write: _Write) -> ApiError | TransportError | None:
            if write.resource in _OWN and manager is not client:
                error = await _error_of(_try(manager, version, write, seconds))
                if not isinstance(error, Forbidden) or not lacks_permission(str(error)):
                    return error  # otherwise nobody may act as the manager, or it lacks a right
            return await _error_of(_try(client, version, write, seconds))

        errors = await at_once(*map(error_of, writes))
    calls = [
        WebhookProbe(one.what, failure(error), refusal=_refusal(one, error), kind=one.resource.kind)
        for one, error in zip(writes, errors, strict=True)
    ]
    return tuple(one for one in calls if one.refusal or one.webhook in names)


@asynccontextmanager
async def _acting_as(client: Client, user: str) -> AsyncIterator[Client]:
    """A client that acts as another user; the same one if the caller acts as one already."""
    endpoint = await client.transport.endpoint()
    if not user or endpoint.headers:
        yield client
        return
    acting = attrs.evolve(endpoint, headers=(("Impersonate-User", user),))
    async with Transport(acting, user_agent="kueuelib-doctor") as transport:
        yield Client(transport)


def _own(lists: Lists, configuration: Configuration) -> Iterator[_Write]:
    """Writes of what every manager keeps for itself; of new objects if they do not exist."""
    keys: dict[Resource, ObjectKey] = {}
    if configuration.leader_election.leader_elect:
        keys[kinds.LEASES] = configuration.lease
    if configuration.internal_cert_management.enable:
        name = configuration.internal_cert_management.webhook_secret_name
        keys[kinds.SECRETS] = ObjectKey(configuration.manager_namespace, name)
    for resource, key in keys.items():
        there = {key_of(one): one for one in lists.of(resource.kind)}
        if resource is kinds.SECRETS and key in there and _is_good(there[key]):
            continue  # a policy may protect it
        if key in there:
            yield _Write(resource, key, "", creates=False)
        elif resource.kind not in lists.refused:
            yield _Write(resource, ObjectKey(key.namespace, _PROBE), "", creates=True)


def _is_good(secret: Obj) -> bool:
    """Whether a manager can serve with the certificate of a Secret, and need not write it."""
    certificates = from_secret(secret)
    return certificates is not None and not judge(certificates).problem


def _refusal(write: _Write, error: ApiError | TransportError | None) -> str:
    """Why the manager's own object is not written although all webhooks answer; empty if the caller
    may not.
    """
    text = "" if error is None or failure(error) else first_line(error)
    own = write.resource in _OWN
    return text if own and is_refusal(text) and not lacks_permission(text) else ""


def _write_for(
    hook: Obj,
    write: tuple[Resource, str, str],
    lists: Lists,
    spaces: Mapping[str, Mapping[str, str]],
    lease: ObjectKey,
) -> _Write | None:
    """A write for which a webhook is called; None if there is none."""
    resource, operation, subresource = write
    if not any(covers(rule, resource, operation, subresource) for rule in hook.get("rules") or ()):
        return None
    selected = from_label_selector(hook.get("namespaceSelector") or {})
    objects = from_label_selector(hook.get("objectSelector") or {})

    def is_called_in(namespace: str) -> bool:
        known = namespace in spaces or not spaces
        return not namespace or (known and selected.matches(spaces.get(namespace, {})))

    if operation == _CREATE:
        queues = [
            *(key_of(one) for one in lists.of(kinds.LOCAL_QUEUES.kind)),
            ObjectKey(_NAMESPACE, _PROBE),
        ]
        for queue in queues:
            if is_called_in(queue.namespace):
                key = ObjectKey(queue.namespace, _PROBE)
                return _Write(resource, key, "", creates=True, queue=queue.name)
        return None
    for obj in lists.of(resource.kind):
        key = key_of(obj)
        if resource is kinds.LEASES and key != lease:
            continue
        if is_called_in(key.namespace) and objects.matches(labels_of(obj)):
            return _Write(resource, key, subresource, creates=False)
    return None


def stops_writes(webhook: Obj) -> bool:
    """Whether a webhook that does not answer refuses something that the manager or users write.

    Args:
        webhook: the raw one.
    """
    rules = webhook.get("rules") or ()
    refuses = webhook.get("failurePolicy") != "Ignore"
    return refuses and any(covers(rule, *write) for rule in rules for write in _WRITES)


def covers(rule: Obj, resource: Resource, operation: str, subresource: str) -> bool:
    """Whether a rule of a webhook is for a write, in whatever version.

    Args:
        rule: the raw one.
        resource: the kind that is written.
        operation: for example `UPDATE`.
        subresource: for example `status`; empty for the object itself.
    """

    def names(field: str, *wanted: str) -> bool:
        return not {*wanted, "*"}.isdisjoint(rule.get(field) or ())

    plurals, subresources = (resource.plural, "*"), (subresource, "*")
    paths = {f"{one}/{sub}".removesuffix("/") for one in plurals for sub in subresources}
    covered = paths.intersection(rule.get("resources") or ())
    return bool(covered) and names("apiGroups", resource.group) and names("operations", operation)


async def _try(client: Client, version: str, write: _Write, seconds: float) -> None:
    """Makes a dry run of a write, which changes nothing."""
    ours = write.resource.group == kinds.KUEUE
    resource = write.resource.at(version) if ours else write.resource
    if not write.creates:
        await client.request(
            "PATCH",
            object_path(resource, write.key, write.subresource),
            params=params_of(dryRun="All"),
            body={},
            content_type=content_type_of(PatchType.MERGE),
            timeout=seconds,
            verb="patch",
        )
        return
    specs: Mapping[str, Obj] = {
        kinds.LEASES.kind: {},
        kinds.SECRETS.kind: {},
        kinds.WORKLOADS.kind: dict(CONVERTED)[kinds.WORKLOADS],
        kinds.JOBS.kind: {"suspend": True, "template": _POD},
        kinds.PODS.kind: _POD["spec"],
    }
    labels = {QUEUE_LABEL: write.queue} if resource.kind in _FAMILIES else {}
    spec = specs[resource.kind]
    await _tried(client, resource, spec, write.key.namespace, labels, seconds)


async def conversions(client: Client, version: str, lists: Lists) -> tuple[WebhookProbe, ...]:
    """Makes the API server convert objects, as far as the caller may.

    Args:
        client: whose cluster.
        version: of the queueing API; empty if it is not served.
        lists: what was read; if some of it could not be converted, nothing is called.
    """
    if lists.unconverted:
        return (WebhookProbe("conversion", first_line(next(iter(lists.unconverted.values())))),)
    tried = [_conversion(client, *one) for one in _converted(lists, version)] if version else []
    made = [call for call in await at_once(*tried) if call is not None]
    return tuple([call for call in made if call.error][:1] or made[-1:])


def _converted(lists: Lists, version: str) -> Iterator[tuple[Resource, Obj]]:
    """The kinds that a webhook converts, in the served version that is not the stored one, each
    with a valid spec. A CRD that was not read is taken to serve both versions.
    """
    crds = {crd["metadata"]["name"]: crd for crd in lists.of(kinds.CRDS.kind)}
    for resource, spec in CONVERTED:
        crd = crds.get(f"{resource.plural}.{resource.group}")
        if crd is None:
            other = kinds.V1BETA1 if version == kinds.V1BETA2 else kinds.V1BETA2
            yield resource.at(other), spec
            continue
        for one in crd["spec"]["versions"]:
            if one["name"] in kinds.VERSIONS and one["served"] and not one["storage"]:
                yield resource.at(one["name"]), spec


async def _conversion(client: Client, resource: Resource, spec: Obj) -> WebhookProbe | None:
    """Makes the API server convert an object; None if the caller may not."""
    listing = client.list(resource, limit=1, timeout=CALL_SECONDS)
    refusal, listed = await at_once(_error_of(_tried(client, resource, spec)), _error_of(listing))
    if refusal is None or is_unconverted(refusal) or isinstance(refusal, TransportError):
        return WebhookProbe("conversion", failure(refusal))
    # The answer to the list may come from the API server's cache, which is better than none.
    return (
        None
        if isinstance(listed, Forbidden | NotFound)
        else WebhookProbe("conversion", failure(listed))
    )


async def _error_of(call: Awaitable[object]) -> ApiError | TransportError | None:
    try:
        await call
    except (ApiError, TransportError) as error:
        return error
    return None


async def _tried(
    client: Client,
    resource: Resource,
    spec: Obj,
    namespace: str = _NAMESPACE,
    labels: Mapping[str, str] = MappingProxyType({}),
    seconds: float = CALL_SECONDS,
) -> Obj:
    """What a dry run would create."""
    namespace = namespace if resource.namespaced else ""
    where = {"namespace": namespace} if namespace else {}
    body: Obj = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": _PROBE, "labels": dict(labels), **where},
    }
    if resource is not kinds.SECRETS:
        body["spec"] = spec
    made: Obj = await client.request(
        "POST",
        collection_path(resource, namespace),
        params=params_of(dryRun="All"),
        body=body,
        timeout=seconds,
        verb="create",
    )
    return made


def failure(error: ApiError | TransportError | None) -> str:
    """The failure of a webhook that did not answer, or empty; other refusals are answers.

    Args:
        error: of a request.

    Raises:
        TransportError: the connection to the server failed.
    """
    text = "" if error is None else first_line(error)
    if isinstance(error, TransportError):
        if not error.timed_out:
            raise error
        return text
    return text if any(words in text for words in _NOT_CALLED) else ""
