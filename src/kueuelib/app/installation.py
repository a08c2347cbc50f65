"""The raw objects that `kueuelib install` writes into a cluster, and how it writes them.

Everything is applied server-side under one field manager, so installing again, or a newer version,
changes only what differs, and leaves fields of other owners alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

import attrs

from kueuelib.api.crd import all_crds
from kueuelib.api.kinds import CRDS, KUEUE, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, VERSIONS
from kueuelib.api.meta import Obj, ObjectKey, Resource, is_true, key_of
from kueuelib.api.names import is_dns1123_label
from kueuelib.app.deployment import Deployed
from kueuelib.app.earlier_installation import (
    apis_left,
    in_the_way,
    keep_configuration,
    pods_left,
    refuse_another_namespace,
    refuse_ending_kinds,
    refuse_ending_namespace,
    refuse_other_managers,
)
from kueuelib.controllers.manifests import (
    WEBHOOK_SECRET,
    WEBHOOK_SERVICE,
    cluster_role,
    manager_manifests,
    manager_user,
    server_names,
    visibility_manifests,
)
from kueuelib.controllers.webhooks import (
    ClientConfig,
    by_service,
    by_url,
    queueing_entries,
    sparing,
    webhook_configurations,
    with_conversion,
)
from kueuelib.errors import ConfigError, NotFound
from kueuelib.jobs.batch import BATCH_JOB
from kueuelib.jobs.builtin import builtin_registry
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.settings import JobSettings, PodSettings, system_excluded
from kueuelib.jobs.pods.integration import POD
from kueuelib.jobs.webhooks.manifests import rbac_rules, shared_rbac_rules, webhook_entries
from kueuelib.machinery.backoff import Backoff
from kueuelib.runtime.certificates import ServerNames, host_names
from kueuelib.runtime.client import Client, read
from kueuelib.runtime.clock import SYSTEM_CLOCK
from kueuelib.runtime.queries import PatchType
from kueuelib.runtime.webhook.trust import ensure_certificates, with_bundle

# ---- waits until a cluster serves the queueing kinds ---------------------------------------------


async def until_served(client: Client, versions: Iterable[str], deadline: float) -> None:
    """Waits until every CRD is established and the versions are in discovery.

    Args:
        client: whose cluster.
        versions: in which objects are to be served.
        deadline: seconds to wait.

    Raises:
        ConfigError: the kinds were not served in time.
    """
    wanted = {crd["metadata"]["name"]: crd["spec"]["names"]["kind"] for crd in all_crds()}
    pauses = Backoff(base=0.05, cap=2.0, jitter=0.1)
    started = SYSTEM_CLOCK.monotonic()
    while True:
        by_name = {crd["metadata"]["name"]: crd for crd in (await client.list(CRDS)).items}
        missing = [name for name in wanted if not is_true(by_name.get(name, {}), "Established")]
        if not missing:
            missing = await _undiscovered(client, versions, wanted.values())
        if not missing:
            return
        if SYSTEM_CLOCK.monotonic() - started > deadline:
            raise ConfigError(
                ", ".join(missing),
                f"not served after {deadline:.0f} s",
                "check the conditions of the CRDs",
            )
        await SYSTEM_CLOCK.sleep(pauses.next(SYSTEM_CLOCK.monotonic(), random.random()))


async def _undiscovered(client: Client, versions: Iterable[str], kinds: Iterable[str]) -> list[str]:
    missing: list[str] = []
    for version in versions:
        served = await client.served_kinds(KUEUE, version)
        missing += [f"{kind} ({version})" for kind in kinds if kind not in served]
    return missing


# --------------------------------------------------------------------------------------------------

FIELD_MANAGER = "kueuelib-install"
JOBS_ROLE = "kueue-jobs-role"

_PLURALS = {
    "APIService": "apiservices",
    "Namespace": "namespaces",
    "ConfigMap": "configmaps",
    "Deployment": "deployments",
    "NetworkPolicy": "networkpolicies",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "ServiceMonitor": "servicemonitors",
    "ServiceAccount": "serviceaccounts",
    "Service": "services",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "CustomResourceDefinition": "customresourcedefinitions",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}


_CALLING = (CRDS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
"""What calls a webhook."""


def check_namespace(name: str) -> None:
    """Refuses a name that no namespace can have.

    Raises:
        ConfigError: the name is not valid.
    """
    if not is_dns1123_label(name):
        raise ConfigError(
            f"--namespace {name}",
            "not a valid namespace name",
            "use lower-case letters, digits and '-'",
        )


@attrs.frozen
class Installation:
    """How to install a manager, and the objects of the installation.

    Attributes:
        namespace: of the manager.
        webhook_url: `https://host:port`, or None for the Service in the cluster.
        deployed: the manager's pods; None when it runs elsewhere.
        frameworks: the names of the bundled kinds that it queues besides Jobs and Pods.
        certificates: whether the manager makes its certificates itself.
        visibility_port: where a manager that runs elsewhere serves the visibility API, on the host
            of the webhooks; None if it does not.
        versions: in which versions of the API objects are served.
        secret: the name of the one with the certificate of the webhooks.
    """

    namespace: str
    webhook_url: str | None = None
    deployed: Deployed | None = None
    frameworks: tuple[str, ...] = ()
    certificates: bool = True
    visibility_port: int | None = None
    versions: tuple[str, ...] = VERSIONS
    secret: str = WEBHOOK_SECRET

    @property
    def integrations(self) -> tuple[Integration, ...]:
        """The kinds that permissions and webhooks are about."""
        registry = builtin_registry()
        known = {*self.frameworks} & {*registry.names()}
        return registry.enabled({BATCH_JOB.name, POD.name} | known)

    @property
    def client_config(self) -> ClientConfig:
        """How the API server reaches a path of the webhook server."""
        if self.webhook_url:
            return by_url(self.webhook_url)
        return by_service(self.namespace, WEBHOOK_SERVICE)

    @property
    def host(self) -> str:
        """Where a manager runs that is outside of the cluster; empty for one in it."""
        return (urlsplit(self.webhook_url).hostname or "") if self.webhook_url else ""

    @property
    def names(self) -> ServerNames:
        """The names in the webhook server's certificate."""
        names = server_names(WEBHOOK_SERVICE, self.namespace)
        return names | host_names([self.host]) if self.host else names

    def foundation(self) -> list[Obj]:
        """Namespace, identities and permissions."""
        rules = [*shared_rbac_rules(), *rbac_rules(self.integrations)]
        objects = manager_manifests(self.namespace, self.secret)
        binding = next(obj for obj in objects if obj["kind"] == "ClusterRoleBinding")
        bound = {
            **binding,
            "metadata": {**binding["metadata"], "name": "kueue-jobs-rolebinding"},
            "roleRef": {**binding["roleRef"], "name": JOBS_ROLE},
        }
        return [*objects, cluster_role(JOBS_ROLE, rules), bound]

    def definitions(self) -> list[Obj]:
        """The CRDs."""
        crds = [with_conversion(crd, self.client_config) for crd in all_crds()]
        for crd in crds:
            for version in crd["spec"]["versions"]:
                version["served"] = version["name"] in self.versions
        return crds

    def webhooks(self) -> list[Obj]:
        """The two webhook configurations; after the pods, because without those they would refuse
        what they check.
        """
        excluded = system_excluded(self.namespace)
        settings = JobSettings(
            namespace_selector=excluded, pods=PodSettings(namespace_selector=excluded)
        )
        jobs = webhook_entries(self.integrations, settings)
        entries = sparing([*queueing_entries(), *jobs], manager_user(self.namespace))
        return webhook_configurations(entries, self.client_config)

    def pods(self) -> list[Obj]:
        """The manager's Deployment and what surrounds it."""
        return [] if self.deployed is None else self.deployed.manifests(self.namespace)

    def visibility(self) -> list[Obj]:
        """The objects of the visibility API; last, because an API server complains while it does
        not answer.

        Raises:
            ConfigError: an API server cannot be led to the host.
        """
        port = self.visibility_port if self.deployed is None else self.deployed.visibility_port
        if port is None:
            return []
        if ":" in self.host:
            raise ConfigError(
                f"--webhook-url {self.webhook_url}",
                "a Service cannot name an IPv6 address, but visibilityServer needs one",
                "write the name of the host, or remove visibilityServer",
            )
        return visibility_manifests(self.namespace, port, self.host)

    def manifests(self) -> list[Obj]:
        """All of it, in the order of writing."""
        return [
            *self.foundation(),
            *self.definitions(),
            *self.pods(),
            *self.webhooks(),
            *self.visibility(),
        ]


def checked_url(text: str | None) -> str | None:
    """A webhook URL that an API server accepts.

    Raises:
        ConfigError: it is not such a URL.
    """
    if text is None:
        return None
    try:
        parts = urlsplit(text)
        good = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    else:
        extra = (parts.path.strip("/"), parts.query, parts.fragment, parts.username)
        good = good and not any(extra)
    if not good:
        raise ConfigError(
            f"--webhook-url {text}",
            "is not an address that an API server can call",
            "write https://HOST:PORT, without a path",
        )
    return text.rstrip("/")


async def install(
    client: Client,
    installation: Installation,
    deadline: float,
    report: Callable[[str], object] | None = None,
) -> list[str]:
    """Writes everything, and waits until the new kinds are served; returns what was written, as
    text.

    After a stop between two writes, no webhook refuses anything for want of a manager, and the
    next installation continues.

    Args:
        client: with an administrator's rights.
        installation: the objects to write.
        deadline: seconds that the cluster has to serve the new kinds.
        report: is called with each line as soon as it is true.

    Raises:
        ApiError: the server refused something.
        ConfigError: the kinds were not served in time. Or the cluster lacks a required kind, one of
            our kinds or the namespace is being deleted, or another manager is there; then nothing
            is written.
    """
    await refuse_other_managers(client, installation.namespace, installation.deployed)
    await refuse_another_namespace(client, installation.namespace)
    await refuse_ending_kinds(client)
    await refuse_ending_namespace(client, installation.namespace)
    await keep_configuration(client, installation.namespace, installation.deployed)
    pods = [(obj, await _is_served(client, obj)) for obj in installation.pods()]
    moved = await _moved_from(client, installation)
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        if report is not None:
            report(line)

    async def write(objects: Iterable[Obj]) -> None:
        for obj in objects:
            say(await _apply(client, obj))

    await write(installation.foundation())
    authority = b""
    if installation.certificates:
        secret = ObjectKey(installation.namespace, installation.secret)
        authority = (await ensure_certificates(client, secret, installation.names)).ca_cert
        say(
            f"secret/{secret.name} holds the webhooks' certificate; a manager that runs loads a "
            "new one within a minute"
        )

    def trusting(obj: Obj) -> Obj:
        return with_bundle(obj, authority) if authority else obj  # others have no bundle

    await write(map(trusting, installation.definitions()))
    await until_served(client, installation.versions, deadline)
    for obj, served in pods:
        say(await _apply(client, obj) if served else _skipped(obj))
    await write(map(trusting, [*installation.webhooks(), *installation.visibility()]))
    for line in moved + await _left(client, installation):
        say(line)
    return lines


async def _left(client: Client, installation: Installation) -> list[str]:
    """What to say about parts that an earlier installation made and this one does without."""
    lines = []
    if installation.deployed is None:
        lines.append(await pods_left(client, installation.namespace))
    if not installation.visibility():
        lines += await apis_left(client)
    return [line for line in lines if line]


async def _moved_from(client: Client, installation: Installation) -> list[str]:
    """A line about the manager outside of the cluster that the webhooks are about to leave."""
    if installation.webhook_url:
        return []
    for wanted in installation.webhooks():
        stored = await read(client, resource_of_object(wanted), key_of(wanted))
        for hook in (stored or {}).get("webhooks", ()):
            parts = urlsplit(hook["clientConfig"].get("url") or "")
            if parts.netloc:
                url = f"https://{parts.netloc}"
                line = (
                    f"warning: the webhooks led to {url}, and now lead to Service "
                    f"{installation.namespace}/{WEBHOOK_SERVICE}: until pods of its Deployment are "
                    "ready, what they check is refused; to go back to the manager there, install "
                    f"with --webhook-url {url}"
                )
                return [line]
    return []


async def _is_served(client: Client, obj: Obj) -> bool:
    """Whether the cluster has the kind of an object.

    Raises:
        ConfigError: it lacks a required kind.
    """
    kind = resource_of_object(obj)
    if kind.kind in await client.served_kinds(kind.group, kind.version):
        return True
    if kind.kind == "ServiceMonitor":
        raise ConfigError(
            "--service-monitor",
            f"the cluster does not serve {kind.api_version}",
            "install the Prometheus operator, or leave the option out",
        )
    return False


def _skipped(obj: Obj) -> str:
    where = f"{obj['kind'].lower()}/{obj['metadata']['name']}"
    return f"{where} left out: the cluster does not serve {obj['apiVersion']}"


def resource_of_object(obj: Obj) -> Resource:
    """The `Resource` of an object of the manifests."""
    group, _, version = obj["apiVersion"].rpartition("/")
    namespaced = "namespace" in obj["metadata"]
    return Resource(group, version, _PLURALS[obj["kind"]], obj["kind"], namespaced)


_AGGREGATION = "aggregationRule"
"""The field of a ClusterRole whose rules are those of others; apply leaves it to its owner."""


async def _apply(client: Client, obj: Obj) -> str:
    """Writes one object; returns what happened to it."""
    resource, key = resource_of_object(obj), key_of(obj)
    try:
        stored = await client.get(resource, key)
    except NotFound:
        before = ""
    else:
        before = stored["metadata"]["resourceVersion"]
        if resource in _CALLING and (patch := in_the_way(stored, obj)):
            await client.patch(resource, key, patch, PatchType.MERGE, field_manager=FIELD_MANAGER)
        if stored.get(_AGGREGATION) and _AGGREGATION not in obj:
            # kube-controller-manager would replace the rules
            await client.patch(resource, key, {_AGGREGATION: None}, PatchType.MERGE)
    after = await client.patch(
        resource, key, obj, PatchType.APPLY, field_manager=FIELD_MANAGER, force=True
    )
    unchanged = after["metadata"]["resourceVersion"] == before
    verb = "unchanged" if unchanged else "configured" if before else "created"
    return f"{resource.kind.lower()}/{obj['metadata']['name']} {verb}"
