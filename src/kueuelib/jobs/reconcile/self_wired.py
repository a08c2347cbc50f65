"""Integrations with their own controllers and webhook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs

from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.lookups.owners import Owners
from kueuelib.jobs.lookups.stores import JobStores
from kueuelib.runtime.cache import Cache, OptionalInformer
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import Clock
from kueuelib.runtime.controller import Controller
from kueuelib.runtime.events import EventSink
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.runtime.webhook.server import WebhookServer


@attrs.frozen
class IntegrationParts:
    """The surroundings of an integration with its own reconciler.

    Attributes:
        integration: the integration itself.
        parents: the enabled integrations whose objects create pods.
        client: writes.
        cache: makes further informers.
        recorder: reports events.
        settings: the configuration.
        version: of `kueue.x-k8s.io` on the wire.
        stores: the stores for reconcilers of jobs.
        owners: finds the owner that is queued on behalf of an object.
        workloads: all Workloads.
        namespaces: all Namespaces.
        others: informers that must be synced before anything is reconciled.
        clock: the time.
        telemetry: where to report; None: nowhere.
    """

    integration: Integration
    parents: tuple[Integration, ...]
    client: Client
    cache: Cache
    recorder: EventSink
    settings: JobSettings
    version: str
    stores: JobStores
    owners: Owners
    workloads: Informer
    namespaces: Informer
    others: tuple[Informer, ...]
    clock: Clock
    telemetry: Telemetry | None = None


@attrs.frozen
class Wired:
    """The parts that an integration with its own reconciler has to run.

    Attributes:
        controllers: its controllers.
        webhook: the webhooks of its objects.
        informers: informers of kinds that may be missing, to be run with the caches.
    """

    controllers: tuple[Controller, ...]
    webhook: KindWebhooks
    informers: tuple[OptionalInformer, ...] = ()


class KindWebhooks(Protocol):
    """The webhooks of one kind."""

    @property
    def mutate_path(self) -> str:
        """Where the webhook server answers on creation."""
        ...

    @property
    def validate_path(self) -> str:
        """Where it answers on creation and update."""
        ...

    def register(self, server: WebhookServer) -> None:
        """Serve both paths."""
        ...


@attrs.frozen
class SelfWired(Integration):
    """An integration that needs its own controllers and webhook.

    Its webhooks are served even if the API server does not serve its kind.

    Attributes:
        wire: builds its controllers and its webhook.
    """

    wire: Callable[[IntegrationParts], Wired] = attrs.field(kw_only=True)
