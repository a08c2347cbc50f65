"""Kinds of jobs that can be queued: what a kind of your own is written with.

The names below are imported when they are used first. Behind them are rooms, in the order of
their imports:

- `contract`: what a kind is, `GenericJob`, and what it can do beyond that
- `batch`, `declared`: kinds that are programmed, and kinds that are declared by paths
- `lookups`, `reconcile`: what is known about a job, and what is done about it
- `kinds`: kinds that a CRD defines come and go while the manager runs
- `webhooks`, `pods`: what is asked about every object, and the kind that is special: plain pods
- `catalog`: which kinds there are
- `client`, `setup`: for programs that submit jobs, and for the manager that queues them
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kueuelib.jobs.contract.capabilities import (
        ComposableJob,
        JobWithCustomStop,
        JobWithEquivalence,
        JobWithFinalize,
        JobWithPriorityClass,
        JobWithReclaimablePods,
        JobWithReplacements,
        JobWithSkip,
        Stop,
        StopReason,
    )
    from kueuelib.jobs.contract.generic_job import (
        GenericJob,
        JobEnd,
        PodSet,
    )
    from kueuelib.jobs.contract.integration import Integration
    from kueuelib.jobs.contract.podset_info import (
        PodSetInfo,
        check_count,
        merge,
        restore,
    )
    from kueuelib.jobs.declared.declarative import (
        AtMost,
        Condition,
        Done,
        declare,
        differs,
        enough,
        equals,
        every,
        never,
    )
    from kueuelib.jobs.declared.pod_shape import Pods

__all__ = [
    "AtMost",
    "ComposableJob",
    "Condition",
    "Done",
    "GenericJob",
    "Integration",
    "JobEnd",
    "JobWithCustomStop",
    "JobWithEquivalence",
    "JobWithFinalize",
    "JobWithPriorityClass",
    "JobWithReclaimablePods",
    "JobWithReplacements",
    "JobWithSkip",
    "PodSet",
    "PodSetInfo",
    "Pods",
    "Stop",
    "StopReason",
    "check_count",
    "declare",
    "differs",
    "enough",
    "equals",
    "every",
    "merge",
    "never",
    "restore",
]

_HOMES = {
    "AtMost": "declared.declarative",
    "ComposableJob": "contract.capabilities",
    "Condition": "declared.declarative",
    "Done": "declared.declarative",
    "GenericJob": "contract.generic_job",
    "Integration": "contract.integration",
    "JobEnd": "contract.generic_job",
    "JobWithCustomStop": "contract.capabilities",
    "JobWithEquivalence": "contract.capabilities",
    "JobWithFinalize": "contract.capabilities",
    "JobWithPriorityClass": "contract.capabilities",
    "JobWithReclaimablePods": "contract.capabilities",
    "JobWithReplacements": "contract.capabilities",
    "JobWithSkip": "contract.capabilities",
    "PodSet": "contract.generic_job",
    "PodSetInfo": "contract.podset_info",
    "Pods": "declared.declarative",
    "Stop": "contract.capabilities",
    "StopReason": "contract.capabilities",
    "check_count": "contract.podset_info",
    "declare": "declared.declarative",
    "differs": "declared.declarative",
    "enough": "declared.declarative",
    "equals": "declared.declarative",
    "every": "declared.declarative",
    "merge": "contract.podset_info",
    "never": "declared.declarative",
    "restore": "contract.podset_info",
}


def __getattr__(name: str) -> Any:
    """Imports a public name from where it is at home."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kueuelib.jobs' has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(f"kueuelib.jobs.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The public names, whether imported already or not."""
    return sorted({*globals(), *_HOMES})
