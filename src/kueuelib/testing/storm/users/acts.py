"""The acts of users, as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import attrs

from kueuelib.testing.storm.history import Obj

T = TypeVar("T")

CREATE = "create"
PATCH = "patch"
PATCH_STATUS = "patch-status"
DELETE = "delete"
RESTORE = "restore"
PATCH_WORKLOAD = "patch-workload"
DELETE_WORKLOAD = "delete-workload"
DELETE_PODS = "delete-pods"
ANSWER = "answer"

VERBS = (
    CREATE,
    PATCH,
    PATCH_STATUS,
    DELETE,
    RESTORE,
    PATCH_WORKLOAD,
    DELETE_WORKLOAD,
    DELETE_PODS,
    ANSWER,
)
"""All verbs.

`restore` creates an object, or merges its body into the existing one. `patch-workload` and
`delete-workload` are for the Workload of the Job or Pod that the act names, `delete-pods` for the
pods of a Job. `answer` gives every Workload that waits for an admission check the state of the
body.
"""


class LabelledDraws(Protocol):
    """Random decisions, each with its own label."""

    def chance(self, label: str, probability: float, /) -> bool:
        """True with a probability."""
        ...

    def uniform(self, label: str, low: float, high: float, /) -> float:
        """A number between two bounds."""
        ...

    def integer(self, label: str, low: int, high: int, /) -> int:
        """A whole number between two inclusive bounds."""
        ...

    def choice(self, label: str, options: Sequence[T], /) -> T:
        """One of the options."""
        ...


class Family(Protocol):
    """The part of a profile about users."""

    @property
    def jobs(self) -> tuple[int, int]:
        """The least and the largest number of jobs."""
        ...

    @property
    def users(self) -> bool:
        """Whether users interfere."""
        ...

    @property
    def edits(self) -> bool:
        """Whether users edit the templates of their Jobs, and managers have settings that are
        rare.
        """
        ...

    @property
    def waits(self) -> bool:
        """Whether managers wait for ready pods and share by past use, and jobs have time limits."""
        ...

    @property
    def crowds(self) -> float:
        """The probability of a crowd."""
        ...


@attrs.frozen
class Act:
    """One thing that a user does.

    Attributes:
        at: virtual seconds since the start.
        label: unique in a scenario, and independent of other acts.
        verb: one of `VERBS`.
        resource: plural and group.
        namespace: empty for objects of the cluster.
        name: of the object.
        body: the object, the merge patch or the answer; None if the verb needs none.
    """

    at: float
    label: str
    verb: str
    resource: str
    namespace: str
    name: str
    body: Obj | None = None


@attrs.frozen
class Scenario:
    """All acts of users in one run.

    Attributes:
        setup: before anything happens, in this order.
        acts: while it storms, ordered by time.
        calm: after the storm: queues, flavors and checks are restored, but without admission
            checks. Jobs that users suspended run again, deactivated Workloads do not. A tree of
            Cohorts is replaced by another one, which may have a cycle.
        rest: one after another, once all is at rest; all laws have to hold again without further
            changes.
        meddling: whether users write objects that a manager is writing (`meddling.meddle`).
        settings: additional settings of the manager.
        resources: further resources on which faults may focus.
    """

    setup: tuple[Act, ...]
    acts: tuple[Act, ...]
    calm: tuple[Act, ...]
    rest: tuple[Act, ...] = ()
    meddling: bool = False
    settings: Obj = attrs.field(factory=dict)
    resources: tuple[str, ...] = ()
