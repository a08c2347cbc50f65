"""Wires the enabled integrations: one controller each, and the rules of their webhooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

import attrs

from kueuelib.api.kinds import (
    KUEUE,
    NAMESPACES,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    V1BETA2,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from kueuelib.api.meta import Obj, ObjectKey, Resource, key_of
from kueuelib.errors import FieldError
from kueuelib.jobs.builtin import builtin_registry
from kueuelib.jobs.executor import Executor, Recorder
from kueuelib.jobs.foreign import ForeignOwners
from kueuelib.jobs.manifests import webhook_path
from kueuelib.jobs.metrics import JobMetrics
from kueuelib.jobs.owners import Owners
from kueuelib.jobs.parts import Parts
from kueuelib.jobs.reconciler import JobReconciler
from kueuelib.jobs.registry import Integration, Registry, Webhook
from kueuelib.jobs.settings import JobSettings
from kueuelib.jobs.stores import (
    CONTROLLER_UID,
    OWNER_NAME,
    OWNER_UID,
    PREBUILT_NAME,
    JobStores,
    controller_uid,
    owner_names,
    owner_uids,
    prebuilt_name,
)
from kueuelib.jobs.webhook import default_job, validate_job
from kueuelib.machinery.store import Delta
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import Controller
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.runtime.webhook.admission import AdmissionRequest, mutating
from kueuelib.runtime.webhook.server import WebhookServer


@attrs.frozen
class JobWebhook:
    """The webhooks of one kind, as functions on raw objects.

    Attributes:
        resource: the kind.
        mutate_path: where the webhook server answers on creation.
        validate_path: where it answers on creation and update.
        prepare: reads what the two functions need to know about the owners of an object, given it
            and its namespace.
        default: the object as it is stored, given it and its namespace; the same one when
            nothing changes.
        validate: the broken rules, given the new object and the one it replaces, if any.
    """

    resource: Resource
    mutate_path: str
    validate_path: str
    prepare: Callable[[Obj, str], Awaitable[None]]
    default: Callable[[Obj, str], Obj]
    validate: Callable[[Obj, Obj | None], Sequence[FieldError]]

    def register(self, server: WebhookServer) -> None:
        """Serve both paths."""

        def mutate(obj: Obj, request: AdmissionRequest) -> Obj:
            return self.default(obj, request.namespace)

        def judge(
            new: Obj | None, old: Obj | None, _request: AdmissionRequest
        ) -> Sequence[FieldError]:
            return () if new is None else self.validate(new, old)

        answer = mutating(mutate, with_request=True)

        async def handle(request: AdmissionRequest) -> Obj:
            if request.object is not None:
                await self.prepare(request.object, request.namespace)
            return answer(request)

        server.admit(self.mutate_path, handle)
        server.validate(self.validate_path, judge)


@attrs.frozen
class Jobs:
    """What the application has to run.

    Attributes:
        integrations: the enabled kinds that the API server serves.
        controllers: one per kind.
        webhooks: one per enabled kind, also when the API server does not serve it yet.
    """

    integrations: tuple[Integration, ...]
    controllers: tuple[Controller, ...]
    webhooks: tuple[Webhook, ...]


async def setup(
    client: Client,
    cache: Cache,
    recorder: Recorder,
    settings: JobSettings,
    *,
    version: str = V1BETA2,
    registry: Registry | None = None,
    clock: Clock = SYSTEM_CLOCK,
    telemetry: Telemetry | None = None,
) -> Jobs:
    """Build controllers and webhooks; nothing runs yet.

    Args:
        client: writes, and is asked which kinds are served.
        cache: where informers come from.
        recorder: reports events.
        settings: the configuration.
        version: of `kueue.x-k8s.io` that the API server serves and the cache holds.
        registry: the known integrations, by default those that come with kueuelib.
        clock: the time.
        telemetry: where controllers report.

    Raises:
        ConfigError: the configuration names an integration that is not known.
    """
    known = registry or builtin_registry()
    enabled = known.enabled(settings.frameworks)
    served = [found for found in enabled if await _is_served(client, found)]
    informers = {
        found.name: cache.informer(
            found.resource, label_selector=found.watched, transform=found.transform
        )
        for found in served
    }
    for informer in informers.values():
        informer.add_index(CONTROLLER_UID, controller_uid)
        informer.add_index(PREBUILT_NAME, prebuilt_name)

    def queueing(resource: Resource) -> Informer:
        return cache.informer(resource.at(version) if resource.group == KUEUE else resource)

    workloads = queueing(WORKLOADS)
    workloads.add_index(OWNER_UID, owner_uids)
    workloads.add_index(OWNER_NAME, owner_names)
    others = [
        queueing(resource)
        for resource in (RESOURCE_FLAVORS, WORKLOAD_PRIORITY_CLASSES, PRIORITY_CLASSES)
    ]
    if settings.manage_jobs_without_queue_name:
        others.append(queueing(NAMESPACES))
    flavors, workload_classes, pod_classes = (informer.store for informer in others[:3])
    stores = JobStores(
        {name: informer.store for name, informer in informers.items()},
        workloads.store,
        flavors,
        workload_classes,
        pod_classes,
        others[3].store if settings.manage_jobs_without_queue_name else None,
    )
    parents = tuple(found for found in served if found.makes_pods)
    owners = Owners(parents, stores, settings, ForeignOwners(client, clock))
    metrics = JobMetrics(telemetry)
    controllers: list[Controller] = []
    hooks: list[Webhook] = []
    for found in enabled:
        if found.wire is None:
            hooks.append(_webhook(found, settings, stores, owners))
            continue
        parts = Parts(
            found,
            parents,
            client,
            cache,
            recorder,
            settings,
            version,
            stores,
            owners,
            workloads,
            queueing(NAMESPACES),
            (*others, *(informers[each.name] for each in parents)),
            clock,
            telemetry,
        )
        wired = found.wire(parts)
        hooks.append(wired.webhook)
        controllers += wired.controllers
    for found in served:
        if found.wire is not None:
            continue
        executor = Executor(client, recorder, found.component, version, metrics.count)
        reconciler = JobReconciler(found, stores, owners, executor, settings, clock)
        kind = ".".join(filter(None, (found.resource.kind, found.resource.group)))
        controller = Controller(
            found.name,
            reconciler,
            settings.workers.get(kind, 1),
            clock=clock,
            telemetry=telemetry,
        )
        controller.for_(informers[found.name])
        controller.watches(workloads, _interested(found, informers[found.name]))
        for informer in others:
            controller.watches(informer, lambda _: ())
        controllers.append(controller)
    return Jobs(tuple(served), tuple(controllers), tuple(hooks))


async def _is_served(client: Client, integration: Integration) -> bool:
    resource = integration.resource
    if resource.kind in await client.served_kinds(resource.group, resource.version):
        return True
    get_logger("jobs").warning(
        "the API server does not serve this kind; its jobs are not managed",
        integration=integration.name,
        kind=resource.kind,
        api_version=resource.api_version,
    )
    return False


def _interested(
    integration: Integration, jobs: Informer
) -> Callable[[Delta[Obj]], Iterable[ObjectKey]]:
    """Which jobs a change of a Workload concerns: owners, their children, and who asks for it."""

    def keys(delta: Delta[Obj]) -> Iterable[ObjectKey]:
        found: list[ObjectKey] = []
        for workload in (delta.old, delta.new):
            if workload is None:
                continue
            namespace = workload["metadata"].get("namespace") or ""
            refs = workload["metadata"].get("ownerReferences") or ()
            found += [
                ObjectKey(namespace, ref["name"]) for ref in refs if integration.is_owner(ref)
            ]
            for ref in refs:
                found += jobs.store.keys_by_index(CONTROLLER_UID, ref["uid"])
            found += jobs.store.keys_by_index(PREBUILT_NAME, key_of(workload))
        return found

    return keys


def _webhook(
    integration: Integration, settings: JobSettings, stores: JobStores, owners: Owners
) -> JobWebhook:
    resource = integration.resource

    def default(obj: Obj, namespace: str) -> Obj:
        return default_job(
            integration,
            obj,
            settings,
            namespace_labels=stores.namespace_labels(namespace),
            has_ancestor=owners.is_child(obj, namespace),
        )

    def validate(new: Obj, old: Obj | None) -> Sequence[FieldError]:
        return validate_job(integration, new, old)

    return JobWebhook(
        resource,
        webhook_path(resource, mutating=True),
        webhook_path(resource, mutating=False),
        owners.learn,
        default,
        validate,
    )
