"""Makes the controllers and webhooks of job kinds, and hands them to a manager."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import attrs

from kueuelib.api.kinds import (
    JOBS,
    MANAGER_NAMESPACE,
    MUTATING_WEBHOOKS,
    PODS,
    V1BETA2,
    VALIDATING_WEBHOOKS,
)
from kueuelib.api.meta import ObjectKey, Resource
from kueuelib.api.names import known_version
from kueuelib.controllers.manifests import manager_user
from kueuelib.controllers.webhooks import QueueingEntry, queueing_entries, sparing
from kueuelib.errors import ConfigError
from kueuelib.jobs.catalog.plugins import as_integration, registry_for
from kueuelib.jobs.catalog.registry import Registry
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.webhooks.entries import EntryKeeper
from kueuelib.jobs.webhooks.manifests import webhook_entries
from kueuelib.jobs.wiring import Jobs, wire
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import Controller
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.manager import Group, Manager
from kueuelib.runtime.namespace import own_namespace
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.runtime.webhook.certs import service_names
from kueuelib.runtime.webhook.serving import Webhooks, add_webhook_server
from kueuelib.runtime.webhook.trust import Trusting

Kind = str | Integration | type[GenericJob[Any]]
"""The name of a kind that comes with kueuelib or an installed package, or a kind of one's own."""
NAME_LIMIT = 57
"""The maximum length of the name; suffixes are added to it."""
BUNDLED_KINDS = frozenset({JOBS.group_kind, PODS.group_kind})
"""Kinds that another manager is expected to queue, so that their children get no Workload."""


def setup(
    manager: Manager,
    cache: Cache,
    client: Client,
    recorder: EventRecorder,
    kinds: Sequence[Kind],
    *,
    webhooks: Webhooks | None = None,
    settings: JobSettings | None = None,
    version: str = V1BETA2,
    telemetry: Telemetry | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Adds job kinds to a manager: their controllers run on the leader, their webhooks everywhere.

    Args:
        manager: runs the parts. Add the cache and the recorder to it yourself.
        cache: the cache whose informers all parts share.
        client: sends the writes.
        recorder: records events about jobs.
        kinds: the kinds to queue, each a subclass of `GenericJob`, an `Integration` or a name such
            as `batch/job`.
        webhooks: the result of `job_webhooks` or of `kueuelib.controllers.queue_webhooks`. With
            None, jobs that are not created suspended run until the controllers suspend them.
        settings: the settings for jobs; `kinds` replaces its `frameworks`.
        version: the version of the queueing API to use; the API server must serve it.
        telemetry: where the controllers report.
        clock: the time.

    Raises:
        ConfigError: a kind is not known, cannot be queued, or exists twice; the manager has job
            kinds already; there is no such version.
    """
    version = known_version(version)
    registry, names = registry_with(kinds)
    enabled = registry.enabled(names)
    queued = frozenset(each.resource.group_kind for each in enabled)
    settings = settings or JobSettings()
    settings = attrs.evolve(
        settings,
        frameworks=names,
        external_kinds=settings.external_kinds | (BUNDLED_KINDS - queued),
    )
    manager.once("jobs.setup", "call it once, with all kinds")
    leading = client.guarded(manager.require_leadership)  # a paused leader may wake up too late
    wired = wire(
        leading,
        cache,
        recorder,
        settings,
        version=version,
        registry=registry,
        clock=clock,
        telemetry=telemetry,
    )
    add_jobs(manager, wired, recorder)
    if webhooks is not None:
        add_webhooks(manager, client, webhooks, wired, enabled, settings)


def job_webhooks(
    manager: Manager,
    client: Client,
    kinds: Sequence[Kind],
    address: str = ":9443",
    *,
    namespace: str = "",
    telemetry: Telemetry | None = None,
) -> Webhooks:
    """Adds a webhook server for kinds that are queued beside another manager.

    Its webhook configurations, Service and Secret have the names that `kueuelib manifests` gives
    them for the first of the kinds.

    Args:
        manager: runs the server.
        client: reads and writes the certificate and the webhook configurations.
        kinds: the same kinds as for `setup`, in the same order.
        address: the `host:port` to listen on.
        namespace: the namespace of Secret and Service; if empty, that of the pod, or `kueue-system`
            outside a cluster.
        telemetry: where the server reports.

    Raises:
        ConfigError: there is no kind, one cannot be queued, or the address is malformed.
    """
    registry, names = registry_with(kinds)
    (first, *_) = (each for each in registry.integrations if each.name == names[0])
    name, space = process_name(first), namespace or own_namespace(MANAGER_NAMESPACE)
    server = add_webhook_server(
        manager,
        client,
        address,
        service_names(name, space),
        ObjectKey(space, certificate_name(first)),
        [Trusting(each, name) for each in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)],
        telemetry=telemetry,
    )
    return Webhooks(server, name, name, manager_user(space, name))


def _resources(integration: Integration) -> Iterator[Resource]:
    """The kind, and those of the classes that it derives from."""
    named = [vars(each).get("resource") for each in integration.job_type.__mro__]
    return (each for each in named if isinstance(each, Resource))


def registry_with(kinds: Sequence[Kind]) -> tuple[Registry, tuple[str, ...]]:
    """A registry with all of these kinds, and their names in the same order.

    A class of one's own for a kind that comes with kueuelib takes the place of the bundled one.

    Raises:
        ConfigError: there is none, one is not known, cannot be queued, or exists twice.
    """
    if not kinds:
        raise ConfigError("kinds", "no job kind is given", "pass at least one")
    named = [each for each in kinds if isinstance(each, str)]
    registry = registry_for(named)
    bundled = {each.job_type: each.name for each in registry.integrations}
    names: list[str] = []
    for kind in kinds:
        if isinstance(kind, str):
            names.append(kind)
        elif isinstance(kind, type) and kind in bundled:
            names.append(bundled[kind])
        else:
            integration = as_integration(kind, "kinds")
            if integration is None:
                shown = getattr(kind, "__name__", repr(kind))
                fix = "pass a GenericJob with all its methods, an Integration, or a name"
                raise ConfigError("kinds", f"{shown} is not a job kind", fix)
            if any(each.group_kind == PODS.group_kind for each in _resources(integration)):
                problem = "only the bundled kind can queue Pods"
                raise ConfigError("kinds", problem, 'pass "pod"')
            registry = registry.without(integration.resource, named + names)
            registry = registry.register(integration)
            names.append(integration.name)
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ConfigError("kinds", f"{twice} exists twice", "list each kind once")
    return registry, tuple(names)


def add_jobs(manager: Manager, wired: Jobs, recorder: EventRecorder) -> None:
    """Adds what `wire` made to a manager; reconciliations precede events."""
    for follower in wired.followers:
        manager.add(Group.OTHERS, follower, f"{follower.name} kind")
    for controller in wired.controllers:
        manager.add(Group.ELECTED, controller, f"{controller.name} controller")
        if isinstance(controller, Controller):
            recorder.give_way(controller.queue.core.is_busy)
    for informer in wired.informers:
        manager.add(Group.CACHES, informer, informer.resource.plural)


def add_webhooks(
    manager: Manager,
    client: Client,
    webhooks: Webhooks,
    wired: Jobs,
    integrations: Sequence[Integration],
    settings: JobSettings,
) -> None:
    """Serves the webhooks of kinds, and keeps their entries in the configurations.

    Args:
        manager: runs the keeper.
        client: reads and writes the configurations.
        webhooks: the server and the configurations.
        wired: the rules.
        integrations: the enabled kinds.
        settings: which objects are sent.
    """
    for webhook in wired.webhooks:
        webhook.register(webhooks.server)

    def entries(default_namespaces: Collection[str]) -> list[QueueingEntry]:
        served = webhooks.server.paths
        of_queueing = [entry for entry in queueing_entries() if entry.path in served]
        of_jobs = webhook_entries(integrations, settings, default_namespaces)
        return sparing([*of_queueing, *of_jobs], webhooks.user)

    keeper = EntryKeeper(
        client,
        webhooks.mutating,
        webhooks.validating,
        entries,
        lambda: webhooks.server.paths,
        wired.default_queues,
    )
    manager.add(Group.WEBHOOKS, keeper, "webhook entries")


def process_name(integration: Integration) -> str:
    """The name of all objects of a process in the cluster; a DNS label."""
    resource = integration.resource
    parts = ["kueuelib", resource.plural, *resource.group.split(".")]
    return "-".join(filter(None, parts))[:NAME_LIMIT].rstrip("-")


def certificate_name(integration: Integration) -> str:
    """The name of the Secret with the certificate of its webhook server."""
    return f"{process_name(integration)}-cert"
