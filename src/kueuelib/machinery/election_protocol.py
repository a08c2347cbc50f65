"""The inputs of an `ElectionCore`, and its commands to the shell."""

from __future__ import annotations

import attrs

from kueuelib.api.meta import Obj

# ---- inputs -------------------------------------------------------------------------------------


@attrs.frozen
class Fetched:
    """The answer to `GetLease`; None when there is no such Lease."""

    lease: Obj | None


@attrs.frozen
class Written:
    """`CreateLease` or `UpdateLease` succeeded; the Lease as the server returned it."""

    lease: Obj


@attrs.frozen
class Failed:
    """A call failed or timed out."""

    error: Exception


@attrs.frozen
class Tick:
    """The `Wait` is over, or `ElectionCore.deadline` has come, also while a call is under way."""


@attrs.frozen
class Cancelled:
    """The process ends. Feed it when no call is under way."""


Input = Fetched | Written | Failed | Tick | Cancelled

# ---- commands -----------------------------------------------------------------------------------


@attrs.frozen
class GetLease:
    """Read the Lease from the server, not from a cache."""


@attrs.frozen
class CreateLease:
    """Create it."""

    lease: Obj


@attrs.frozen
class UpdateLease:
    """Replace it; its resource version makes the server refuse an update of an outdated state."""

    lease: Obj


@attrs.frozen
class Wait:
    """Wait, then feed `Tick`."""

    seconds: float


@attrs.frozen
class StartedLeading:
    """Start what only a leader may do."""


@attrs.frozen
class StoppedLeading:
    """Leadership is lost: stop at once, without grace, and end the process."""

    why: str


@attrs.frozen
class LeaderChanged:
    """There is a new holder of the Lease, perhaps this process."""

    identity: str


@attrs.frozen
class Stop:
    """The last command: the election is over."""


Command = (
    GetLease
    | CreateLease
    | UpdateLease
    | Wait
    | StartedLeading
    | StoppedLeading
    | LeaderChanged
    | Stop
)
