"""Reads a configuration file, and judges what concerns several keys, or what is installed.

What one key has to meet is next to the key, in `configuration.py` or the module of its block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from kueuelib.api.names import (
    COMMON_FRAMEWORKS,
    NAMESPACE_NAME_LABEL,
    POD_FRAMEWORK,
    is_dns1123_label,
    is_qualified_name,
)
from kueuelib.app.configuration import KIND, Configuration, check_tls
from kueuelib.app.configuration_text import (
    V1BETA1,
    V1BETA2,
    as_v1beta1,
    check_version,
    unknown_version,
)
from kueuelib.app.decision_blocks import (
    check_admission_fair_sharing,
    check_fair_sharing,
    check_preemption,
    check_resources,
)
from kueuelib.app.decoding import ConfigurationRefusal, check_keys, decode, refusal_of, refuse_any
from kueuelib.app.feature_gates import check_configured_gates, check_feature_gates
from kueuelib.app.metrics_block import check_custom_labels
from kueuelib.errors import ConfigError
from kueuelib.machinery.options import ElectionOptions
from kueuelib.machinery.selectors import from_label_selector
from kueuelib.runtime.addresses import check_servable, parse_address
from kueuelib.runtime.yaml_files import documents, read_text

# ---- the addresses on which a manager listens, checked before anything starts --------------------

_ALL = ("", "0.0.0.0", "::")


@attrs.frozen
class Address:
    """One address of a manager.

    Attributes:
        key: of the configuration.
        host: what to bind; everything when empty.
        port: the port.
    """

    key: str
    host: str
    port: int

    def meets(self, other: Address) -> bool:
        """Whether both cannot be bound at once."""
        everything = self.host in _ALL or other.host in _ALL
        return self.port == other.port != 0 and (everything or self.host == other.host)


def addresses(configuration: Configuration, source: str) -> Sequence[Address]:
    """Where the manager of a configuration listens.

    Args:
        configuration: the manager's.
        source: what to call it in errors.

    Raises:
        ConfigError: an address is malformed, or two are the same.
    """
    ordered = list(_addresses(configuration, source))
    for number, one in enumerate(ordered):
        for other in ordered[:number]:
            if one.meets(other):
                raise ConfigError(
                    f"{source}: {one.key}",
                    f"port {one.port} is that of {other.key}, too",
                    "choose another port for one of them",
                )
    return ordered


def _addresses(configuration: Configuration, source: str) -> Iterator[Address]:
    for key, text in (
        ("health.healthProbeBindAddress", configuration.health.health_probe_bind_address),
        ("metrics.bindAddress", configuration.metrics.bind_address),
    ):
        address = parse_address(text, f"{source}: {key}")
        if address is not None:
            yield Address(key, *address)
    webhook = configuration.webhook
    if not 0 < webhook.port < 65536:
        raise ConfigError(
            f"{source}: webhook.port", f"{webhook.port} is not a port", "give one from 1 to 65535"
        )
    yield Address("webhook.port", webhook.host, webhook.port)
    visibility = configuration.visibility_server
    if visibility is not None:
        yield Address("visibilityServer.bindPort", visibility.bind_address, visibility.bind_port)


async def check_addresses(configuration: Configuration, source: str) -> None:
    """Refuses addresses that the manager could not serve, before it starts.

    Raises:
        ConfigError: one is malformed, or in use.
    """
    for one in addresses(configuration, source):
        await check_servable(one.host, one.port, subject=f"{source}: {one.key}")


# --------------------------------------------------------------------------------------------------

UPSTREAM_FRAMEWORKS = frozenset({"kubeflow.org/mxjob"})
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


def check_missing(content: Mapping[str, Any]) -> Iterator[ConfigurationRefusal]:
    """Refuses keys of features that this build does not have."""
    return (_missing(path) for path in MISSING if _holds(content, path))


def without_missing(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a file without those keys, so that only unknown keys are left to refuse."""
    left = dict(content)
    for path in MISSING:
        block, _, key = path.rpartition(".")
        if _holds(left, path):
            left[block] = {name: value for name, value in left[block].items() if name != key}
    return left


def _holds(content: Mapping[str, Any], path: str) -> bool:
    block, _, key = path.rpartition(".")
    return isinstance(content.get(block), Mapping) and key in content[block]


def check_features(configuration: Configuration) -> Iterator[ConfigurationRefusal]:
    """Refuses features that this build does not have, each whatever else is configured."""
    yield from _check_frameworks(configuration.integrations.frameworks)
    if configuration.multi_kueue:
        yield _missing("multiKueue")
    if configuration.queue_visibility and configuration.queue_visibility.lists:
        yield ConfigurationRefusal(
            "queueVisibility: the status of ClusterQueues does not list what waits",
            "remove it, and write visibilityServer: {} for the visibility API",
        )
    if configuration.pprof_bind_address not in ("", "0"):
        yield ConfigurationRefusal(
            "pprofBindAddress: only programs in Go have such profiles", "remove it"
        )
    yield from check_feature_gates(configuration.feature_gates)


def check(configuration: Configuration) -> Iterator[ConfigurationRefusal]:
    """Refuses values that cannot work; each key has already met its own rule."""
    if configuration.namespace and not is_dns1123_label(configuration.namespace):
        problem = f"namespace: {configuration.namespace!r} is not a namespace name"
        yield ConfigurationRefusal(problem, "use a-z, 0-9 and '-'")
    yield from _check_integrations(configuration)
    selector = configuration.managed_jobs_namespace_selector
    yield from _check_exempts(selector, "managedJobsNamespaceSelector", configuration)
    yield from check_preemption(configuration.preemption)
    if configuration.fair_sharing:
        yield from check_fair_sharing(configuration.fair_sharing)
    if configuration.admission_fair_sharing:
        yield from check_admission_fair_sharing(configuration.admission_fair_sharing)
    yield from check_resources(configuration.resources)
    yield from check_tls(configuration.tls)
    yield from check_custom_labels(configuration.metrics.custom_labels)
    yield from check_configured_gates(configuration)
    if configuration.webhook.cert_dir and configuration.internal_cert_management.enable:
        yield ConfigurationRefusal(
            "webhook.certDir is not read while the manager makes its own certificates",
            "remove it, or set internalCertManagement.enable to false",
        )
    if configuration.leader_election.resource_lock != "leases":
        yield ConfigurationRefusal("leaderElection.resourceLock must be leases", "remove the key")
    yield from refusal_of(lambda source: election_options(configuration, "checked", source))
    yield from refusal_of(lambda source: addresses(configuration, source))
    for name, count in configuration.controller.group_kind_concurrency.items():
        if count < 1:
            problem = f"controller.groupKindConcurrency[{name}] is {count}"
            yield ConfigurationRefusal(problem, "give at least one worker")


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


def _check_frameworks(names: Sequence[str]) -> Iterator[ConfigurationRefusal]:
    """Refuses integrations that are neither bundled nor installed."""
    if COMMON_FRAMEWORKS.issuperset(names):
        return
    from kueuelib.jobs.builtin import builtin_registry
    from kueuelib.jobs.plugins import installed

    known = {*builtin_registry().names()}
    for index, name in enumerate(names):
        where = f"integrations.frameworks[{index}]"
        if name in known or name in (offered := installed()):
            continue
        if name in UPSTREAM_FRAMEWORKS:
            yield _missing(f"{where}: {name}")
        else:
            fix = f"use one of {', '.join(sorted({*known, *offered}))}"
            yield ConfigurationRefusal(f"{where}: unknown framework {name!r}", fix)


def _check_integrations(configuration: Configuration) -> Iterator[ConfigurationRefusal]:
    """Refuses lists with a mistake, and options of pods that cannot work."""
    integrations = configuration.integrations
    if not integrations.frameworks:
        yield ConfigurationRefusal(
            "integrations.frameworks is empty", "name a framework, or leave it out"
        )
    for index, name in enumerate(integrations.external_frameworks):
        if not _KIND.fullmatch(name):
            where = f"integrations.externalFrameworks[{index}]"
            yield ConfigurationRefusal(
                f"{where}: {name!r} names no kind", "write Kind.version.group"
            )
    for index, name in enumerate(integrations.label_keys_to_copy):
        if not is_qualified_name(name):
            where = f"integrations.labelKeysToCopy[{index}]"
            yield ConfigurationRefusal(f"{where}: {name!r} is not a label key", "correct it")
    if POD_FRAMEWORK in _enabled({*integrations.frameworks}):
        yield from _check_pod_options(configuration)


def _enabled(names: set[str]) -> set[str]:
    """The names of bundled integrations with those that they need."""
    if names <= COMMON_FRAMEWORKS:
        return names
    from kueuelib.jobs.builtin import builtin_registry

    registry = builtin_registry()
    return {each.name for each in registry.enabled(names.intersection(registry.names()))}


def _check_pod_options(configuration: Configuration) -> Iterator[ConfigurationRefusal]:
    """Refuses to queue pods that the cluster or the manager itself needs to run."""
    options = configuration.integrations.pod_options
    if options.pod_group_shape_policy not in ("Enforce", "Warn"):
        where = f"integrations.podOptions.podGroupShapePolicy: {options.pod_group_shape_policy!r}"
        yield ConfigurationRefusal(f"{where} is unknown", "write Enforce or Warn")
    where = "integrations.podOptions.namespaceSelector"
    yield from _check_exempts(options.namespace_selector, where, configuration)


def _check_exempts(
    selector: Mapping[str, Any] | None, where: str, configuration: Configuration
) -> Iterator[ConfigurationRefusal]:
    """Refuses a selector of namespaces that matches those of the system or the manager."""
    for namespace in ("kube-system", configuration.manager_namespace):
        labels = {NAMESPACE_NAME_LABEL: namespace}
        if selector is not None and from_label_selector(selector).matches(labels):
            yield ConfigurationRefusal(
                f"{where} matches the namespace {namespace}",
                f"exclude it, for example with {NAMESPACE_NAME_LABEL} NotIn [...]",
            )


def _missing(key: str) -> ConfigurationRefusal:
    return ConfigurationRefusal(
        f"{key} is not available in this version", "remove it (see docs/missing.md)"
    )


# ---- reads a configuration file ------------------------------------------------------------------

API_VERSIONS = (V1BETA1, V1BETA2)

UNREADABLE: Final = "give the path of a readable file"

"""What to do about a file that cannot be read."""


def load_configuration(path: Path | None) -> Configuration:
    """Reads a configuration file; all defaults when there is none.

    Raises:
        ConfigError: missing or malformed file, unknown key, wrong type, or a feature that this
            build does not have.
    """
    if path is None:
        return Configuration()
    return read_configuration(read_text(path, UNREADABLE), str(path))


def read_configuration(text: str, source: str) -> Configuration:
    """A configuration from the text of a file; `source` names it in errors.

    Raises:
        ConfigError: as `load_configuration`.
    """
    contents = documents(text, source)
    return parse_configuration(contents[0] if len(contents) == 1 else None, source)


def parse_configuration(content: Any, source: str) -> Configuration:
    """A configuration from decoded YAML or JSON; `source` names it in errors.

    Raises:
        ConfigError: as `load_configuration`.
    """
    if not isinstance(content, dict):
        raise ConfigError(source, "is not a mapping", f"write a {KIND} of {V1BETA2}")
    content = dict(content)
    version = content.pop("apiVersion", None)
    if version not in API_VERSIONS:
        raise unknown_version(version, source)
    if content.pop("kind", None) != KIND:
        raise ConfigError(source, f"kind is not {KIND}", f"set kind: {KIND}")
    known = without_missing(content)
    lacking, malformed = [*check_missing(content)], [*check_version(known, version)]
    configuration = decode(Configuration, as_v1beta1(known, version), "", malformed)
    lacking += check_features(configuration)
    # a rule for several keys can only judge keys that are right on their own
    wrong = malformed or [*check_keys(configuration)] or [*check(configuration)]
    refuse_any(source, [*lacking, *wrong])
    return configuration
