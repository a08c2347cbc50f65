"""The rules of leader election on a Lease."""

from __future__ import annotations

from enum import Enum

import attrs

from kueuelib.api.kinds import LEASES
from kueuelib.api.meta import Obj, annotations_of, format_micro_time, labels_of
from kueuelib.errors import Conflict, HistoryLost
from kueuelib.machinery.options import ElectionOptions
from kueuelib.machinery.replica import version_number

# ---- the inputs of an `ElectionCore`, and its commands to the shell ------------------------------

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
class ElectionTick:
    """The `Pause` is over, or `ElectionCore.deadline` has come, also while a call is under way."""


@attrs.frozen
class Cancelled:
    """The process ends. Feed it when no call is under way."""


Input = Fetched | Written | Failed | ElectionTick | Cancelled

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
class Pause:
    """Wait, then feed `ElectionTick`."""

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
class ElectionOver:
    """The last command: the election is over."""


Command = (
    GetLease
    | CreateLease
    | UpdateLease
    | Pause
    | StartedLeading
    | StoppedLeading
    | LeaderChanged
    | ElectionOver
)


# --------------------------------------------------------------------------------------------------

CANDIDATE_PAUSE = 0.5
"""Shortest pause of a candidate between two reads of the Lease, in retry periods."""
CANDIDATE_SPREAD = 0.25
"""Random addition to that pause, in retry periods."""


class _ElectionState(Enum):
    NEW = "new"
    FETCHING = "fetching"
    WRITING = "writing"
    FAST_WRITING = "fast writing"
    WAITING = "waiting"
    RELEASING = "releasing"
    REREADING = "reading before a second release"
    LAST_RELEASING = "releasing again"
    OVER = "over"


class ElectionCore:
    """Decides when to take, renew and give up a Lease.

    The shell runs `start`, then executes the commands in order; the last one is a call, a `Pause`
    or `ElectionOver`, and its outcome is fed to `step`. While `deadline` is not None, it also feeds
    `ElectionTick` at that time, even during a call, and then abandons that call.

    Guarantees: whether another holder's lease has expired depends only on how long *this* process
        has seen no change of the record, never on a comparison of two machines' clocks. Leadership
        ends on our side (`renew_deadline` after the last successful renewal began) before others
        may take over. A Lease with our own identity is taken at once, because only an earlier
        election of this process can have written it. So two elections must never use the same
        identity at the same time.

    A Lease that is older than before also ends the election: the server was restored from an older
    copy, and what this process knows may never have happened there.

    A candidate reads the Lease more often than a leader renews it, and again at the moment of its
    expiry. So after the last renewal it takes over within the lease duration, 3/4 of a retry period
    and one call; after a release within the last two.

    Attributes:
        leading: whether this process leads, as of the last step.
        standing: whether this process may acquire the Lease; otherwise it only observes, while the
            remaining time of another holder passes.
        slow_paths: renewals that needed a fresh read first.
    """

    def __init__(self, options: ElectionOptions) -> None:
        self.options = options
        self.leading = False
        self.standing = True
        self.slow_paths = 0
        self._state = _ElectionState.NEW
        self._lease: Obj | None = None
        self._version = 0  # the newest of the Lease
        self._seen: Obj = {}  # the spec that was observed last
        self._seen_at = 0.0
        self._holder = ""
        self._renewing_since = 0.0
        self._renewed = 0.0

    @property
    def deadline(self) -> float | None:
        """When leadership ends unless it is renewed; None when not leading."""
        return self._renewed + self.options.renew_deadline if self.leading else None

    def is_leader(self, now: float) -> bool:
        """Whether this process may act as the leader at this moment; ask before every write."""
        return self.leading and now < self._renewed + self.options.renew_deadline

    def start(self, now: float) -> tuple[Command, ...]:
        """The first command."""
        if self._state is not _ElectionState.NEW:
            raise ValueError("an election can be started only once")
        return tuple(self._fetch(now))

    def step(self, event: Input, now: float, wall: float, chance: float) -> tuple[Command, ...]:
        """Take what happened; return what to do.

        Args:
            event: what happened.
            now: monotonic seconds.
            wall: seconds since the epoch, only written into the Lease.
            chance: a random number in [0, 1).

        Raises:
            ValueError: the input does not fit the last command.
        """
        if self.leading and now >= self._renewed + self.options.renew_deadline:
            return tuple(self._lose("the lease could not be renewed in time"))
        match event:
            case Cancelled() if self._state is not _ElectionState.OVER:
                commands = self._cancel(wall)
            case Failed(Conflict()) if self._state is _ElectionState.RELEASING:
                # A renewal that was cancelled has arrived all the same.
                self._state = _ElectionState.REREADING
                commands = [GetLease()]
            case Written() | Failed() if self._state in (
                _ElectionState.RELEASING,
                _ElectionState.LAST_RELEASING,
            ):
                commands = self._over()
            case Fetched() | Failed() if self._state is _ElectionState.REREADING:
                commands = self._release_again(event, wall)
            case Fetched(lease) if self._state is _ElectionState.FETCHING:
                commands = self._fetched(lease, now, wall, chance)
            case Written(lease) if self._state in (
                _ElectionState.WRITING,
                _ElectionState.FAST_WRITING,
            ):
                commands = self._written(lease, now)
            case Failed() if self._state is _ElectionState.FAST_WRITING:
                self.slow_paths += 1
                commands = self._fetch(self._renewing_since)
            case Failed() if self._state in (_ElectionState.FETCHING, _ElectionState.WRITING):
                commands = self._retry(now, chance)
            case ElectionTick() if self._state is _ElectionState.WAITING and self.leading:
                self._renewing_since = now
                commands = self._update(wall, _ElectionState.FAST_WRITING)
            case ElectionTick() if self._state is _ElectionState.WAITING:
                commands = self._fetch(now)
            case ElectionTick() if self._state is not _ElectionState.NEW:
                commands = []
            case _:
                raise ValueError(f"{type(event).__name__} does not fit while {self._state.value}")
        return tuple(commands)

    def _lost_history(self, lease: Obj) -> HistoryLost | None:
        """The error if an answer is older than the one before, which no other cause can have."""
        seen, got = self._version, version_number(lease)
        self._version = max(seen, got)
        return HistoryLost(f"lease {self.options.lease}", seen, got) if 0 < got < seen else None

    def _fetch(self, now: float) -> list[Command]:
        self._renewing_since = now
        self._state = _ElectionState.FETCHING
        return [GetLease()]

    def _fetched(self, lease: Obj | None, now: float, wall: float, chance: float) -> list[Command]:
        if lease is None:
            self._lease = None
            if not self.standing:
                return self._retry(now, chance)
            self._state = _ElectionState.WRITING
            return [CreateLease(self._claim(wall))]
        if restored := self._lost_history(lease):
            return self._lose(str(restored))
        said = self._observe(lease, now)
        holder = self._seen.get("holderIdentity") or ""
        if holder and holder != self.options.identity:
            if self.leading:
                return said + self._lose(f"{holder} holds the lease")
            if now < self._expiry():
                return said + self._retry(now, chance)
        if not (self.leading or self.standing):
            return said + self._retry(now, chance)
        return said + self._update(wall, _ElectionState.WRITING)

    def _update(self, wall: float, state: _ElectionState) -> list[Command]:
        self._state = state
        return [UpdateLease(self._claim(wall))]

    def _written(self, lease: Obj, now: float) -> list[Command]:
        if restored := self._lost_history(lease):
            return self._lose(str(restored))
        said = self._observe(lease, now)
        self._renewed = self._renewing_since
        if not self.leading:
            if now >= self._renewed + self.options.renew_deadline:
                return said + self._fetch(now)
            self.leading = True
            said.append(StartedLeading())
        return said + self._wait(self.options.retry_period)

    def _expiry(self) -> float:
        """When the observed lease of another holder expires unless it is renewed."""
        duration: float = self._seen.get("leaseDurationSeconds") or self.options.lease_duration
        return self._seen_at + duration

    def _retry(self, now: float, chance: float) -> list[Command]:
        period = self.options.retry_period
        if self.leading:
            return self._wait(period)
        pause = period * (CANDIDATE_PAUSE + CANDIDATE_SPREAD * chance)
        left = self._expiry() - now if self._holder else 0.0
        return self._wait(min(pause, left) if left > 0.0 else pause)

    def _wait(self, seconds: float) -> list[Command]:
        self._state = _ElectionState.WAITING
        return [Pause(seconds)]

    def _observe(self, lease: Obj, now: float) -> list[Command]:
        self._lease = lease
        spec = lease.get("spec") or {}
        if spec != self._seen:
            self._seen, self._seen_at = spec, now
        holder = spec.get("holderIdentity") or ""
        if holder == self._holder:
            return []
        self._holder = holder
        return [LeaderChanged(holder)] if holder else []

    def _claim(self, wall: float) -> Obj:
        """The Lease with this process as its holder."""
        at = format_micro_time(wall)
        before = {} if self._lease is None else self._seen
        ours = before.get("holderIdentity") == self.options.identity
        transitions = before.get("leaseTransitions") or 0
        spec = {
            **before,
            "holderIdentity": self.options.identity,
            "leaseDurationSeconds": int(self.options.lease_duration),
            "acquireTime": before.get("acquireTime", at) if ours and self.leading else at,
            "renewTime": at,
            "leaseTransitions": transitions if ours or not before else transitions + 1,
        }
        return {**self._base(), "spec": spec}

    def _base(self) -> Obj:
        namespace, name = self.options.lease
        lease: Obj = self._lease or {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"namespace": namespace, "name": name},
        }
        meta = dict(lease["metadata"])
        if self.options.labels:
            meta["labels"] = {**labels_of(lease), **self.options.labels}
        if self.options.annotations:
            meta["annotations"] = {**annotations_of(lease), **self.options.annotations}
        return {**lease, "metadata": meta}

    def _lose(self, why: str) -> list[Command]:
        self.leading = False
        return [StoppedLeading(why), *self._over()]

    def _cancel(self, wall: float) -> list[Command]:
        if (
            self._state is _ElectionState.WRITING
            and not self.leading
            and self.options.release_on_cancel
        ):
            self._state = _ElectionState.REREADING  # the cancelled claim may have arrived
            return [GetLease()]
        if not (self.leading and self.options.release_on_cancel):
            stopped: list[Command] = [StoppedLeading("cancelled")] if self.leading else []
            self.leading = False
            return stopped + self._over()
        self.leading = False
        self._state = _ElectionState.RELEASING
        return [StoppedLeading("cancelled"), UpdateLease(self._released(self._base(), wall))]

    def _release_again(self, event: Fetched | Failed, wall: float) -> list[Command]:
        lease = event.lease if isinstance(event, Fetched) else None
        spec = (lease or {}).get("spec") or {}
        if lease is None or spec.get("holderIdentity") != self.options.identity:
            return self._over()
        self._lease, self._seen = lease, spec
        self._state = _ElectionState.LAST_RELEASING
        return [UpdateLease(self._released(lease, wall))]

    def _released(self, lease: Obj, wall: float) -> Obj:
        at = format_micro_time(wall)
        spec = {
            **self._seen,
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": at,
            "renewTime": at,
        }
        return {**lease, "spec": spec}

    def _over(self) -> list[Command]:
        self._state = _ElectionState.OVER
        return [ElectionOver()]
