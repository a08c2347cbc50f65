"""The admission checks for which a Workload with quota waits."""

from __future__ import annotations

from kueuelib.api.kueue import CHECK_PENDING, Workload
from kueuelib.api.meta import format_time
from kueuelib.api.struct import frozen
from kueuelib.api.workload_state import has_quota, is_admitted, is_evicted, is_finished
from kueuelib.scheduler.explain.world import World


@frozen
class Awaited:
    """A check that has not decided yet.

    Attributes:
        name: the check.
        controller: its controllerName; empty if the check was not read.
        since: when it became Pending, in seconds since the epoch; None if that is not known.
        message: the message of its controller.
        exists: whether there is such a check, as far as can be seen.
    """

    name: str
    controller: str
    since: float | None
    message: str = ""
    exists: bool = True

    @property
    def who(self) -> str:
        """The check and its controller."""
        unknown = "which may not be read" if self.exists else "which does not exist"
        return f"check {self.name} ({self.controller or unknown})"

    @property
    def text(self) -> str:
        """The check, since when it has been Pending, and its message."""
        since = "" if self.since is None else f" since {format_time(self.since)}"
        return f"{self.who} is Pending{since}" + (f": {self.message}" if self.message else "")

    @property
    def next_step(self) -> str:
        """The next step for the user."""
        if self.exists and not self.controller:
            return f"ask for the right to read AdmissionCheck {self.name}, which names who decides"
        if not self.controller:
            return f"create AdmissionCheck {self.name}, or take it out of the ClusterQueue"
        return f"look into the log of the controller that serves {self.controller}"


def awaited_checks(world: World, workload: Workload) -> tuple[Awaited, ...]:
    """The checks that keep a Workload with quota from being admitted.

    Args:
        world: the facts.
        workload: any Workload.

    Returns:
        The checks; none for a Workload that has no quota, or is admitted, evicted or finished.
    """
    settled = is_admitted(workload) or is_evicted(workload) or is_finished(workload)
    if settled or not has_quota(workload):
        return ()
    return tuple(
        Awaited(
            one.name,
            world.checks[one.name].spec.controller_name if one.name in world.checks else "",
            one.last_transition_time or None,
            one.message,
            one.name in world.checks,
        )
        for one in workload.status.admission_checks
        if one.state == CHECK_PENDING
    )
