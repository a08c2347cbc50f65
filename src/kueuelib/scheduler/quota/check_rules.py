"""The rules of admission checks that scheduler and controllers share (KEP-993).

They are defined once here, for entries of `status.admissionChecks` in any form;
`kueuelib.workload.checks` applies them to raw objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from kueuelib.api.kueue import CHECK_PENDING, CHECK_READY, Workload
from kueuelib.api.names import REASON_PREEMPTION_REQUIRED
from kueuelib.api.struct import frozen


class CheckEntry(NamedTuple):
    """The entry of one check for a workload.

    Attributes:
        name: the AdmissionCheck.
        state: Pending, Ready, Retry or Rejected.
        reason: one word; empty if there is none.
    """

    name: str
    state: str
    reason: str


@frozen
class RequiredCheck:
    """An admission check of a ClusterQueue.

    Attributes:
        name: the AdmissionCheck.
        flavors: the flavors that require it; empty means all.
    """

    name: str
    flavors: frozenset[str]


def entries_of(workload: Workload) -> tuple[CheckEntry, ...]:
    """The entries of a workload's checks."""
    checks = workload.status.admission_checks
    if not checks:
        return ()
    return tuple([CheckEntry(one.name, one.state, one.reason) for one in checks])


def required(rules: Collection[RequiredCheck], flavors: Iterable[str]) -> tuple[str, ...]:
    """The checks that a workload with these flavors has to pass, in the order of the rules."""
    if not rules:
        return ()
    assigned = frozenset(flavors)
    names = (rule.name for rule in rules if not rule.flavors or rule.flavors & assigned)
    return tuple(dict.fromkeys(names))


def passed_all(entries: Collection[CheckEntry], required: Collection[str]) -> bool:
    """Whether every listed check is Ready, and no required one is missing."""
    if not entries:
        return not required
    states = {entry.name: entry.state for entry in entries}
    return states.keys() >= {*required} and all(state == CHECK_READY for state in states.values())


def preempts_early(entries: Collection[CheckEntry], late: Collection[str]) -> bool:
    """Whether the preemptions for a reservation may begin before all checks have passed (KEP-993).

    They may if a check asks for them, or if all checks that they wait for are Ready.

    Args:
        entries: of the checks.
        late: those of the required checks that are `AfterCheckPassedOrOnDemand`.
    """
    if any(
        entry.state == CHECK_PENDING and entry.reason == REASON_PREEMPTION_REQUIRED
        for entry in entries
    ):
        return True
    return passed(entries, late)


def passed(entries: Iterable[CheckEntry], names: Collection[str]) -> bool:
    """Whether each of these checks is Ready."""
    ready = {entry.name for entry in entries if entry.state == CHECK_READY}
    return ready.issuperset(names)
