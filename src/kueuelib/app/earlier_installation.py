"""What an earlier installation left in a cluster: what is lost next, and what blocks the next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kueuelib.api.crd import all_crds
from kueuelib.api.kinds import (
    API_SERVICES,
    CLUSTER_ROLE_BINDINGS,
    CONFIG_MAPS,
    CRDS,
    DEPLOYMENTS,
    LEASES,
    NAMESPACES,
    WORKLOADS,
)
from kueuelib.api.meta import Obj, ObjectKey, key_of
from kueuelib.app.configuration import CONFIG_FILE, CONFIG_MAP, Configuration
from kueuelib.app.deployment import CONFIGURATION, NAME, Deployed, left_behind
from kueuelib.app.running_configuration import is_held
from kueuelib.controllers.manifests import (
    APP,
    MANAGER_BINDING,
    SERVICE_ACCOUNT,
    api_service_names,
)
from kueuelib.errors import ConfigError
from kueuelib.runtime.client import Client, read
from kueuelib.runtime.connection import server_time

# What blocks an installation that reaches the manager in another way than the previous one.
# A webhook is reached by a URL or by a Service. An apply adds the second one if another manager
# owns the first, and an object with both is invalid.

_WAYS = frozenset({"url", "service"})


def in_the_way(stored: Obj, wanted: Obj) -> Obj:
    """A merge patch that takes the other way to a webhook out of an object; or empty.

    Args:
        stored: a raw CRD, or a webhook configuration.
        wanted: what is to be applied to it.
    """
    if wanted["kind"] == CRDS.kind:
        return _of_definition(stored, wanted)
    ours = {hook["name"]: hook["clientConfig"] for hook in wanted.get("webhooks") or ()}
    hooks = [
        {**hook, "clientConfig": ours[hook["name"]]}
        if hook["name"] in ours and _others(hook["clientConfig"], ours[hook["name"]])
        else hook
        for hook in stored.get("webhooks") or ()
    ]
    if hooks == (stored.get("webhooks") or []):
        return {}
    version = stored["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version}, "webhooks": hooks}


def _of_definition(stored: Obj, wanted: Obj) -> Obj:
    theirs, ours = _conversion(stored), _conversion(wanted)
    if theirs and not ours:
        return {"spec": {"conversion": {**wanted["spec"]["conversion"], "webhook": None}}}
    other = _others(theirs, ours)
    if not other or not ours:
        return {}
    config = {**dict.fromkeys(other), **ours}
    return {"spec": {"conversion": {"webhook": {"clientConfig": config}}}}


def _others(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> frozenset[str]:
    return (_WAYS & theirs.keys()) - ours.keys()


def _conversion(crd: Obj) -> Obj:
    webhook = (crd["spec"].get("conversion") or {}).get("webhook") or {}
    config: Obj = webhook.get("clientConfig") or {}
    return config


# --------------------------------------------------------------------------------------------------

_GO_MANAGER: Final = re.compile(r"(^|/)kueue(@|:|$)")
"""The name of the image of the Go manager, in any registry."""


def go_image(deployment: Obj) -> str:
    """The image of the Go manager, if a Deployment runs it; empty otherwise."""
    pod = (deployment["spec"].get("template") or {}).get("spec") or {}
    images = [one.get("image") or "" for one in pod.get("containers") or ()]
    return next((one for one in images if _GO_MANAGER.search(one)), "")


def other_managers(
    deployments: Iterable[Obj], namespace: str, *, pods: bool = True
) -> Iterator[tuple[Obj, str]]:
    """The Deployments that have to be deleted before an installation, each with the reason.

    Args:
        deployments: raw ones.
        namespace: of the manager.
        pods: whether the installation has a Deployment of its own.
    """
    for one in deployments:
        selector = (one["spec"].get("selector") or {}).get("matchLabels")
        image = go_image(one)
        if pods and key_of(one) == ObjectKey(namespace, NAME) and selector != APP:
            yield one, "another manager has it: ours has its name, and its selector cannot change"
        elif image and one["spec"].get("replicas", 1):
            yield one, f"it runs another manager of the same objects: {image}"


def deletion_of(deployment: Obj) -> str:
    """The command that deletes a Deployment."""
    key = key_of(deployment)
    return f"kubectl -n {key.namespace} delete deployment {key.name}"


async def refuse_other_managers(client: Client, namespace: str, deployed: Deployed | None) -> None:
    """Refuses to install beside another manager, whose webhooks the installation would replace.

    Args:
        client: whose cluster.
        namespace: of the manager.
        deployed: the pods to install; None for none.

    Raises:
        ConfigError: there is one.
    """
    deployments = [one async for one in client.list_all(DEPLOYMENTS)]
    for one, problem in other_managers(deployments, namespace, pods=deployed is not None):
        where = f"deployment {key_of(one)}"
        raise ConfigError(where, problem, f"delete it, then install: {deletion_of(one)}")


async def bound_elsewhere(client: Client, namespace: str) -> str:
    """The namespace of the account that has the manager's rights, if it is another; else empty."""
    binding = await read(client, CLUSTER_ROLE_BINDINGS, ObjectKey("", MANAGER_BINDING)) or {}
    accounts = [
        subject.get("namespace") or ""
        for subject in binding.get("subjects") or ()
        if (subject.get("kind"), subject.get("name")) == ("ServiceAccount", SERVICE_ACCOUNT)
    ]
    return "" if namespace in accounts else next(iter(accounts), "")


async def leaders(client: Client) -> list[Obj]:
    """The Leases of managers that lead now, in all namespaces."""
    name = Configuration("").lease.name
    now = await server_time(client)
    leases = client.list_all(LEASES, field_selector=f"metadata.name={name}")
    return [lease async for lease in leases if is_held(lease, now)]


async def refuse_another_namespace(client: Client, namespace: str) -> None:
    """Refuses to take rights and webhooks from a manager that leads from another namespace.

    Raises:
        ConfigError: there is one.
    """
    place = await bound_elsewhere(client, namespace)
    if place and place in [key_of(lease).namespace for lease in await leaders(client)]:
        problem = f"a manager leads from namespace {place!r}, and a cluster has one manager"
        raise ConfigError(
            f"namespace {namespace!r}",
            problem,
            f"give --namespace {place}, or uninstall that first",
        )


def being_deleted(crd: Obj) -> str:
    """What is deleted with a CRD that is being deleted; empty if it is not.

    Args:
        crd: the stored one.
    """
    if not crd["metadata"].get("deletionTimestamp"):
        return ""
    if crd["spec"]["names"]["kind"] == WORKLOADS.kind:
        what = (
            "all Workloads are deleted with it, and the manager that runs, or the next one that "
            "starts, suspends their Jobs and deletes their Pods"
        )
    else:
        what = "all its objects are deleted with it"
    return f"this CRD is being deleted, which cannot be cancelled: {what}"


async def refuse_ending_kinds(client: Client) -> None:
    """Refuses to install while one of our CRDs is being deleted, with every object of its kind.

    Args:
        client: whose cluster.

    Raises:
        ConfigError: one is.
    """
    for name in (crd["metadata"]["name"] for crd in all_crds()):
        stored = await read(client, CRDS, ObjectKey("", name))
        problem = "" if stored is None else being_deleted(stored)
        if problem:
            fix = (
                "save its objects with the command that kueuelib doctor prints, which also names "
                "what keeps it, and install again once it is gone"
            )
            raise ConfigError(f"customresourcedefinition {name}", problem, fix)


async def refuse_ending_namespace(client: Client, namespace: str) -> None:
    """Refuses to install into a namespace that is being deleted, where nothing can be created.

    Args:
        client: whose cluster.
        namespace: of the manager.

    Raises:
        ConfigError: it is.
    """
    stored = await read(client, NAMESPACES, ObjectKey("", namespace))
    if stored is not None and stored["metadata"].get("deletionTimestamp"):
        raise ConfigError(
            f"namespace {namespace}",
            "is being deleted, so nothing can be created in it",
            "install again once it is gone; kueuelib doctor names what keeps it",
        )


async def keep_configuration(client: Client, namespace: str, deployed: Deployed | None) -> None:
    """Refuses to replace a configuration that somebody wrote by the default one.

    Args:
        client: whose cluster.
        namespace: of the manager.
        deployed: the pods to install; None for none.

    Raises:
        ConfigError: it is in the ConfigMap, and no other one was given.
    """
    if deployed is None or deployed.config != CONFIGURATION:
        return
    stored = await read(client, CONFIG_MAPS, ObjectKey(namespace, CONFIG_MAP))
    text = ((stored or {}).get("data") or {}).get(CONFIG_FILE, CONFIGURATION)
    if text != CONFIGURATION:
        path = "jsonpath='{{.data.{}}}'".format(CONFIG_FILE.replace(".", r"\."))
        where = f"kubectl -n {namespace} get configmap {CONFIG_MAP} -o {path}"
        raise ConfigError(
            f"configmap {namespace}/{CONFIG_MAP}",
            "holds a configuration, which the default one would replace",
            f"keep it: {where} > manager.yaml, then add --config manager.yaml; or delete the "
            "ConfigMap to begin with the default one",
        )


async def pods_left(client: Client, namespace: str) -> str:
    """A line about a Deployment that has pods beside a manager outside of the cluster; or empty."""
    deployment = await read(client, DEPLOYMENTS, ObjectKey(namespace, NAME))
    problem, fix = ("", "") if deployment is None else left_behind(deployment)
    return f"deployment/{NAME} left as it is: {problem}; to remove it: {fix}" if problem else ""


async def apis_left(client: Client) -> list[str]:
    """Lines about APIServices that nothing serves without `visibilityServer`."""
    return [
        f"warning: apiservice/{name} is left, and nothing serves it without visibilityServer in "
        "the configuration, so that deleted namespaces stay Terminating; name the configuration "
        f"with --config, or kubectl delete apiservice {name}"
        for name in api_service_names()
        if await read(client, API_SERVICES, ObjectKey("", name)) is not None
    ]
