"""The classes that the signatures of the other public packages name, for your annotations.

```python
from kueuelib.types import ItemExponential, ReflectorOptions

cache = Cache(client, options=ReflectorOptions(page_size=100))
controller = Controller("widgets", reconciler, limiter=ItemExponential(1.0, 300.0))
```

Most of them are values that the library makes and hands to you, such as the `TrialOutcome` of an
`Explanation`. These names are stable, see docs/stability.md; the modules that they come from are
internal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kueuelib.api.checks import AdmissionCheck as AdmissionCheck
    from kueuelib.api.core import LimitRange as LimitRange
    from kueuelib.api.core import RuntimeClass as RuntimeClass
    from kueuelib.api.definitions import Definition as Definition
    from kueuelib.api.meta import OwnerReference as OwnerReference
    from kueuelib.api.models import ModelPart as ModelPart
    from kueuelib.api.pods import Toleration as Toleration
    from kueuelib.api.queues import ClusterQueue as ClusterQueue
    from kueuelib.api.queues import Cohort as Cohort
    from kueuelib.api.queues import LocalQueue as LocalQueue
    from kueuelib.api.queues import ResourceFlavor as ResourceFlavor
    from kueuelib.api.queues import Topology as Topology
    from kueuelib.api.workload import Admission as Admission
    from kueuelib.api.workload import PodSetRequest as PodSetRequest
    from kueuelib.api.workload import WorkloadSpec as WorkloadSpec
    from kueuelib.api.workload import WorkloadStatus as WorkloadStatus
    from kueuelib.checks.owned import OwnedObjects as OwnedObjects
    from kueuelib.controllers.series_labels import CustomLabel as CustomLabel
    from kueuelib.jobs.contract.integration import Reference as Reference
    from kueuelib.jobs.contract.integration import Validate as Validate
    from kueuelib.jobs.contract.settings import MetadataConflict as MetadataConflict
    from kueuelib.jobs.contract.settings import Origin as Origin
    from kueuelib.jobs.declared.declarative import Suspend as Suspend
    from kueuelib.jobs.declared.signs import Differs as Differs
    from kueuelib.jobs.declared.signs import Enough as Enough
    from kueuelib.jobs.declared.signs import Equals as Equals
    from kueuelib.jobs.declared.signs import Every as Every
    from kueuelib.jobs.declared.signs import Outdated as Outdated
    from kueuelib.jobs.declared.signs import Sign as Sign
    from kueuelib.machinery.backoff import Backoff as Backoff
    from kueuelib.machinery.backoff import ItemExponential as ItemExponential
    from kueuelib.machinery.backoff import RateLimiter as RateLimiter
    from kueuelib.machinery.options import ReflectorOptions as ReflectorOptions
    from kueuelib.machinery.selectors import Selector as Selector
    from kueuelib.machinery.store import DeltaKind as DeltaKind
    from kueuelib.runtime.cache import TypedInformer as TypedInformer
    from kueuelib.runtime.certificates import ServerNames as ServerNames
    from kueuelib.runtime.client import TypedClient as TypedClient
    from kueuelib.runtime.clock import Clock as Clock
    from kueuelib.runtime.controller import Source as Source
    from kueuelib.runtime.manager import Runnable as Runnable
    from kueuelib.runtime.operator.reconciled import OtherCluster as OtherCluster
    from kueuelib.runtime.operator.reconciled import OtherKind as OtherKind
    from kueuelib.runtime.queries import ObjectList as ObjectList
    from kueuelib.runtime.transport import Observer as Observer
    from kueuelib.runtime.watch import WatchStream as WatchStream
    from kueuelib.runtime.webhook.admission import WebhookEntry as WebhookEntry
    from kueuelib.scheduler.decide.cycle_values import Head as Head
    from kueuelib.scheduler.decide.cycle_values import NewPlaces as NewPlaces
    from kueuelib.scheduler.decide.cycle_values import NodeEviction as NodeEviction
    from kueuelib.scheduler.decide.cycle_values import SecondPass as SecondPass
    from kueuelib.scheduler.decide.preemption.guard import Past as Past
    from kueuelib.scheduler.decide.preemption.guard import PolicyFault as PolicyFault
    from kueuelib.scheduler.decide.preemption.guard import PreemptionHistory as PreemptionHistory
    from kueuelib.scheduler.decide.preemption.victims import Path as Path
    from kueuelib.scheduler.decide.preemption.victims import PendingPreemption as PendingPreemption
    from kueuelib.scheduler.explain.awaited import Awaited as Awaited
    from kueuelib.scheduler.explain.placements import PlacedPods as PlacedPods
    from kueuelib.scheduler.explain.places import DomainRoom as DomainRoom
    from kueuelib.scheduler.explain.problems import Problem as Problem
    from kueuelib.scheduler.explain.problems import Unhonoured as Unhonoured
    from kueuelib.scheduler.explain.rows import Row as Row
    from kueuelib.scheduler.explain.rows import TreeRow as TreeRow
    from kueuelib.scheduler.explain.trial import SearchBudget as SearchBudget
    from kueuelib.scheduler.explain.trial import TrialOutcome as TrialOutcome
    from kueuelib.scheduler.explain.trial import TrialResult as TrialResult
    from kueuelib.scheduler.explain.trial import TriedChange as TriedChange
    from kueuelib.scheduler.explain.trial import TriedPair as TriedPair
    from kueuelib.scheduler.facts.workloads import QueuePosition as QueuePosition
    from kueuelib.scheduler.flavor_reasons import Mode as Mode
    from kueuelib.scheduler.flavor_reasons import PodSetReason as PodSetReason
    from kueuelib.scheduler.flavor_reasons import Together as Together
    from kueuelib.scheduler.knowledge import CohortUsage as CohortUsage
    from kueuelib.scheduler.knowledge import LocalQueueNumbers as LocalQueueNumbers
    from kueuelib.scheduler.knowledge import QueueStatus as QueueStatus
    from kueuelib.scheduler.ordering import QueueOrder as QueueOrder
    from kueuelib.scheduler.pending.queue import PendingPlace as PendingPlace
    from kueuelib.scheduler.pending.tries import Promise as Promise
    from kueuelib.scheduler.pending.tries import Requeue as Requeue
    from kueuelib.scheduler.pending.workload_info import PodSetNeeds as PodSetNeeds
    from kueuelib.scheduler.pending.workload_info import WorkloadInfo as WorkloadInfo
    from kueuelib.scheduler.policy import Protected as Protected
    from kueuelib.scheduler.policy import Unevictable as Unevictable
    from kueuelib.scheduler.quota.amounts import Limits as Limits
    from kueuelib.scheduler.quota.cache import QueueState as QueueState
    from kueuelib.scheduler.quota.past_usage import PastUsage as PastUsage
    from kueuelib.scheduler.quota.past_usage import UsageRule as UsageRule
    from kueuelib.scheduler.quota.queue_spec import Activity as Activity
    from kueuelib.scheduler.quota.queue_spec import CohortQuotas as CohortQuotas
    from kueuelib.scheduler.quota.queue_spec import Flavor as Flavor
    from kueuelib.scheduler.quota.queue_spec import QueuePreemption as QueuePreemption
    from kueuelib.scheduler.quota.queue_spec import QueueSpec as QueueSpec
    from kueuelib.scheduler.quota.resource_rules import ResourceRules as ResourceRules
    from kueuelib.scheduler.quota.snapshot import Frozen as Frozen
    from kueuelib.scheduler.quota.snapshot import FrozenQueue as FrozenQueue
    from kueuelib.scheduler.settings import NodeFailureRules as NodeFailureRules
    from kueuelib.scheduler.topology.nodes import NodeFacts as NodeFacts
    from kueuelib.workload.life import LifeSettings as LifeSettings
else:
    from kueuelib.lazy_exports import lazily

    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "kueuelib.api.checks": "AdmissionCheck",
            "kueuelib.api.core": "LimitRange RuntimeClass",
            "kueuelib.api.definitions": "Definition",
            "kueuelib.api.meta": "OwnerReference",
            "kueuelib.api.models": "ModelPart",
            "kueuelib.api.pods": "Toleration",
            "kueuelib.api.queues": "ClusterQueue Cohort LocalQueue ResourceFlavor Topology",
            "kueuelib.api.workload": "Admission PodSetRequest WorkloadSpec WorkloadStatus",
            "kueuelib.checks.owned": "OwnedObjects",
            "kueuelib.controllers.series_labels": "CustomLabel",
            "kueuelib.jobs.contract.integration": "Reference Validate",
            "kueuelib.jobs.contract.settings": "MetadataConflict Origin",
            "kueuelib.jobs.declared.declarative": "Suspend",
            "kueuelib.jobs.declared.signs": "Differs Enough Equals Every Outdated Sign",
            "kueuelib.machinery.backoff": "Backoff ItemExponential RateLimiter",
            "kueuelib.machinery.options": "ReflectorOptions",
            "kueuelib.machinery.selectors": "Selector",
            "kueuelib.machinery.store": "DeltaKind",
            "kueuelib.runtime.cache": "TypedInformer",
            "kueuelib.runtime.certificates": "ServerNames",
            "kueuelib.runtime.client": "TypedClient",
            "kueuelib.runtime.clock": "Clock",
            "kueuelib.runtime.controller": "Source",
            "kueuelib.runtime.manager": "Runnable",
            "kueuelib.runtime.operator.reconciled": "OtherCluster OtherKind",
            "kueuelib.runtime.queries": "ObjectList",
            "kueuelib.runtime.transport": "Observer",
            "kueuelib.runtime.watch": "WatchStream",
            "kueuelib.runtime.webhook.admission": "WebhookEntry",
            "kueuelib.scheduler.decide.cycle_values": "Head NewPlaces NodeEviction SecondPass",
            "kueuelib.scheduler.decide.preemption.guard": "Past PolicyFault PreemptionHistory",
            "kueuelib.scheduler.decide.preemption.victims": "Path PendingPreemption",
            "kueuelib.scheduler.explain.awaited": "Awaited",
            "kueuelib.scheduler.explain.placements": "PlacedPods",
            "kueuelib.scheduler.explain.places": "DomainRoom",
            "kueuelib.scheduler.explain.problems": "Problem Unhonoured",
            "kueuelib.scheduler.explain.rows": "Row TreeRow",
            "kueuelib.scheduler.explain.trial": "SearchBudget TrialOutcome TrialResult "
            "TriedChange TriedPair",
            "kueuelib.scheduler.facts.workloads": "QueuePosition",
            "kueuelib.scheduler.flavor_reasons": "Mode PodSetReason Together",
            "kueuelib.scheduler.knowledge": "CohortUsage LocalQueueNumbers QueueStatus",
            "kueuelib.scheduler.ordering": "QueueOrder",
            "kueuelib.scheduler.pending.queue": "PendingPlace",
            "kueuelib.scheduler.pending.tries": "Promise Requeue",
            "kueuelib.scheduler.pending.workload_info": "PodSetNeeds WorkloadInfo",
            "kueuelib.scheduler.policy": "Protected Unevictable",
            "kueuelib.scheduler.quota.amounts": "Limits",
            "kueuelib.scheduler.quota.cache": "QueueState",
            "kueuelib.scheduler.quota.past_usage": "PastUsage UsageRule",
            "kueuelib.scheduler.quota.queue_spec": "Activity CohortQuotas Flavor "
            "QueuePreemption QueueSpec",
            "kueuelib.scheduler.quota.resource_rules": "ResourceRules",
            "kueuelib.scheduler.quota.snapshot": "Frozen FrozenQueue",
            "kueuelib.scheduler.settings": "NodeFailureRules",
            "kueuelib.scheduler.topology.nodes": "NodeFacts",
            "kueuelib.workload.life": "LifeSettings",
        },
    )
