"""Removes everything that `kueuelib install` wrote from a cluster.

The APIServices and webhooks are removed first, so that nothing waits for a manager that disappears
too. Then its pods, then the finalizers that only it would have removed, and last the kinds with
their objects.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable

import attrs

from kueuelib.api.crd import all_crds
from kueuelib.api.kinds import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    CRDS,
    KUEUE,
    LEASES,
    LOCAL_QUEUES,
    NAMESPACES,
    PODS,
    RESOURCE_FLAVORS,
    SECRETS,
    V1BETA2,
    WORKLOADS,
)
from kueuelib.api.meta import (
    Obj,
    ObjectKey,
    Resource,
    find_condition,
    is_true,
    key_of,
    parse_time,
)
from kueuelib.api.names import (
    FINISHED,
    IN_USE_FINALIZER,
    MANAGED_LABEL,
    POD_FINALIZER,
    QUOTA_RESERVED,
)
from kueuelib.api.phrases import counted, some
from kueuelib.app.configuration import Configuration, InternalCertManagement
from kueuelib.app.installation import Installation, resource_of
from kueuelib.controllers.manifests import APP
from kueuelib.errors import ConfigError, Conflict, NotFound
from kueuelib.machinery.backoff import Backoff
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.queries import PatchType
from kueuelib.runtime.reading import read
from kueuelib.runtime.server_time import server_time

ATTEMPTS = 5
"""How often to try to remove a finalizer from an object that others change meanwhile."""
RETRIED = "kueuelib.dev/removal-retried"
"""The annotation whose change makes an API server try again to remove a kind."""
_SHOWN = 3
_GUARDED = (
    *(WORKLOADS, LOCAL_QUEUES, CLUSTER_QUEUES, COHORTS, RESOURCE_FLAVORS),
    ADMISSION_CHECKS,
)


@attrs.frozen
class Removal:
    """What to remove.

    Attributes:
        installation: what was installed.
        force: also while Workloads hold quota.
        keep_kinds: leave the CRDs and their objects.
    """

    installation: Installation
    force: bool = False
    keep_kinds: bool = False


async def uninstall(client: Client, removal: Removal, deadline: float) -> list[str]:
    """Removes everything but the namespace; returns what was removed, as text.

    Args:
        client: with an administrator's rights.
        removal: what to remove.
        deadline: seconds that the cluster has to remove the kinds.

    Raises:
        ApiError: the server refused something.
        ConfigError: Workloads hold quota, the installation is in another namespace, or the kinds
            were not removed in time.
    """
    installation = removal.installation
    if not removal.force:
        await _check_place(client, installation)
        await _check_leader(client, installation.namespace)
    served = V1BETA2 in await client.served_versions(KUEUE)
    if served and not removal.force:
        await _check_quota(client)
    told = [await _delete(client, obj) for obj in reversed(installation.visibility())]
    told += [await _delete(client, obj) for obj in installation.webhooks()]
    told += [await _delete(client, obj) for obj in reversed(installation.pods())]
    await _until_none(lambda: _pods(client, installation.namespace), "look at these pods", deadline)
    released, _ = await _release(client, PODS, POD_FINALIZER, MANAGED_LABEL)
    told.append(f"{counted(released, 'Pod')} released")
    if served and not removal.keep_kinds:
        for resource in _GUARDED:
            _, count = await _release(client, resource, IN_USE_FINALIZER)
            told.append(f"{counted(count, resource.kind)} deleted" if count else "")
        told += [await _delete(client, obj) for obj in installation.definitions()]
        fix = f"look for foreign finalizers on objects of {KUEUE}"
        await _until_none(lambda: _kinds(client), fix, deadline)
    own = [obj for obj in installation.foundation() if obj["kind"] != "Namespace"]
    # A role that collects others comes back if one of these is deleted before it.
    own.sort(key=lambda obj: "aggregationRule" in obj)
    told += [await _delete(client, obj) for obj in reversed(own)]
    secret = ObjectKey(installation.namespace, InternalCertManagement().webhook_secret_name)
    told.append(await _delete_key(client, SECRETS, secret))
    told.append(await _delete_key(client, LEASES, Configuration(installation.namespace).lease))
    return [line for line in told if line] + [f"namespace/{installation.namespace} kept"]


async def _check_place(client: Client, installation: Installation) -> None:
    """Refuses a namespace that does not contain the cluster's manager.

    Raises:
        ConfigError: the webhooks are elsewhere, or there is no such namespace.
    """
    space = installation.namespace
    for wanted in installation.webhooks():
        configuration = await read(client, resource_of(wanted), key_of(wanted))
        for hook in (configuration or {}).get("webhooks", ()):
            place = hook["clientConfig"].get("service", {}).get("namespace", space)
            if place != space:
                problem = f"is not where kueuelib is installed: its webhooks are in {place!r}"
                raise ConfigError(f"namespace {space!r}", problem, f"give --namespace {place}")
    if await read(client, NAMESPACES, ObjectKey("", space)) is None:
        fix = "give the namespace of the installation, or --force if that is gone"
        raise ConfigError(f"namespace {space!r}", "does not exist", fix)


async def _check_leader(client: Client, namespace: str) -> None:
    """Refuses while a manager leads that is none of the pods which are removed: it would take
    charge of Pods again, and nothing would release them later.

    Raises:
        ConfigError: one leads outside of the cluster.
    """
    lease = await read(client, LEASES, Configuration(namespace).lease)
    spec = (lease or {}).get("spec") or {}
    holder, renewed = spec.get("holderIdentity") or "", spec.get("renewTime")
    if not holder or not renewed:
        return
    age = await server_time(client) - parse_time(renewed)
    inside = any(holder.startswith(f"{pod}_") for pod in await _pods(client, namespace))
    if age <= (spec.get("leaseDurationSeconds") or 0) and not inside:
        fix = "stop it, wait until its Lease has ended, and try again; --force does not wait"
        raise ConfigError(f"manager {holder}", "leads outside of the cluster", fix)


async def _check_quota(client: Client) -> None:
    """Refuses while quota is held, because running jobs would then run without it.

    Raises:
        ConfigError: Workloads hold quota; some are named.
    """
    holding = [
        str(key_of(one))
        async for one in client.list_all(WORKLOADS)
        if is_true(one, QUOTA_RESERVED) and not is_true(one, FINISHED)
    ]
    if holding:
        raise ConfigError(
            some(holding, _SHOWN),
            "these Workloads hold quota",
            "if a manager runs, stop the ClusterQueues with stopPolicy: HoldAndDrain and wait; if "
            "none runs, webhooks refuse that: start one, or give --force, and running jobs "
            "continue without quota",
        )


async def _release(
    client: Client, resource: Resource, finalizer: str, label: str = ""
) -> tuple[int, int]:
    """Removes a finalizer from all objects of a kind; returns from how many, and how many there
    are.
    """
    count, held = 0, []
    async for one in client.list_all(resource, label_selector=label):
        count += 1
        if finalizer in _finalizers(one):
            held.append(key_of(one))
    for key in held:
        await _take_off(client, resource, key, finalizer)
    return len(held), count


async def _take_off(client: Client, resource: Resource, key: ObjectKey, finalizer: str) -> None:
    for attempt in range(ATTEMPTS):
        try:
            obj = await client.get(resource, key)
            left = [one for one in _finalizers(obj) if one != finalizer]
            version = obj["metadata"]["resourceVersion"]
            body = {"metadata": {"finalizers": left or None, "resourceVersion": version}}
            await client.patch(resource, key, body, PatchType.MERGE)
        except NotFound:
            return
        except Conflict:
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return


def _finalizers(obj: Obj) -> list[str]:
    return obj["metadata"].get("finalizers") or []


async def _delete(client: Client, obj: Obj) -> str:
    return await _delete_key(client, resource_of(obj), key_of(obj))


async def _delete_key(client: Client, resource: Resource, key: ObjectKey) -> str:
    """Deletes an object and returns a line about it; an empty one if it does not exist."""
    try:
        await client.delete(resource, key, propagation="Background")
    except NotFound:
        return ""
    return f"{resource.kind.lower()}/{key.name} deleted"


async def _pods(client: Client, namespace: str) -> list[str]:
    """The manager's pods; as long as one runs, it adds finalizers again."""
    selector = ",".join(f"{name}={value}" for name, value in APP.items())
    pods = await client.list(PODS, namespace, label_selector=selector)
    return [one["metadata"]["name"] for one in pods.items]


async def _kinds(client: Client) -> list[str]:
    """Our kinds that still exist.

    kube-apiserver may fail to list the objects of a kind that is hardly served yet. Its retry may
    get lost in a conflict, until something besides this condition changes in the definition.
    """
    ours = {crd["metadata"]["name"] for crd in all_crds()}
    left = [one for one in (await client.list(CRDS)).items if one["metadata"]["name"] in ours]
    for one in left:
        conditions, meta = (one.get("status") or {}).get("conditions"), one["metadata"]
        if find_condition(conditions, "Terminating").get("reason") == "InstanceDeletionFailed":
            body = {"metadata": {"annotations": {RETRIED: meta["resourceVersion"]}}}
            with contextlib.suppress(NotFound):
                await client.patch(CRDS, key_of(one), body, PatchType.MERGE)
    return sorted(one["metadata"]["name"] for one in left)


async def _until_none(
    ask: Callable[[], Awaitable[list[str]]],
    fix: str,
    deadline: float,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Waits until all are removed.

    Raises:
        ConfigError: something was not removed in time.
    """
    pauses = Backoff(base=0.05, cap=2.0, jitter=0.1)
    started = clock.monotonic()
    while left := await ask():
        if clock.monotonic() - started > deadline:
            raise ConfigError(", ".join(left), f"not removed after {deadline:.0f} s", fix)
        await clock.sleep(pauses.next(clock.monotonic(), random.random()))
