"""What an integration with a reconciler of its own is wired to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kueuelib.jobs.contract.registry import Integration
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.lookups.owners import Owners
from kueuelib.jobs.lookups.stores import JobStores
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import Clock
from kueuelib.runtime.events import EventSink
from kueuelib.runtime.informer import Informer

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry


@attrs.frozen
class Parts:
    """What an integration with a reconciler of its own is wired to.

    Attributes:
        integration: itself.
        parents: the enabled integrations whose objects make pods of their own.
        client: writes.
        cache: where more informers come from.
        recorder: reports events.
        settings: the configuration.
        version: of `kueue.x-k8s.io` on the wire.
        stores: what reconcilers of jobs read.
        owners: finds who is queued on behalf of an object.
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
