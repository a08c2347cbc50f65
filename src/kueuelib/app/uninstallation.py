"""Removes everything that `kueuelib install` wrote from a cluster.

The APIServices and webhooks are removed first, so that nothing waits for a manager that disappears
too. Then its pods and the rights of its account, so that a manager elsewhere stops no job, then the
finalizers that only it would have removed, and last the kinds with their objects. It may stop
between any two writes: the next one continues from what is there. All writes are tried before the
first one, so that a policy that refuses some of them does not leave half an installation.

Without a manager nothing converts objects. So the definitions are set to do without a conversion
before their objects are touched, and not while a manager runs, which would misread its objects.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import anyio
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
    VERSIONS,
    WORKLOADS,
)
from kueuelib.api.meta import (
    Obj,
    ObjectKey,
    Resource,
    controller_of,
    find_condition,
    key_of,
)
from kueuelib.api.names import (
    IN_USE_FINALIZER,
    MANAGED_LABEL,
    POD_FINALIZER,
)
from kueuelib.api.phrases import counted, some
from kueuelib.api.workload_state import has_quota, is_finished
from kueuelib.app.configuration import Configuration, InternalCertManagement
from kueuelib.app.deployment import NAME
from kueuelib.app.doctor.calls import CONVERTED, admission
from kueuelib.app.doctor.manager import address_of
from kueuelib.app.earlier_installation import bound_elsewhere, leaders
from kueuelib.app.explaining.gather import at_once
from kueuelib.app.foreign_finalizers import foreign_finalizers, removal_of
from kueuelib.app.installation import Installation, resource_of_object
from kueuelib.app.refusers import find_remedy, lacks_permission, named_webhook
from kueuelib.app.running_configuration import is_held
from kueuelib.app.stored_versions import is_unconverted, list_stored
from kueuelib.controllers.manifests import APP, CERTIFICATES_ROLE
from kueuelib.errors import ApiError, ConfigError, Conflict, Invalid, NotFound
from kueuelib.machinery.backoff import Backoff
from kueuelib.runtime.client import Client, read
from kueuelib.runtime.clock import SYSTEM_CLOCK
from kueuelib.runtime.connection import server_time
from kueuelib.runtime.failures import is_refusal
from kueuelib.runtime.queries import PatchType

ATTEMPTS = 5
"""How often to try to remove a finalizer from an object that others change meanwhile."""
RETRIED = "kueuelib.dev/removal-retried"
"""The annotation whose change makes an API server try again to remove a kind."""
LOOK = 0.5
"""Seconds between two looks at a Lease that may end."""
T = TypeVar("T")
_CALLED = "failed calling webhook"
"""How an API server begins a message about an admission webhook that does not answer."""
_SHOWN = 3
_AT_ONCE = 16
_UNTRIED = "does not support dry run"
"""What an API server says of a webhook that it may not call for a dry run."""
_UNCONVERTED: Obj = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
_WOULD_STOP = "would stop the jobs of the Workloads that go"
_WITH_FINALIZERS = "finalizers of other programs keep these objects, and with them their CRDs"
_ANSWERED: Sequence[tuple[Resource, Obj]] = (
    (RESOURCE_FLAVORS, {}),
    *(one for one in CONVERTED if one[0] is CLUSTER_QUEUES),
)
"""Kinds whose objects get our finalizer when they are created, each with a valid spec."""
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
        ConfigError: a manager leads or answers elsewhere, Workloads hold quota, other programs keep
            objects, the installation is in another namespace, or the kinds were not removed in
            time.
    """
    installation = removal.installation
    if not removal.force:
        await _check_place(client, installation)
    await _until_unled(client, installation.namespace, deadline)
    await _check_unanswered(client, installation)
    if not removal.force:
        await _check_quota(client)
        if not removal.keep_kinds:
            await _check_finalizers(client)
        await _check_refusals(client, removal)
    lines = [await _delete(client, obj) for obj in reversed(installation.visibility())]
    lines += [await _delete(client, obj) for obj in installation.webhooks()]
    lines += [await _delete(client, obj) for obj in reversed(installation.pods())]
    await _until_none(lambda: _pods(client, installation.namespace), "look at these pods", deadline)
    lines += [await _delete(client, obj) for obj in _rights(installation)]
    released, _ = await _release(client, [PODS], POD_FINALIZER, MANAGED_LABEL)
    lines.append(f"{counted(released, 'Pod')} released")
    if not removal.keep_kinds:
        lines += await _remove_kinds(client, deadline)
    own = [obj for obj in installation.foundation() if obj["kind"] != "Namespace"]
    for name in await _secrets(client, own):  # while a role names them
        key = ObjectKey(installation.namespace, name)
        lines.append(await _delete_key(client, SECRETS, key))
    # A role that collects others comes back if one of these is deleted before it.
    own.sort(key=lambda obj: "aggregationRule" in obj)
    lines += [await _delete(client, obj) for obj in reversed(own)]
    lines.append(await _delete_key(client, LEASES, Configuration(installation.namespace).lease))
    return [line for line in lines if line] + [f"namespace/{installation.namespace} kept"]


def _rights(installation: Installation) -> list[Obj]:
    """What lets the manager's account write in the whole cluster.

    A manager that neither leads nor answers at the address of the webhooks is not recognized. It
    keeps its token, and without this could stop the jobs of the Workloads that go.
    """
    return [obj for obj in installation.foundation() if obj["kind"] == "ClusterRoleBinding"]


async def _secrets(client: Client, own: Sequence[Obj]) -> list[str]:
    """The names of Secrets with certificates: the default one, and what the manager may watch."""
    names = [InternalCertManagement().webhook_secret_name]
    wanted = next(obj for obj in own if obj["metadata"]["name"] == CERTIFICATES_ROLE)
    stored = await read(client, resource_of_object(wanted), key_of(wanted)) or {}
    for rule in stored.get("rules") or ():
        names += rule.get("resourceNames") or ()
    return list(dict.fromkeys(names))


async def _remove_kinds(client: Client, deadline: float) -> list[str]:
    """Removes our kinds with their objects, as far as they exist."""
    definitions = await _definitions(client)
    for name, definition in definitions.items():
        if _is_converted(definition):
            await client.patch(CRDS, ObjectKey("", name), _UNCONVERTED, PatchType.MERGE)
    lines = []
    for resource in _GUARDED:
        definition = definitions.get(f"{resource.plural}.{resource.group}", {})
        served = _served(definition)
        if served:
            versions = [resource.at(version) for version in served]
            count = await _once_heard(partial(_free, client, versions), deadline)
            lines.append(f"{counted(count, resource.kind)} deleted" if count else "")
    lines += [await _delete_key(client, CRDS, ObjectKey("", name)) for name in definitions]
    try:
        await _until_none(lambda: _kinds(client), "see kueuelib doctor", deadline)
    except ConfigError as error:
        kept = await _kept(client)
        if not kept:
            raise
        problem = f"{error.problem}: {_WITH_FINALIZERS}: {some(kept, _SHOWN)}"
        fix = f"let these programs remove them, or: {_commands(kept)}; then try again"
        raise ConfigError(error.subject, problem, fix) from error
    return lines


async def _definitions(client: Client) -> Mapping[str, Obj]:
    """Those of our CRDs that exist, by name."""
    by_name = {one["metadata"]["name"]: one for one in (await client.list(CRDS)).items}
    names = [crd["metadata"]["name"] for crd in all_crds()]
    return {name: by_name[name] for name in names if name in by_name}


def _is_converted(definition: Obj) -> bool:
    """Whether a webhook converts the objects of a definition."""
    return (definition["spec"].get("conversion") or {}).get("strategy") == "Webhook"


def _served(definition: Obj) -> list[str]:
    """The versions of a definition that are served and known, the newest first."""
    versions = definition.get("spec", {}).get("versions") or ()
    there = {one["name"] for one in versions if one.get("served")}
    return [version for version in reversed(VERSIONS) if version in there]


async def _free(client: Client, versions: Sequence[Resource]) -> int:
    """Removes our finalizer from all objects of a kind; returns how many objects there are."""
    try:
        return (await _release(client, versions, IN_USE_FINALIZER))[1]
    except NotFound:
        return 0  # the kind is disappearing


async def _once_heard(act: Callable[[], Awaitable[T]], deadline: float) -> T:
    """Repeats a step until each API server has heard that it no longer calls our webhooks."""
    pauses = Backoff(base=0.05, cap=1.0, jitter=0.1)
    started = SYSTEM_CLOCK.monotonic()
    while True:
        try:
            return await act()
        except ApiError as error:
            waits = is_unconverted(error) or _CALLED in str(error)
            if not waits or SYSTEM_CLOCK.monotonic() - started > deadline:
                raise
        await SYSTEM_CLOCK.sleep(pauses.next(SYSTEM_CLOCK.monotonic(), random.random()))


async def _check_place(client: Client, installation: Installation) -> None:
    """Refuses a namespace that does not contain the cluster's manager.

    Raises:
        ConfigError: the webhooks are elsewhere, or there is no such namespace.
    """
    space = installation.namespace
    await _check_leaders(client, space)
    if place := await bound_elsewhere(client, space):
        problem = f"is not where kueuelib is installed: its roles are those of {place!r}"
        raise ConfigError(f"namespace {space!r}", problem, f"give --namespace {place}")
    for wanted in installation.webhooks():
        configuration = await read(client, resource_of_object(wanted), key_of(wanted))
        for hook in (configuration or {}).get("webhooks", ()):
            place = hook["clientConfig"].get("service", {}).get("namespace", space)
            if place != space:
                problem = f"is not where kueuelib is installed: its webhooks are in {place!r}"
                raise ConfigError(f"namespace {space!r}", problem, f"give --namespace {place}")
    if await read(client, NAMESPACES, ObjectKey("", space)) is None:
        fix = "give the namespace of the installation, or --force if that is gone"
        raise ConfigError(f"namespace {space!r}", "does not exist", fix)


async def _check_leaders(client: Client, namespace: str) -> None:
    """Refuses while a manager leads from another namespace: its kinds and queues would go.

    Raises:
        ConfigError: one does.
    """
    pods = await _pods(client, namespace)
    for lease in await leaders(client):
        key, holder = key_of(lease), lease["spec"]["holderIdentity"]
        if key.namespace != namespace and not holder.startswith(tuple(pods)):
            problem = f"manager {holder} leads from namespace {key.namespace!r}, and would lose all"
            fix = f"give --namespace {key.namespace}, or stop that manager"
            raise ConfigError(f"Lease {key}", problem, fix)


async def _until_unled(client: Client, namespace: str, deadline: float) -> None:
    """Waits until no manager leads but those of our pods, which are removed before the kinds.

    Another one would stop the jobs of the Workloads that go, and take charge of Pods again. If it
    has crashed, its Lease ends soon.

    Raises:
        ConfigError: one leads elsewhere: it renews its Lease, or the Lease does not end in time.
    """
    key, started = Configuration(namespace).lease, SYSTEM_CLOCK.monotonic()
    first = ""
    while True:
        lease = await read(client, LEASES, key)
        if lease is None or not is_held(lease, await server_time(client)):
            return
        holder, renewed = lease["spec"]["holderIdentity"], lease["spec"]["renewTime"]
        if holder.startswith(f"{NAME}-"):
            return
        first = first or renewed
        if renewed != first or SYSTEM_CLOCK.monotonic() - started > deadline:
            problem = f"manager {holder} leads, and {_WOULD_STOP}"
            gone = f"if it no longer runs: kubectl -n {key.namespace} delete lease {key.name}"
            fix = f"{await _ending(client, holder)}, and try again; {gone}"
            raise ConfigError(f"Lease {key}", problem, fix)
        await SYSTEM_CLOCK.sleep(LOOK)


async def _check_unanswered(client: Client, installation: Installation) -> None:
    """Refuses while a manager answers that has no Lease and does not go with our pods.

    Only a manager adds our finalizer to what a dry run would create.

    Raises:
        ConfigError: one answers elsewhere, and would stop jobs as one that leads.
    """
    configs = [hook["clientConfig"] for hook in await _webhooks(client, installation)]
    urls = [config for config in configs if config.get("url")]
    if not configs or not (urls or not await _pods(client, installation.namespace)):
        return
    definitions = await _definitions(client)
    for resource, spec in _ANSWERED:
        definition = definitions.get(f"{resource.plural}.{resource.group}", {})
        versions = _served(definition)
        if not versions or definition["metadata"].get("deletionTimestamp"):
            continue  # nothing can be created
        call = await admission(client, versions[0], resource, spec)
        if isinstance(call, str) or not call.by_manager:
            return
        address = address_of((urls or configs)[0])
        problem = f"a manager without leader election answers, and {_WOULD_STOP}"
        fix = "stop its process, and try again; kueuelib uninstall then needs no manager"
        raise ConfigError(f"the webhooks at {address}", problem, fix)


async def _webhooks(client: Client, installation: Installation) -> list[Obj]:
    """The entries of our webhook configurations that exist."""
    hooks: list[Obj] = []
    for wanted in installation.webhooks():
        configuration = await read(client, resource_of_object(wanted), key_of(wanted))
        hooks += (configuration or {}).get("webhooks") or ()
    return hooks


async def _check_refusals(client: Client, removal: Removal) -> None:
    """Refuses if the API server would refuse a write: dry runs of all of them change nothing. The
    removal of finalizers is tried with the first object of each kind and namespace.

    What our own webhooks say does not count, because they go first.

    Raises:
        ConfigError: some writes would be refused, by a policy, a webhook or for want of a right.
    """
    installation = removal.installation
    ours = {hook["name"] for hook in await _webhooks(client, installation)}
    limiter, refused = anyio.CapacityLimiter(_AT_ONCE), list[tuple[str, str]]()

    async def attempt(what: str, write: Callable[[], Awaitable[object]]) -> None:
        async with limiter:
            try:
                await write()
            except ApiError as error:
                foreign = named_webhook(error.message) not in ours and not is_unconverted(error)
                if is_refusal(error) and foreign and _UNTRIED not in error.message:
                    refused.append((what, error.message.splitlines()[0]))

    writes = [one async for one in _writes(client, removal)]
    await at_once(*(attempt(*one) for one in writes))
    if refused:
        groups: dict[str, list[str]] = {}
        for what, message in sorted(refused):
            groups.setdefault(message.rpartition(" is forbidden: ")[2], []).append(what)
        space = installation.namespace
        problem = "; ".join(f"{some(names, _SHOWN)}: {why}" for why, names in groups.items())
        fixes = [
            "ask for these permissions"
            if lacks_permission(why)
            else await find_remedy(client, why, space) or "make what refuses this allow it"
            for why in groups
        ]
        fix = "; ".join(dict.fromkeys(fixes))
        problem = f"the API server would refuse to remove {problem}"
        raise ConfigError("kueuelib uninstall", f"{problem}; nothing was changed", fix)


async def _writes(
    client: Client, removal: Removal
) -> AsyncIterator[tuple[str, Callable[[], Awaitable[object]]]]:
    """Dry runs of everything that a removal writes, each after what it is about."""
    installation = removal.installation
    foundation = [obj for obj in installation.foundation() if obj["kind"] != "Namespace"]
    own = [*installation.visibility(), *installation.webhooks(), *installation.pods(), *foundation]
    gone = [(resource_of_object(obj), key_of(obj)) for obj in own]
    space = installation.namespace
    gone += [(SECRETS, ObjectKey(space, name)) for name in await _secrets(client, foundation)]
    gone.append((LEASES, Configuration(space).lease))
    held = [(PODS, POD_FINALIZER, MANAGED_LABEL)]
    if not removal.keep_kinds:
        definitions = await _definitions(client)
        gone += [(CRDS, ObjectKey("", name)) for name in definitions]
        for name, definition in definitions.items():
            if _is_converted(definition):
                patch = partial(
                    client.patch, CRDS, ObjectKey("", name), _UNCONVERTED, PatchType.MERGE
                )
                yield f"customresourcedefinition/{name}", partial(patch, dry_run=True)
        for resource in _GUARDED:
            served = _served(definitions.get(f"{resource.plural}.{resource.group}", {}))
            held += [(resource.at(version), IN_USE_FINALIZER, "") for version in served[:1]]
    for resource, key in gone:
        what = f"{resource.kind.lower()}/{key.name}"
        yield what, partial(client.delete, resource, key, dry_run=True)
    for resource, finalizer, label in held:
        async for key, body in _first_held(client, resource, finalizer, label):
            patch = partial(client.patch, resource, key, body, PatchType.MERGE, dry_run=True)
            yield f"finalizer of {resource.kind.lower()} {key}", patch


async def _first_held(
    client: Client, resource: Resource, finalizer: str, label: str
) -> AsyncIterator[tuple[ObjectKey, Obj]]:
    """The first object in each namespace that has a finalizer, with the patch that removes it."""
    seen: set[str] = set()
    with contextlib.suppress(NotFound):  # the kind is disappearing
        for one in (await list_stored(client, resource, label_selector=label)).objects:
            key, finalizers = key_of(one), _finalizers(one)
            if finalizer in finalizers and key.namespace not in seen:
                seen.add(key.namespace)
                left = [name for name in finalizers if name != finalizer]
                yield key, {"metadata": {"finalizers": left or None}}


async def _ending(client: Client, holder: str) -> str:
    """What ends a manager: a command if it runs in a pod of a Deployment."""
    host = holder.partition("_")[0]
    for pod in (await client.list(PODS, field_selector=f"metadata.name={host}")).items:
        owner = controller_of(pod)
        if owner is not None and owner["kind"] == "ReplicaSet":
            deployment = owner["name"].rpartition("-")[0]
            scale = f"kubectl -n {pod['metadata']['namespace']} scale deployment {deployment}"
            return f"end it with {scale} --replicas=0"
    return f"stop its process on {host}"


async def _check_quota(client: Client) -> None:
    """Refuses while quota is held, because running jobs would then run without it.

    Raises:
        ConfigError: Workloads hold quota; some are named. Or some cannot be read.
    """
    definition = (await _definitions(client)).get(f"{WORKLOADS.plural}.{KUEUE}", {})
    versions = _served(definition)
    if not versions:
        return
    listed = await list_stored(client, WORKLOADS.at(versions[0]))
    if not listed.complete:
        raise ConfigError(
            "workloads",
            f"cannot be read, so that some may hold quota: {listed.failure}",
            "start a manager, which converts them; or give --force, and running jobs continue "
            "without quota",
        )
    holding = [
        str(key_of(one)) for one in listed.objects if has_quota(one) and not is_finished(one)
    ]
    if holding:
        raise ConfigError(
            some(holding, _SHOWN),
            "these Workloads hold quota",
            "if a manager runs, stop the ClusterQueues with stopPolicy: HoldAndDrain and wait; if "
            "none runs, webhooks refuse that: start one, or give --force, and running jobs "
            "continue without quota",
        )


async def _check_finalizers(client: Client) -> None:
    """Refuses while objects have finalizers that nothing here would remove.

    Raises:
        ConfigError: there are some; the first ones are named.
    """
    kept = await _kept(client)
    if kept:
        fix = (
            f"let these programs remove them, or: {_commands(kept)}; or give --force, and these "
            "objects and their CRDs stay in deletion until that is done"
        )
        raise ConfigError(some(kept, _SHOWN), _WITH_FINALIZERS, fix)


async def _kept(client: Client) -> Mapping[str, str]:
    """The definitions and objects that have finalizers of other programs, and the command for each
    of them that removes these.
    """
    removals: dict[str, str] = {}
    for definition in (await _definitions(client)).values():
        names, scope = definition["spec"]["names"], definition["spec"]["scope"]
        objects = [("crd", definition)]
        for version in _served(definition)[:1]:
            kind = Resource(KUEUE, version, names["plural"], names["kind"], scope == "Namespaced")
            with contextlib.suppress(NotFound):  # it is disappearing
                listed = await list_stored(client, kind)
                objects += [(names["kind"].lower(), one) for one in listed.objects]
        for kind_name, obj in objects:
            others = foreign_finalizers(obj)
            if others:
                what = f"{kind_name} {key_of(obj)} ({', '.join(others)})"
                removals[what] = removal_of(kind_name, obj, others)
    return removals


def _commands(kept: Mapping[str, str]) -> str:
    return " && ".join([*kept.values()][:_SHOWN])


async def _release(
    client: Client, versions: Sequence[Resource], finalizer: str, label: str = ""
) -> tuple[int, int]:
    """Removes a finalizer from all objects of a kind; returns from how many, and how many there
    are.
    """
    count, held = 0, []
    async for one in client.list_all(versions[0], label_selector=label):
        count += 1
        if finalizer in _finalizers(one):
            held.append(key_of(one))
    for key in held:
        await _take_off(client, versions, key, finalizer)
    return len(held), count


async def _take_off(
    client: Client, versions: Sequence[Resource], key: ObjectKey, finalizer: str
) -> None:
    """Removes a finalizer from an object.

    What is stored in one version may not be valid in another one without a conversion.
    """
    resource, *others = versions
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
        except Invalid:
            if not others:
                raise
            await _take_off(client, others, key, finalizer)
            return
        else:
            return


def _finalizers(obj: Obj) -> list[str]:
    return obj["metadata"].get("finalizers") or []


async def _delete(client: Client, obj: Obj) -> str:
    return await _delete_key(client, resource_of_object(obj), key_of(obj))


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
    left = await _definitions(client)
    for one in left.values():
        conditions, meta = (one.get("status") or {}).get("conditions"), one["metadata"]
        if find_condition(conditions, "Terminating").get("reason") == "InstanceDeletionFailed":
            body = {"metadata": {"annotations": {RETRIED: meta["resourceVersion"]}}}
            with contextlib.suppress(NotFound):
                await client.patch(CRDS, key_of(one), body, PatchType.MERGE)
    return sorted(left)


async def _until_none(
    ask: Callable[[], Awaitable[list[str]]],
    fix: str,
    deadline: float,
) -> None:
    """Waits until all are removed.

    Raises:
        ConfigError: something was not removed in time.
    """
    pauses = Backoff(base=0.05, cap=2.0, jitter=0.1)
    started = SYSTEM_CLOCK.monotonic()
    while left := await ask():
        if SYSTEM_CLOCK.monotonic() - started > deadline:
            raise ConfigError(", ".join(left), f"not removed after {deadline:.0f} s", fix)
        await SYSTEM_CLOCK.sleep(pauses.next(SYSTEM_CLOCK.monotonic(), random.random()))
