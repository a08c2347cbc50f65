"""The rules of a configuration that concern several keys, or what is installed (spec/api 4).

What one key has to meet is next to the key, in `configuration.py` or the module of its block.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kueuelib.api.names import NAMESPACE_NAME_LABEL, is_dns1123_label, is_qualified_name
from kueuelib.app.addresses import addresses
from kueuelib.app.fair_sharing import check_admission_fair_sharing, check_fair_sharing
from kueuelib.app.feature_gates import check_feature_gates
from kueuelib.app.metrics import check_custom_labels
from kueuelib.app.preemption import check_preemption
from kueuelib.app.resources import check_resources
from kueuelib.app.tls import check_tls
from kueuelib.errors import ConfigError
from kueuelib.jobs.catalog.plugins import POD_FRAMEWORK, common_registry, installed
from kueuelib.machinery.election import ElectionOptions
from kueuelib.machinery.selectors import from_label_selector

if TYPE_CHECKING:
    from kueuelib.app.configuration import Configuration
    from kueuelib.jobs.catalog.registry import Registry

UPSTREAM_FRAMEWORKS = frozenset(
    {
        "kubeflow.org/mxjob",
        "ray.io/rayservice",
        "sparkoperator.k8s.io/sparkapplication",
    }
)
"""Integrations of the Go manager that kueuelib does not bundle; a plug-in may take the name."""

MISSING = (
    "multiKueue.clusterProfile",
    "multiKueue.dispatcherName",
    "multiKueue.externalFrameworks",
    "multiKueue.incrementalDispatcherConfig",
    "multiKueue.workerLostTimeout",
    "resources.deviceClassMappings",
    "tls.curvePreferences",
)
"""Keys of today's Kueue that this build does not know; `check` refuses the keys that it knows."""

_KIND = re.compile(r"[A-Za-z0-9]+\.v[a-z0-9]+\.[a-z0-9.-]+", re.ASCII)


def check_missing(content: Mapping[str, Any], source: str) -> None:
    """Refuses keys of features that this build does not have, before the search for unknown keys.

    Raises:
        ConfigError: the key is named.
    """
    for path in MISSING:
        block, _, key = path.rpartition(".")
        parent = content.get(block) if block else content
        if isinstance(parent, Mapping) and key in parent:
            raise _missing(source, path)


def check(configuration: Configuration, source: str) -> None:
    """Refuses values that cannot work, and features that this build does not have.

    Raises:
        ConfigError: the key is named.
    """
    _check_frameworks(configuration, source)
    if configuration.namespace and not is_dns1123_label(configuration.namespace):
        raise ConfigError(
            source,
            f"namespace: {configuration.namespace!r} is not a namespace name",
            "use a-z, 0-9 and '-'",
        )
    if not configuration.integrations.frameworks:
        raise ConfigError(
            source, "integrations.frameworks is empty", "name a framework, or leave it out"
        )
    selector = configuration.managed_jobs_namespace_selector
    _check_exempts(selector, "managedJobsNamespaceSelector", configuration, source)
    check_preemption(configuration.preemption, source)
    if configuration.fair_sharing:
        check_fair_sharing(configuration.fair_sharing, source)
    if configuration.admission_fair_sharing:
        check_admission_fair_sharing(configuration.admission_fair_sharing, source)
    check_resources(configuration.resources, source)
    check_tls(configuration.tls, source)
    check_custom_labels(configuration.metrics.custom_labels, source)
    if configuration.multi_kueue:
        raise _missing(source, "multiKueue")
    if configuration.queue_visibility and configuration.queue_visibility.lists:
        raise ConfigError(
            source,
            "queueVisibility: the status of ClusterQueues does not list what waits",
            "remove it, and write visibilityServer: {} for the visibility API",
        )
    if configuration.pprof_bind_address not in ("", "0"):
        raise ConfigError(
            source, "pprofBindAddress: only programs in Go have such profiles", "remove it"
        )
    check_feature_gates(configuration, source)
    if configuration.webhook.cert_dir and configuration.internal_cert_management.enable:
        raise ConfigError(
            source,
            "webhook.certDir is not read while the manager makes its own certificates",
            "remove it, or set internalCertManagement.enable to false",
        )
    if configuration.leader_election.resource_lock != "leases":
        raise ConfigError(source, "leaderElection.resourceLock must be leases", "remove the key")
    election_options(configuration, "checked", source)
    addresses(configuration, source)
    for name, count in configuration.controller.group_kind_concurrency.items():
        if count < 1:
            raise ConfigError(
                source,
                f"controller.groupKindConcurrency[{name}] is {count}",
                "give at least one worker",
            )


def election_options(
    configuration: Configuration, identity: str, source: str
) -> ElectionOptions | None:
    """How replicas elect a leader; None if they do not.

    Args:
        configuration: the manager's.
        identity: of a replica.
        source: names the file in errors.

    Raises:
        ConfigError: the durations contradict each other.
    """
    wanted = configuration.leader_election
    if not wanted.leader_elect:
        return None
    try:
        return ElectionOptions(
            lease=configuration.lease,
            identity=identity,
            lease_duration=wanted.lease_duration,
            renew_deadline=wanted.renew_deadline,
            retry_period=wanted.retry_period,
            release_on_cancel=True,  # cancelled last, when nothing acts as the leader
        )
    except ValueError as error:
        raise ConfigError(
            f"{source}: leaderElection", str(error), "correct the durations"
        ) from error


def _check_frameworks(configuration: Configuration, source: str) -> None:
    frameworks = {*configuration.integrations.frameworks}
    registry = common_registry(frameworks) or _checked_registry(configuration, source)
    enabled = registry.enabled(frameworks.intersection(registry.names()))
    if any(each.name == POD_FRAMEWORK for each in enabled):
        _check_pod_options(configuration, source)
    for index, name in enumerate(configuration.integrations.external_frameworks):
        where = f"integrations.externalFrameworks[{index}]"
        if not _KIND.fullmatch(name):
            raise ConfigError(
                source, f"{where}: {name!r} names no kind", "write Kind.version.group"
            )
    for index, name in enumerate(configuration.integrations.label_keys_to_copy):
        if not is_qualified_name(name):
            where = f"integrations.labelKeysToCopy[{index}]"
            raise ConfigError(source, f"{where}: {name!r} is not a label key", "correct it")


def _checked_registry(configuration: Configuration, source: str) -> Registry:
    """All bundled integrations, after a check that the others are installed."""
    from kueuelib.jobs.catalog.builtin import builtin_registry

    registry = builtin_registry()
    known = {*registry.names()}
    for index, name in enumerate(configuration.integrations.frameworks):
        where = f"integrations.frameworks[{index}]"
        if name in known:
            continue
        offered = installed()
        if name in offered:
            continue
        if name in UPSTREAM_FRAMEWORKS:
            raise _missing(source, f"{where}: {name}")
        raise ConfigError(
            source,
            f"{where}: unknown framework {name!r}",
            f"use one of {', '.join(sorted({*known, *offered}))}",
        )
    return registry


def _check_pod_options(configuration: Configuration, source: str) -> None:
    """Refuses to queue pods that the cluster or the manager itself needs to run."""
    options = configuration.integrations.pod_options
    if options.pod_group_shape_policy not in ("Enforce", "Warn"):
        where = f"integrations.podOptions.podGroupShapePolicy: {options.pod_group_shape_policy!r}"
        raise ConfigError(source, f"{where} is unknown", "write Enforce or Warn")
    where = "integrations.podOptions.namespaceSelector"
    _check_exempts(options.namespace_selector, where, configuration, source)


def _check_exempts(
    selector: Mapping[str, Any] | None, where: str, configuration: Configuration, source: str
) -> None:
    """Refuses a selector of namespaces that matches those of the system or the manager."""
    for namespace in ("kube-system", configuration.manager_namespace):
        labels = {NAMESPACE_NAME_LABEL: namespace}
        if selector is not None and from_label_selector(selector).matches(labels):
            raise ConfigError(
                source,
                f"{where} matches the namespace {namespace}",
                f"exclude it, for example with {NAMESPACE_NAME_LABEL} NotIn [...]",
            )


def _missing(source: str, key: str) -> ConfigError:
    return ConfigError(
        source, f"{key} is not available in this version", "remove it (see docs/missing.md)"
    )
