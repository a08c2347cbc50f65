"""The manager's configuration: `config.kueue.x-k8s.io`, kind `Configuration`.

`v1beta1` and `v1beta2` are read; the classes are spelled like `v1beta1`. Field names, defaults and
meanings are Kueue's (`docs/configuration.md`). Reading is strict: an unknown key or a value of the
wrong type is a `ConfigError` that names the file, the key and the fix, because a typo that is
silently ignored is found only in production. One error names everything that is refused.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from kueuelib.api.kinds import MANAGER_NAMESPACE
from kueuelib.api.meta import ObjectKey
from kueuelib.api.names import LEASE
from kueuelib.app.decision_blocks import (
    AdmissionFairSharing,
    BorrowingConfiguration,
    FairSharingConfiguration,
    PreemptionConfiguration,
    ResourcesConfiguration,
    WaitForPodsReady,
)
from kueuelib.app.decoding import (
    NOT_ZERO,
    PORT,
    SELECTOR,
    ConfigurationRefusal,
    Duration,
    key,
    more_than,
    one_of,
)
from kueuelib.app.metrics_block import Metrics
from kueuelib.runtime.addresses import own_namespace

_VERSIONS: Final = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
_TLS13: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
"""Suites of TLS 1.3, which no server can choose among; they may be listed among others."""
_SUITES: Final = {
    f"TLS_ECDHE_{key}_WITH_{name}": f"ECDHE-{key}-{openssl_name}"
    for key in ("ECDSA", "RSA")
    for name, openssl_name in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}
"""OpenSSL's names of the safe suites of TLS 1.2."""


@attrs.frozen
class Tls:
    """The block `tls`: the protocols of webhooks, metrics and the visibility API.

    Attributes:
        min_version: `VersionTLS12` or `VersionTLS13`; empty: TLS 1.2.
        cipher_suites: those of TLS 1.2, by their IANA names; empty: the library's defaults.
    """

    min_version: str = ""
    cipher_suites: tuple[str, ...] = ()

    def context(self) -> ssl.SSLContext:
        """The context of a server, without a certificate yet."""
        from kueuelib.runtime.certificates import server_context

        suites = [_SUITES[name] for name in self.cipher_suites if name not in _TLS13]
        return server_context(_VERSIONS[self.min_version], suites)


def check_tls(tls: Tls) -> Iterator[ConfigurationRefusal]:
    """Refuses versions and suites that are not safe, not known, or without effect."""
    if tls.min_version not in _VERSIONS:
        yield ConfigurationRefusal(
            f"tls.minVersion is {tls.min_version!r}",
            "write VersionTLS12 or VersionTLS13",
        )
    suites = tls.cipher_suites
    for index, name in enumerate(suites):
        if name not in _SUITES and name not in _TLS13:
            yield ConfigurationRefusal(
                f"tls.cipherSuites[{index}]: {name!r} is not a known and safe suite",
                f"use some of {', '.join(_SUITES)}",
            )
    if suites and tls.min_version == "VersionTLS13":
        yield ConfigurationRefusal(
            "tls.cipherSuites has no effect on VersionTLS13", "remove the suites"
        )
    if suites and _TLS13.issuperset(suites):
        yield ConfigurationRefusal(
            "tls.cipherSuites has no suite of TLS 1.2",
            "set tls.minVersion to VersionTLS13 instead",
        )


KIND = "Configuration"
CONFIG_MAP = "kueue-manager-config"
"""The ConfigMap of an installation in a cluster."""
CONFIG_FILE = "controller_manager_config.yaml"
"""Its key."""
OFF = "0"
"""The address that turns a server off."""


@attrs.frozen
class WebhookConfiguration:
    """The webhook server: address, and a folder of certificates when they are managed elsewhere."""

    port: int = 9443
    host: str = ""
    cert_dir: str = ""

    @property
    def certificate_folder(self) -> Path:
        """The folder with `tls.crt` and `tls.key` from elsewhere, if the manager makes none."""
        default = Path(tempfile.gettempdir(), "k8s-webhook-server", "serving-certs")
        return Path(self.cert_dir) if self.cert_dir else default


@attrs.frozen
class LeaderElection:
    """The Lease that decides which replica schedules."""

    leader_elect: bool = True
    resource_name: str = LEASE
    resource_namespace: str = ""
    resource_lock: str = "leases"
    lease_duration: Duration = Duration(15)
    renew_deadline: Duration = Duration(10)
    retry_period: Duration = Duration(2)


@attrs.frozen
class Health:
    """The probes' endpoint; address `"0"` turns it off."""

    health_probe_bind_address: str = ":8081"
    readiness_endpoint_name: str = "/readyz"
    liveness_endpoint_name: str = "/healthz"


@attrs.frozen
class ControllerConfiguration:
    """Workers per kind (`Job.batch: 5`), and how long the first lists may take."""

    group_kind_concurrency: Mapping[str, int] = attrs.field(factory=dict)
    cache_sync_timeout: int = 120_000_000_000
    """Nanoseconds, as upstream writes it."""


@attrs.frozen
class ClientConnection:
    """Client-side rate limit in requests per second; without it, or if it is negative, there is
    none.
    """

    qps: float | None = key(None, rule=NOT_ZERO)
    burst: int | None = key(None, rule=more_than(0))


@attrs.frozen
class InternalCertManagement:
    """Whether the manager makes and rotates its own certificates, and where it keeps them."""

    enable: bool = True
    webhook_service_name: str = "kueue-webhook-service"
    webhook_secret_name: str = "kueue-webhook-server-cert"  # noqa: S105 - a name, no secret


@attrs.frozen
class PodOptions:
    """Which plain pods are considered; raw label selectors.

    Attributes:
        namespace_selector: of their namespaces; None for all but those of the system.
        pod_selector: of the pods.
        pod_group_shape_policy: what happens to a pod that requests more than its group declared:
            `Enforce` deletes it, `Warn` only reports it.
    """

    namespace_selector: Mapping[str, Any] | None = key(None, rule=SELECTOR)
    pod_selector: Mapping[str, Any] = key(attrs.Factory(dict), rule=SELECTOR)
    pod_group_shape_policy: str = "Enforce"


@attrs.frozen
class Integrations:
    """Job kinds: those that are enabled, by framework name, and those that others manage.

    Attributes:
        frameworks: integrations that come with kueuelib, or that installed packages offer.
        external_frameworks: kinds that another process queues, as `Kind.version.group`. Its only
            effect: their children get no Workload.
        label_keys_to_copy: labels that a Workload takes over from its job.
        pod_options: which plain pods are considered.
        reason_events: whether jobs get Events that say why their Workloads wait.
    """

    frameworks: tuple[str, ...] = ("batch/job",)
    external_frameworks: tuple[str, ...] = ()
    label_keys_to_copy: tuple[str, ...] = ()
    pod_options: PodOptions = PodOptions()
    reason_events: bool = True

    @property
    def external_kinds(self) -> frozenset[tuple[str, str]]:
        """Group and kind of the jobs that other processes queue."""
        parts = [name.split(".", 2) for name in self.external_frameworks]
        return frozenset((group, kind) for kind, _, group in parts)


@attrs.frozen
class WorkloadRetention:
    """How long finished Workloads and deactivated jobs are kept; absent: until they are deleted."""

    after_finished: Duration | None = key(None, live=True)
    after_deactivated_by_kueue: Duration | None = None


@attrs.frozen
class ObjectRetentionPolicies:
    """How long objects that are no longer needed are kept."""

    workloads: WorkloadRetention = attrs.field(factory=WorkloadRetention)


@attrs.frozen
class QueueVisibilityLimit:
    """How many pending workloads a ClusterQueue's status lists."""

    max_count: int = 10


@attrs.frozen
class QueueVisibility:
    """The list of pending workloads in a ClusterQueue's status."""

    update_interval_seconds: int = 5
    cluster_queues: QueueVisibilityLimit | None = None

    @property
    def lists(self) -> bool:
        """Whether a list is asked for; without a limit it has 10 entries."""
        return self.cluster_queues is None or self.cluster_queues.max_count != 0


@attrs.frozen
class VisibilityConfiguration:
    """Where the visibility API is served, for the API server to aggregate it."""

    bind_address: str = "0.0.0.0"
    bind_port: int = key(8082, rule=PORT)


@attrs.frozen
class MultiKueue:
    """Dispatching to other clusters."""

    gc_interval: Duration = Duration(60)
    origin: str = "multikueue"


@attrs.frozen
class Configuration:
    """The whole file; every field has Kueue's default."""

    namespace: str = ""
    webhook: WebhookConfiguration = WebhookConfiguration()
    leader_election: LeaderElection = LeaderElection()
    metrics: Metrics = attrs.field(factory=Metrics)
    health: Health = Health()
    pprof_bind_address: str = ""
    tls: Tls = attrs.field(factory=Tls)
    controller: ControllerConfiguration = ControllerConfiguration()
    manage_jobs_without_queue_name: bool = False
    managed_jobs_namespace_selector: Mapping[str, Any] | None = key(None, rule=SELECTOR)
    internal_cert_management: InternalCertManagement = InternalCertManagement()
    wait_for_pods_ready: WaitForPodsReady | None = None
    object_retention_policies: ObjectRetentionPolicies = ObjectRetentionPolicies()
    fair_sharing: FairSharingConfiguration | None = None
    preemption: PreemptionConfiguration = attrs.field(factory=PreemptionConfiguration)
    borrowing: BorrowingConfiguration = attrs.field(factory=BorrowingConfiguration)
    admission_fair_sharing: AdmissionFairSharing | None = None
    client_connection: ClientConnection = ClientConnection()
    integrations: Integrations = Integrations()
    resources: ResourcesConfiguration = attrs.field(factory=ResourcesConfiguration)
    queue_visibility: QueueVisibility | None = None
    visibility_server: VisibilityConfiguration | None = None
    multi_kueue: MultiKueue | None = key(None, refused=True)
    quota_release_strategy: str | None = key(None, rule=one_of("OnTermination", "OnTerminal"))
    feature_gates: Mapping[str, bool] = attrs.field(factory=dict)

    @property
    def manager_namespace(self) -> str:
        """The namespace of the manager's own objects."""
        return self.namespace or own_namespace(MANAGER_NAMESPACE)

    @property
    def lease(self) -> ObjectKey:
        """The Lease of the leader."""
        wanted = self.leader_election
        return ObjectKey(wanted.resource_namespace or self.manager_namespace, wanted.resource_name)
