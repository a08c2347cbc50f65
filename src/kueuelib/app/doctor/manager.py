"""The manager of an installation: where it runs, how it is started, what says that it does not.

The commands fit the installation: a manager outside of the cluster has no pods to look at.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from kueuelib.api.crd import converted_crds
from kueuelib.api.kinds import (
    API_SERVICES,
    CONFIG_MAPS,
    CRDS,
    DEPLOYMENTS,
    KUEUE,
    LEASES,
    MANAGER_NAMESPACE,
    MUTATING_WEBHOOKS,
    SECRETS,
    SERVICE_MONITORS,
    VALIDATING_WEBHOOKS,
)
from kueuelib.api.meta import Obj, Resource, annotations_of
from kueuelib.app.configuration import CONFIG_FILE, CONFIG_MAP
from kueuelib.app.deployment import CONFIGURATION, DASHBOARDS, MONITOR, NAME, Deployed
from kueuelib.app.doctor.finding import Subject
from kueuelib.app.doctor.snapshot import ClusterSnapshot
from kueuelib.app.installation import Installation
from kueuelib.app.refusers import (
    OUR_CONFIGURATIONS,
    dead_webhook,
    lacks_permission,
    webhook_names,
)
from kueuelib.app.running_configuration import has_own_configuration, holder_of
from kueuelib.controllers.manifests import SERVICE_ACCOUNT, api_service_names
from kueuelib.controllers.webhooks import MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION

LEADER, UNREACHABLE, MISSING_KIND = "leader", "webhook-unreachable", "crd-missing"
INVALID, DISABLED, ACCOUNT = "configuration-invalid", "kind-disabled", "account-missing"
MISDIRECTED, TERMINATING = "webhook-service", "crd-terminating"
NAMESPACE_STUCK = "namespace-stuck"
CONVERSION, ANOTHER_WEBHOOK = "crd-conversion", "another-webhook"
CERTIFICATE: Final = "webhook-certificate"
MISSING_PERMISSION, REFUSED, STATUS_LOST = "permissions", "write-refused", "crd-status"
"""Checks whose findings explain others."""
_TEXT: Final = "jsonpath='{{.data.{}}}'".format(CONFIG_FILE.replace(".", r"\."))
"""How `kubectl get` prints the configuration file in the ConfigMap."""
_URL: Final = "URL"
"""Stands for the address of a manager that led outside of the cluster, if no object names it."""
_KUBECONFIG: Final = "KUBECONFIG"
"""Stands for the file with the manager's credentials, which are not those of an administrator."""
_HINT: Final = "  # with --webhook-url URL if the manager runs outside of the cluster"
_RELEASE: Final = "meta.helm.sh/release-name"
"""The annotation by which Helm marks what it installs."""
CONFIGURATIONS = (
    (MUTATING_WEBHOOKS.kind, MUTATING_CONFIGURATION),
    (VALIDATING_WEBHOOKS.kind, VALIDATING_CONFIGURATION),
)


def no_manager(snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """The checks that find something if no manager runs."""
    return (LEADER,) if snapshot.configuration.leader_election.leader_elect else (UNREACHABLE,)


def explanations(snapshot: ClusterSnapshot, message: str) -> tuple[str, ...]:
    """The checks whose errors end with what the API server refused to the manager; none for what
    policies, quotas and the like refuse.

    Args:
        snapshot: the cluster.
        message: of the API server.
    """
    if lacks_permission(message):
        return (MISSING_PERMISSION,)
    dead = dead_webhook(message)
    if not dead:
        return ()
    ours = any(
        one["metadata"]["name"] in OUR_CONFIGURATIONS and dead in webhook_names(one)
        for _, one in snapshot.webhook_configurations()
    )
    return (UNREACHABLE if ours else ANOTHER_WEBHOOK,)


def is_fixed(snapshot: ClusterSnapshot) -> bool:
    """Whether no manager can write the Secret of the webhooks' certificate.

    Args:
        snapshot: the cluster.
    """
    return any(one.get("immutable") for one in snapshot.all(SECRETS.kind))


def gone(snapshot: ClusterSnapshot, resource: Resource) -> tuple[str, ...]:
    """The check that finds something if a kind is missing or being deleted with its objects.

    Args:
        snapshot: the cluster.
        resource: the kind.
    """
    crd = snapshot.find(CRDS.kind, f"{resource.plural}.{resource.group}")
    if crd is None:
        return () if snapshot.why_unseen(CRDS.kind) else (MISSING_KIND,)
    return (TERMINATING,) if crd["metadata"].get("deletionTimestamp") else ()


def is_ending(snapshot: ClusterSnapshot, kind: str) -> bool:
    """Whether the definition of a queueing kind is being deleted.

    Args:
        snapshot: the cluster.
        kind: its name.
    """
    return any(
        crd["spec"]["group"] == KUEUE
        and crd["spec"]["names"]["kind"] == kind
        and "deletionTimestamp" in crd["metadata"]
        for crd in snapshot.all(CRDS.kind)
    )


def client_configs(snapshot: ClusterSnapshot) -> Iterator[tuple[Subject, Obj]]:
    """How the API server reaches our webhooks; of each object those that differ in what they trust.

    Args:
        snapshot: the cluster.
    """
    for kind, name in CONFIGURATIONS:
        obj = snapshot.find(kind, name)
        seen = []
        for webhook in () if obj is None else obj.get("webhooks") or ():
            config = webhook.get("clientConfig") or {}
            if config.get("caBundle") not in seen:
                seen.append(config.get("caBundle"))
                yield Subject(kind, name), config
    for name in converted_crds():
        obj = snapshot.find(CRDS.kind, name)
        conversion = {} if obj is None else obj["spec"].get("conversion") or {}
        if conversion.get("strategy") == "Webhook":
            yield (
                Subject(CRDS.kind, name),
                (conversion.get("webhook") or {}).get("clientConfig") or {},
            )


def address_of(config: Obj) -> str:
    """Where a `clientConfig` leads: `https://host:port`, or a Service; empty if nowhere.

    Args:
        config: the raw one.
    """
    service = config.get("service")
    if service:
        return f"Service {service['namespace']}/{service['name']}"
    return "/".join((config.get("url") or "").split("/")[:3])


def outside(snapshot: ClusterSnapshot) -> str:
    """The address of a manager outside of the cluster, as `https://host:port`; empty without one.
    The webhook configurations decide. CRDs count only if there are none.

    Args:
        snapshot: the cluster.
    """
    configs = [*client_configs(snapshot)]
    admission = [config for subject, config in configs if subject.kind != CRDS.kind]
    urls = [one for one in admission or [config for _, config in configs] if one.get("url")]
    return address_of(urls[0]) if urls else ""


def lease_of(snapshot: ClusterSnapshot) -> Obj | None:
    """The Lease of the manager; None if it does not exist.

    Args:
        snapshot: the cluster.
    """
    key = snapshot.configuration.lease
    return snapshot.find(LEASES.kind, key.name, key.namespace)


def _leader(snapshot: ClusterSnapshot) -> str:
    """The identity of the present or last leader; empty if the Lease names nobody."""
    lease = lease_of(snapshot) or {}
    return (lease.get("spec") or {}).get("holderIdentity") or holder_of(lease)


def install(snapshot: ClusterSnapshot, url: str = "", *, edited: bool = False) -> str:
    """The command that installs again what is there, in the same way.

    Args:
        snapshot: the cluster.
        url: another address of the manager.
        edited: whether the configuration file is about to be changed.
    """
    url, namespace = url or outside(snapshot), snapshot.namespace
    deployment = None if url else snapshot.find(DEPLOYMENTS.kind, NAME, namespace)
    hint = ""
    if not url and not deployment and not any(one for _, one in client_configs(snapshot)):
        # No object names the address of the webhooks; the last leader may show where it ran.
        leader = _leader(snapshot)
        url = _URL if leader and not leader.startswith(f"{NAME}-") else ""
        hint = "" if leader or edited else _HINT
    release = annotations_of(deployment or {}).get(_RELEASE)
    words = [f"--webhook-url {url}"] if url else [*_pods(snapshot, deployment)]
    if namespace != MANAGER_NAMESPACE:
        words.append(f"--namespace {namespace}")
    before, file = _file(snapshot, url, edited=edited)
    if file:
        words.append(f"--config {file}")
    if release:
        upgrade = f"helm upgrade {release} ./chart --namespace {namespace} --reuse-values"
        words = ["--chart ./chart", *words, f"&& {upgrade}"]
    return before + " ".join(["kueuelib install", *words]) + hint


def reinstall(snapshot: ClusterSnapshot) -> str:
    """The command that removes everything, and installs it again in the same way.

    Args:
        snapshot: the cluster.
    """
    space = snapshot.namespace
    remove = "kueuelib uninstall --force"
    remove += f" --namespace {space}" if space != MANAGER_NAMESPACE else ""
    show, piped, again = install(snapshot).partition(" | ")
    if not piped:
        return f"{remove} && {show}"
    return f"{show} > manager.yaml && {remove} && {again.replace('/dev/stdin', 'manager.yaml')}"


def _pods(snapshot: ClusterSnapshot, deployment: Obj | None) -> Iterator[str]:
    """The options for pods, and what surrounds them, that are not the defaults."""
    spec, plain = (deployment or {}).get("spec") or {}, Deployed()
    for container in _managers(spec):
        if container["image"] != plain.image:
            yield f"--image {shlex.quote(container['image'])}"
        if spec.get("replicas", 1) not in (0, plain.replicas):
            yield f"--replicas {spec.get('replicas', 1)}"
    if snapshot.find(SERVICE_MONITORS.kind, MONITOR, snapshot.namespace):
        yield "--service-monitor"
    if snapshot.find(CONFIG_MAPS.kind, DASHBOARDS, snapshot.namespace):
        yield "--dashboards"


def runs_manager(deployment: Obj) -> bool:
    """Whether a Deployment runs this program's manager.

    Args:
        deployment: the stored one.
    """
    return any(_managers(deployment["spec"]))


def _managers(spec: Obj) -> Iterator[Obj]:
    """The containers of a Deployment that run this program's manager."""
    pod = (spec.get("template") or {}).get("spec") or {}
    for container in pod.get("containers") or ():
        if (container.get("args") or [""])[0] == "manager":
            yield container


def _file(snapshot: ClusterSnapshot, url: str, *, edited: bool) -> tuple[str, str]:
    """How to name the manager's configuration file, after the command that prints it, if any; both
    are empty without a file.
    """
    if snapshot.file:
        return "", shlex.quote(snapshot.file)
    mounted = snapshot.find(CONFIG_MAPS.kind, CONFIG_MAP, snapshot.namespace) or {}
    own = mounted and (edited or (mounted.get("data") or {}).get(CONFIG_FILE) != CONFIGURATION)
    if own and not url:
        where = f"kubectl -n {snapshot.namespace} get configmap {CONFIG_MAP}"
        return f"{where} -o {_TEXT} | ", "/dev/stdin"
    return "", "FILE" if own or url == _URL or _is_configured(snapshot) else ""


def _is_configured(snapshot: ClusterSnapshot) -> bool:
    """Whether what is installed shows that the manager has a configuration file, without which
    `install` would take away what the file asks for.
    """
    if any(snapshot.find(API_SERVICES.kind, name) for name in api_service_names()):
        return True
    if has_own_configuration(lease_of(snapshot) or {}):
        return True
    plain = Installation(snapshot.namespace).webhooks()
    known = {one["name"] for obj in plain for one in obj["webhooks"]}
    objects = (snapshot.find(kind, name) for kind, name in CONFIGURATIONS)
    there = {one["name"] for obj in objects if obj for one in obj.get("webhooks") or ()}
    return not there <= known


def start(snapshot: ClusterSnapshot) -> str:
    """The command that starts a manager, or shows why the one of the cluster does not run."""
    address, where = outside(snapshot), f"kubectl -n {snapshot.namespace}"
    if address:
        file = shlex.quote(snapshot.file or "FILE")
        where = f"on the machine that {address} names, or start your own manager there"
        command = f"kueuelib manager --config {file} --kubeconfig {_KUBECONFIG}"
        return f"{command}  # the manager's own, {where}; first end one that hangs"
    deployment = snapshot.find(DEPLOYMENTS.kind, NAME, snapshot.namespace)
    if deployment is not None:
        if deployment["spec"].get("replicas", 1) == 0:
            return f"{where} scale deployment {NAME} --replicas=2"
        return f"{where} get pods,endpointslices  # why does no pod of Deployment {NAME} run?"
    return f"{where} get deployments,pods  # is there a manager? if not: {install(snapshot)}"


def look(snapshot: ClusterSnapshot) -> str:
    """The command that shows what a manager that seems to run says."""
    address = outside(snapshot)
    if address:
        return f"see the log of the manager on the machine that {address} names"
    return f"kubectl -n {snapshot.namespace} logs deployment/{NAME}"


def reconfigure(snapshot: ClusterSnapshot, change: str, *, installs: bool = False) -> str:
    """The command that changes the manager's configuration and restarts the manager.

    Args:
        snapshot: the cluster.
        change: what to change, for people.
        installs: whether permissions and webhooks change with it.
    """
    if outside(snapshot) or snapshot.find(CONFIG_MAPS.kind, CONFIG_MAP, snapshot.namespace) is None:
        again = f"run {install(snapshot, edited=True)} and " if installs else ""
        return f"{change} in the manager's configuration, then {again}restart the manager"
    again = f"{install(snapshot, edited=True)} && " if installs else ""
    edit = f"kubectl -n {snapshot.namespace} edit configmap {CONFIG_MAP}"
    return f"{edit} && {again}{restart(snapshot)}  # {change}"


def new_token(snapshot: ClusterSnapshot) -> str:
    """The command that prints a token for a manager outside of the cluster. Without a duration it
    would end after an hour, and the manager with it.
    """
    where = f"kubectl -n {snapshot.namespace}"
    return f"{where} create token {SERVICE_ACCOUNT} --duration 720h"


def restart(snapshot: ClusterSnapshot) -> str:
    """The command that restarts the manager."""
    address = outside(snapshot)
    if address:
        return f"restart the manager on the machine that {address} names"
    return f"kubectl -n {snapshot.namespace} rollout restart deployment {NAME}"
