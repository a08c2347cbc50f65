"""Every key of the configuration reaches the part of the manager that it is about."""

from __future__ import annotations

import copy
import ssl
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final, cast
from unittest.mock import AsyncMock, Mock

import attrs
import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.app import servers, wiring
from kueuelib.app.configuration import Configuration
from kueuelib.app.configuration_reading import election_options, parse_configuration
from kueuelib.app.part_settings import job_settings
from kueuelib.app.program_context import ProgramContext
from kueuelib.controllers.assembly import ControllerSettings
from kueuelib.controllers.visibility import server
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.runtime.manager import Manager, ProgramRun
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.scheduler.settings import Settings
from kueuelib.workload.life import LifeSettings, PodsReadyPolicy

V1BETA1: Final = "v1beta1"
LABELS: Final = {"matchLabels": {"a": "b"}}
ONE: Final = 10**9
"""Nano units."""
INITIAL: Final = "LessThanInitialShare"
DONGLE: Final = "example.com/dongle"
MADE: Final = (
    *((wiring, name) for name in ("Cache", "setup_controllers", "engine_for", "wire")),
    *((wiring, name) for name in ("add_jobs", "add_job_webhooks", "add_checks", "serve_queueing")),
    *((servers, name) for name in ("ProbeServer", "MetricsServer", "WebhookServer")),
    *((servers, name) for name in ("CertificateKeeper", "CertificateFiles")),
    (server, "VisibilityServer"),
)
"""The parts whose arguments are recorded."""


@attrs.frozen
class Told:
    """What the parts of a manager are told.

    Attributes:
        configuration: the user's.
        calls: positional and named arguments by part.
    """

    configuration: Configuration
    calls: Mapping[str, tuple[tuple[Any, ...], Mapping[str, Any]]]

    def args(self, part: str) -> tuple[Any, ...]:
        return self.calls[part][0]

    def named(self, part: str, name: str) -> Any:
        return self.calls[part][1][name]

    @property
    def engine(self) -> Settings:
        return cast("Settings", self.args("engine_for")[1])

    @property
    def jobs(self) -> JobSettings:
        return cast("JobSettings", self.args("wire")[3])

    @property
    def controllers(self) -> ControllerSettings:
        return cast("ControllerSettings", self.named("setup_controllers", "settings"))

    @property
    def life(self) -> LifeSettings:
        return self.controllers.life

    @property
    def ready(self) -> PodsReadyPolicy | None:
        return self.life.pods_ready

    @property
    def tls(self) -> ssl.SSLContext:
        return cast("ssl.SSLContext", self.args("WebhookServer")[2])

    @property
    def election(self) -> Any:
        return election_options(self.configuration, "me", "test")


def parsed(content: Mapping[str, Any], version: str) -> Configuration:
    head = {"apiVersion": f"config.kueue.x-k8s.io/{version}", "kind": "Configuration"}
    return parse_configuration({**head, **content}, "test")


async def told(content: Mapping[str, Any], version: str) -> Told:
    """What the parts of a manager with this configuration are told."""
    configuration = parsed(content, version)
    calls: dict[str, tuple[tuple[Any, ...], Mapping[str, Any]]] = {}

    def recorder(name: str) -> Callable[..., Any]:
        def made(*args: Any, **named: Any) -> Any:
            calls[name] = (args, named)
            return Mock()

        return made

    manager, client = Mock(Manager, identity="me"), Mock()
    with pytest.MonkeyPatch.context() as patch:
        for module, name in MADE:
            patch.setattr(module, name, recorder(name))
        connected = AsyncMock(side_effect=ConnectionAbortedError)
        patch.setattr(wiring, "connect", connected)
        with pytest.raises(ConnectionAbortedError):
            await wiring.lives_of(configuration, "test", None)(Mock(ProgramRun), 0.0)
        calls["connect"] = ((), connected.call_args.kwargs)
        program = ProgramContext(manager, configuration, client, Telemetry(), "v1beta2", "test")
        await wiring.assemble_manager(program)
    return Told(configuration, calls)


def labels(told: Told) -> list[tuple[Any, ...]]:
    return [attrs.astuple(each) for each in told.controllers.metrics.custom_labels]


Case = tuple[Any, Callable[[Told], Any], Any]
"""The value of a key, what its part is told, and what it has to be told then."""

LABEL: Final = {"name": "team", "sourceLabelKey": "example.com/team"}
METRIC: Final = ("custom_team", "ClusterQueue", "example.com/team", False, ())
RULE: Final = {"input": DONGLE, "strategy": "Replace", "outputs": {"example.com/unit": "2"}}
BESIDE: Final[dict[str, Any]] = {
    "fairSharing": {"enable": True},
    "fairSharing v1beta2": {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]},
    "waitForPodsReady": {"enable": True, "timeout": "5m"},
    "waitForPodsReady v1beta2": {"timeout": "5m"},
    "metrics.customLabels[]": LABEL,
    "resources.transformations[]": RULE,
    "leaderElection.resourceName": {},
}
"""What a block has besides the key, also where the key has its default."""
CASES: Final[dict[str, Case]] = {
    "namespace": (
        "queues",
        lambda told: told.jobs.namespace_selector,
        {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": ["kube-system", "queues"],
                }
            ]
        },
    ),
    "webhook.port": (9, lambda told: told.args("WebhookServer")[1], 9),
    "webhook.host": ("127.0.0.9", lambda told: told.args("WebhookServer")[0], "127.0.0.9"),
    "leaderElection.leaderElect": (False, lambda told: told.election, None),
    "leaderElection.resourceName": ("l", lambda told: told.election.lease.name, "l"),
    "leaderElection.resourceNamespace": ("n", lambda told: told.election.lease.namespace, "n"),
    "leaderElection.leaseDuration": ("40s", lambda told: told.election.lease_duration, 40),
    "leaderElection.renewDeadline": ("12s", lambda told: told.election.renew_deadline, 12),
    "leaderElection.retryPeriod": ("3s", lambda told: told.election.retry_period, 3),
    "metrics.bindAddress": (":9", lambda told: told.args("MetricsServer")[1], 9),
    "metrics.enableClusterQueueResources": (
        True,
        lambda told: told.controllers.metrics.resources,
        True,
    ),
    "metrics.customLabels[].name": ("b", lambda told: labels(told)[0], ("custom_b", *METRIC[1:])),
    "metrics.customLabels[].sourceLabelKey": (
        "example.com/b",
        lambda told: labels(told)[0][2],
        "example.com/b",
    ),
    "metrics.customLabels[].sourceAnnotationKey": (
        "example.com/note",
        lambda told: labels(told)[0][2:4],
        ("example.com/note", True),
    ),
    "metrics.customLabels[].sourceKind": (
        "LocalQueue",
        lambda told: labels(told)[0][1],
        "LocalQueue",
    ),
    "metrics.customLabels[].trackedValues": (["a"], lambda told: labels(told)[0][4], ("a",)),
    "metrics.localQueueMetrics.enable": (
        False,
        lambda told: told.controllers.metrics.local_queues.matches({"a": "b"}),
        False,
    ),
    "metrics.localQueueMetrics.localQueueSelector": (
        LABELS,
        lambda told: told.controllers.metrics.local_queues.matches({}),
        False,
    ),
    "health.healthProbeBindAddress": (":9", lambda told: told.args("ProbeServer")[1], 9),
    "health.readinessEndpointName": (
        "/r",
        lambda told: told.named("ProbeServer", "ready_path"),
        "/r",
    ),
    "health.livenessEndpointName": (
        "/l",
        lambda told: told.named("ProbeServer", "live_path"),
        "/l",
    ),
    "tls.minVersion": (
        "VersionTLS13",
        lambda told: told.tls.minimum_version,
        ssl.TLSVersion.TLSv1_3,
    ),
    "tls.cipherSuites": (
        ["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"],
        lambda told: {
            one["name"] for one in told.tls.get_ciphers() if one["protocol"] == "TLSv1.2"
        },
        {"ECDHE-RSA-AES256-GCM-SHA384"},
    ),
    "controller.groupKindConcurrency": (
        {"Pod": 3},
        lambda told: (told.controllers.workers, told.jobs.workers),
        ({"Pod": 3}, {"Pod": 3}),
    ),
    "controller.cacheSyncTimeout": (
        7_000_000_000,
        lambda told: told.named("Cache", "sync_timeout"),
        7.0,
    ),
    "manageJobsWithoutQueueName": (
        True,
        lambda told: told.jobs.manage_jobs_without_queue_name,
        True,
    ),
    "managedJobsNamespaceSelector": (LABELS, lambda told: told.jobs.namespace_selector, LABELS),
    "internalCertManagement.enable": (
        False,
        lambda told: sorted(told.calls.keys() & {"CertificateKeeper", "CertificateFiles"}),
        ["CertificateFiles"],
    ),
    "internalCertManagement.webhookServiceName": (
        "hook",
        lambda told: "hook.kueue-system.svc" in told.args("CertificateKeeper")[3].hosts,
        True,
    ),
    "internalCertManagement.webhookSecretName": (
        "secret",
        lambda told: told.args("CertificateKeeper")[2],
        ObjectKey("kueue-system", "secret"),
    ),
    "waitForPodsReady.enable": (False, lambda told: told.ready, None),
    "waitForPodsReady.timeout": ("7s", lambda told: told.ready.timeout, 7),
    "waitForPodsReady.recoveryTimeout": ("7s", lambda told: told.ready.recovery_timeout, 7),
    "waitForPodsReady.blockAdmission": (
        False,
        lambda told: (told.ready is not None, told.engine.block_admission),
        (True, False),
    ),
    "waitForPodsReady.requeuingStrategy.timestamp": (
        "Creation",
        lambda told: told.engine.queue_timestamp,
        "Creation",
    ),
    "waitForPodsReady.requeuingStrategy.backoffLimitCount": (2, lambda told: told.ready.limit, 2),
    "waitForPodsReady.requeuingStrategy.backoffBaseSeconds": (
        7,
        lambda told: told.ready.backoff_base,
        7,
    ),
    "waitForPodsReady.requeuingStrategy.backoffMaxSeconds": (
        7,
        lambda told: told.ready.backoff_max,
        7,
    ),
    "objectRetentionPolicies.workloads.afterFinished": (
        "7s",
        lambda told: told.life.delete_finished_after,
        7,
    ),
    "objectRetentionPolicies.workloads.afterDeactivatedByKueue": (
        "7s",
        lambda told: told.jobs.delete_deactivated_after,
        7,
    ),
    "fairSharing.enable": (False, lambda told: told.engine.fair_sharing, None),
    "fairSharing.preemptionStrategies": (
        [INITIAL],
        lambda told: told.engine.fair_sharing.strategies,
        (INITIAL,),
    ),
    "preemption.parallelPreemptors": (
        False,
        lambda told: told.engine.parallel_preemptors,
        False,
    ),
    "preemption.exceedQuotaUntilVictimsLeave": (
        True,
        lambda told: told.engine.exceeds_quota,
        True,
    ),
    "borrowing.protectNominalQuota": (True, lambda told: told.engine.protects_nominal, True),
    "admissionFairSharing.usageHalfLifeTime": (
        "1h",
        lambda told: told.engine.past_usage.half_life,
        3600,
    ),
    "admissionFairSharing.usageSamplingInterval": (
        "7s",
        lambda told: told.engine.past_usage.interval,
        7,
    ),
    "admissionFairSharing.resourceWeights": (
        {"cpu": 2},
        lambda told: told.engine.past_usage.weights,
        {"cpu": Fraction(2)},
    ),
    "clientConnection.qps": (50, lambda told: told.named("connect", "qps"), 50),
    "clientConnection.burst": (60, lambda told: told.named("connect", "burst"), 60),
    "integrations.frameworks": (["pod"], lambda told: told.jobs.frameworks, ("pod",)),
    "integrations.externalFrameworks": (
        ["Foo.v1.example.com"],
        lambda told: told.jobs.external_kinds,
        {("example.com", "Foo")},
    ),
    "integrations.labelKeysToCopy": (["a"], lambda told: told.jobs.taken_over.labels, ("a",)),
    "integrations.podOptions.namespaceSelector": (
        LABELS,
        lambda told: told.jobs.pods.namespace_selector,
        LABELS,
    ),
    "integrations.podOptions.podSelector": (
        LABELS,
        lambda told: told.jobs.pods.pod_selector,
        LABELS,
    ),
    "integrations.podOptions.podGroupShapePolicy": (
        "Warn",
        lambda told: told.jobs.pods.shape_policy,
        "Warn",
    ),
    "integrations.reasonEvents": (False, lambda told: told.controllers.reason_events, False),
    "resources.quotaCheckStrategy": (
        "IgnoreUndeclared",
        lambda told: told.engine.resources.ignores_undeclared,
        True,
    ),
    "resources.excludeResourcePrefixes": (
        [DONGLE],
        lambda told: told.engine.resources.counted({DONGLE: ONE}),
        {},
    ),
    "resources.transformations[].input": (
        "example.com/other",
        lambda told: told.engine.resources.counted({DONGLE: ONE}),
        {DONGLE: 1},
    ),
    "resources.transformations[].strategy": (
        "Retain",
        lambda told: DONGLE in told.engine.resources.counted({DONGLE: ONE}),
        True,
    ),
    "resources.transformations[].multiplyBy": (
        "cpu",
        lambda told: told.engine.resources.counted({DONGLE: ONE, "cpu": 3 * ONE})[
            "example.com/unit"
        ],
        6,
    ),
    "resources.transformations[].outputs": (
        {"example.com/unit": "5"},
        lambda told: told.engine.resources.counted({DONGLE: ONE})["example.com/unit"],
        5,
    ),
    "visibilityServer.bindAddress": (
        "127.0.0.9",
        lambda told: told.args("VisibilityServer")[0],
        "127.0.0.9",
    ),
    "visibilityServer.bindPort": (9, lambda told: told.args("VisibilityServer")[1], 9),
    "quotaReleaseStrategy": (
        "OnTerminal",
        lambda told: told.jobs.release_of(group=False).value,
        "OnTerminal",
    ),
}
"""The honoured keys, except the policy of preemption, which is a package of its own."""


def content_of(path: str, version: str, value: Any, *, given: bool) -> dict[str, Any]:
    """A configuration with a key, or just with what is beside it."""
    *parents, last = path.split(".")
    content: dict[str, Any] = {}
    block, here = content, ""
    for name in parents:
        here = f"{here}.{name}" if here else name
        beside = copy.deepcopy(BESIDE.get(f"{here} {version}", BESIDE.get(here, {})))
        if name.endswith("[]"):
            block[name.removesuffix("[]")] = [beside]
        else:
            block[name] = beside
        block = beside
    if given:
        if last == "sourceAnnotationKey":
            del block["sourceLabelKey"]
        block[last] = value
    return content


@pytest.mark.parametrize("path", CASES)
async def test_a_key_reaches_its_part(path: str) -> None:
    value, read, wanted = CASES[path]
    for version in ("v1beta1", "v1beta2"):
        if (version == V1BETA1 and path in NEW) or (version != V1BETA1 and path in OLD):
            continue
        before, after = [
            await told(content_of(path, version, value, given=given), version)
            for given in (False, True)
        ]
        assert read(after) == wanted
        if (path, version) not in ALREADY:
            assert read(before) != wanted


NEW: Final = {
    "metrics.customLabels[].sourceKind",
    "metrics.customLabels[].trackedValues",
    "resources.quotaCheckStrategy",
    "visibilityServer.bindAddress",
    "visibilityServer.bindPort",
}
OLD: Final = {
    "fairSharing.enable",
    "waitForPodsReady.enable",
    "integrations.podOptions.namespaceSelector",
    "integrations.podOptions.podSelector",
}
"""The keys of one version."""
ALREADY: Final = {("waitForPodsReady.blockAdmission", "v1beta2")}
"""Values that are the default in a version."""

GATES: Final[dict[str, tuple[bool, Callable[[JobSettings, Settings], Any], Any]]] = {
    "AssignQueueLabelsForPods": (False, lambda jobs, _: jobs.origin.queues, False),
    "FastQuotaReleaseInPodIntegration": (
        True,
        lambda jobs, _: jobs.release_of(group=True).value,
        "OnTermination",
    ),
    "FlavorFungibility": (False, lambda _, engine: engine.flavor_fungibility, False),
    "KueueDRARejectWorkloadsWhenDRADisabled": (
        False,
        lambda jobs, engine: (jobs.admits_claims, engine.resources.admits_claims),
        (True, True),
    ),
    "PartialAdmission": (False, lambda _, engine: engine.partial_admission, False),
    "PrioritySortingWithinCohort": (False, lambda _, engine: engine.priority_sorting, False),
    "TASFailedNodeReplacement": (False, lambda _, engine: engine.node_failures.replaces, False),
    "TASFailedNodeReplacementFailFast": (
        False,
        lambda _, engine: engine.node_failures.evicts,
        False,
    ),
    "TASReplaceNodeDueToNotReadyOverFixedTime": (
        True,
        lambda _, engine: engine.node_failures.not_ready_too_long,
        True,
    ),
    "TASReplaceNodeOnNodeTaints": (False, lambda _, engine: engine.node_failures.taints, False),
    "TASReplaceNodeOnPodTermination": (
        False,
        lambda _, engine: engine.node_failures.waits_for_pods,
        False,
    ),
    "TASProfileMixed": (False, lambda _, engine: engine.mixed_profile, False),
    "TopologyAwareScheduling": (
        False,
        lambda jobs, engine: (jobs.places_pods, jobs.origin.workload, engine.places_pods),
        (False, False, False),
    ),
    "WorkloadPriorityClassDefaulting": (
        False,
        lambda jobs, _: jobs.defaults_priority_class,
        False,
    ),
}
"""The honoured gates: a value, what the parts are told, and what they have to be told then."""


@pytest.mark.parametrize("gate", GATES)
def test_a_gate_reaches_its_part(gate: str) -> None:
    value, read, wanted = GATES[gate]

    def seen(content: Mapping[str, Any]) -> Any:
        configuration = parsed(content, "v1beta2")
        return read(job_settings(configuration), wiring.engine_settings(configuration))

    assert seen({"featureGates": {gate: value}}) == wanted
    assert seen({}) != wanted
