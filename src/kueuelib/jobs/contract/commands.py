"""The commands of a plan, as values; `kueuelib.jobs.reconcile.executor` executes them in order.

Objects of the group `kueue.x-k8s.io` are given in the internal version (`v1beta2`); the executor
speaks the version that the API server serves. A command that fails ends the plan, so a later one
may rely on an earlier one; only commands about different pods, one after the other in a plan, run
side by side. Every plan starts from what is stored, so commands that were not
executed are planned again.
"""

from __future__ import annotations

from typing import Literal

import attrs

from kueuelib.api.meta import Obj, Resource
from kueuelib.api.patch import diff_merge_patch
from kueuelib.machinery.recurrence import EventType

MISSED = "missed"
"""Counts jobs that bypassed the webhook; the labels are the kind and the result."""
REPAIRED = "repaired"
"""A result of `MISSED`: the job has what the webhook would have given it."""
LEFT_ALONE = "left alone"
"""A result of `MISSED`: the job continues without it."""
CREATED_WORKLOAD = "created workload"
"""Observes how long a job waited for its Workload; the label is the kind."""

NORMAL: EventType = "Normal"
WARNING: EventType = "Warning"


@attrs.frozen
class Create:
    """Create an object; if one of that name exists already, wait instead of failing."""

    resource: Resource
    obj: Obj


@attrs.frozen
class Recheck:
    """Read an object from the server; if it is gone or being deleted, the rest is skipped."""

    resource: Resource
    obj: Obj


@attrs.frozen
class Change:
    """Send the difference of two states of an object as one merge patch.

    Attributes:
        resource: the kind.
        old: the object as it is.
        new: the desired object; only the difference is sent.
        subresource: for example `status`.
        versioned: fail if another client has changed the object meanwhile.
        given: another object that permits the change; nothing is sent if a newer state of it
            is known.
    """

    resource: Resource
    old: Obj
    new: Obj
    subresource: str = ""
    versioned: bool = True
    given: Obj | None = None

    @property
    def patch(self) -> Obj:
        """The difference, without preconditions."""
        return diff_merge_patch(self.old, self.new)


@attrs.frozen
class PatchStatus:
    """One patch of the status subresource.

    Attributes:
        resource: the kind.
        obj: the object that is patched.
        style: `apply` (server-side) or `merge`.
        status: the fields of the status.
        field_manager: on whose behalf.
        versioned: fail if another client has changed the object meanwhile.
        force: take fields over from other managers; `apply` only.
    """

    resource: Resource
    obj: Obj
    style: Literal["apply", "merge"]
    status: Obj
    field_manager: str
    versioned: bool = False
    force: bool = False


@attrs.frozen
class Delete:
    """Delete exactly this object; it may be gone already."""

    resource: Resource
    obj: Obj


@attrs.frozen
class DropFinalizer:
    """Remove our finalizer from exactly this object; it may be gone already."""

    resource: Resource
    obj: Obj
    finalizer: str


@attrs.frozen
class Emit:
    """Record an event about an object."""

    obj: Obj
    reason: str
    message: str
    type: EventType = NORMAL


@attrs.frozen
class Count:
    """Count an effect of the commands before it.

    Attributes:
        what: the name of a counter of the integration.
        labels: the values of its labels.
        seconds: a time that is reported with it; None for none.
    """

    what: str
    labels: tuple[str, ...]
    seconds: float | None = None


@attrs.frozen
class RequeueAfter:
    """Look at the job again later, even without an event; the plan continues.

    Attributes:
        why: a sentence for the log.
        seconds: when to look again; the shortest time of a plan counts.
    """

    why: str
    seconds: float


Command = (
    Create | Recheck | Change | PatchStatus | Delete | DropFinalizer | Emit | Count | RequeueAfter
)
