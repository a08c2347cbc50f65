"""What a running check may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar

import attrs

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import Obj
from kueuelib.api.quantity import Quantity
from kueuelib.machinery.event_series import EventType
from kueuelib.runtime.client import Client


@attrs.frozen(eq=False)
class CheckContext:
    """The surroundings of one call of a check.

    Attributes:
        check: the name of the AdmissionCheck; empty in a release function.
        workload: the raw Workload, in the version that the server speaks.
        client: speaks to the API server.
        passed: the other workloads that this AdmissionCheck has accepted and that still hold quota,
            also while they are evicted, in a namespace, or in all when it is empty.
        event: reports something about the workload: type, reason, message.
    """

    check: str
    workload: Obj
    client: Client
    passed: Callable[[str], tuple[Workload, ...]]
    event: Callable[[EventType, str, str], None]


_CURRENT: ContextVar[CheckContext] = ContextVar("kueuelib check")


def current() -> CheckContext:
    """The context of the check that is running.

    Raises:
        LookupError: no check is running.
    """
    return _CURRENT.get()


def enter(context: CheckContext) -> None:
    """Makes a context the current one, in this task."""
    _CURRENT.set(context)


def usage_of(workload: Workload) -> Mapping[str, Quantity]:
    """The quota that a workload holds, by resource, over all pod sets; empty without quota."""
    usage: dict[str, Quantity] = {}
    admission = workload.status.admission
    for assignment in admission.pod_set_assignments if admission else ():
        for resource, amount in assignment.resource_usage.items():
            usage[resource] = usage[resource] + amount if resource in usage else amount
    return usage
