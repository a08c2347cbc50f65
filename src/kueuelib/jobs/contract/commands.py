"""What a plan wants done, as values; `kueuelib.jobs.reconcile.executor` does it, in order.

Objects of the group `kueue.x-k8s.io` are given in the internal version (`v1beta2`); the executor
speaks the version that the API server serves. A command that fails ends the plan, so a later one
may rely on an earlier one. Every plan starts from what is stored, so whatever was left undone is
planned again.
"""

from __future__ import annotations

from typing import Literal

import attrs

from kueuelib.api.meta import Obj, Resource
from kueuelib.api.patch import diff_merge_patch

MISSED = "missed"
"""What is counted when a job came in past the webhook; its labels are the kind and what became of
it."""

NORMAL = "Normal"
WARNING = "Warning"


@attrs.frozen
class Create:
    """Create an object; if one of that name exists already, wait instead of failing."""

    resource: Resource
    obj: Obj


@attrs.frozen
class Recheck:
    """Read an object from the server; if it is gone or being deleted, the rest is not done."""

    resource: Resource
    obj: Obj


@attrs.frozen
class Change:
    """Send the difference of two states of an object as one merge patch.

    Attributes:
        resource: the kind.
        old: the object as it is.
        new: the object as it has to be; only what differs is sent.
        subresource: for example `status`.
        versioned: refuse when the object was changed meanwhile by somebody else.
    """

    resource: Resource
    old: Obj
    new: Obj
    subresource: str = ""
    versioned: bool = True

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
        versioned: refuse when the object was changed meanwhile by somebody else.
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
    """Delete exactly this object; that it is gone already is fine."""

    resource: Resource
    obj: Obj


@attrs.frozen
class DropFinalizer:
    """Take our finalizer off exactly this object; that it is gone already is fine."""

    resource: Resource
    obj: Obj
    finalizer: str


@attrs.frozen
class Emit:
    """Record an event about an object."""

    obj: Obj
    reason: str
    message: str
    type: str = NORMAL


@attrs.frozen
class Count:
    """Count something that the commands before it did.

    Attributes:
        what: the name of a counter that the integration has.
        labels: the values of its labels.
        seconds: a time that is reported with it; None for none.
    """

    what: str
    labels: tuple[str, ...]
    seconds: float | None = None


@attrs.frozen
class Wait:
    """Nothing can be done now: look again later, also when no event comes.

    Attributes:
        why: a sentence for the log.
        seconds: when to look again.
    """

    why: str
    seconds: float


Command = Create | Recheck | Change | PatchStatus | Delete | DropFinalizer | Emit | Count | Wait
