"""The rules of leader election on a Lease (spec/framework 3)."""

from __future__ import annotations

from enum import Enum

import attrs

from kueuelib.api.kinds import LEASES
from kueuelib.api.meta import Obj, ObjectKey, format_micro_time


@attrs.frozen
class ElectionOptions:
    """Who wants to lead, and how patient everybody is; all times in seconds.

    Raises:
        ValueError: unless `lease_duration > renew_deadline > retry_period * jitter > 0`.
    """

    lease: ObjectKey
    identity: str
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    jitter: float = 1.2
    release_on_cancel: bool = False

    def __attrs_post_init__(self) -> None:
        if not self.identity:
            raise ValueError("the identity must not be empty")
        if not self.lease_duration > self.renew_deadline:
            raise ValueError("the lease duration must exceed the renew deadline")
        if not self.renew_deadline > self.retry_period * self.jitter > 0:
            raise ValueError("the renew deadline must exceed the retry period with its jitter")

    @property
    def request_timeout(self) -> float:
        """Seconds after which one call is given up."""
        return max(1.0, self.renew_deadline / 2)


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
    """Replace it; its resource version makes the server refuse what is based on old news."""

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
    """Somebody, perhaps this process, holds the Lease now."""

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


class _State(Enum):
    NEW = "new"
    FETCHING = "fetching"
    WRITING = "writing"
    FAST_WRITING = "fast writing"
    WAITING = "waiting"
    RELEASING = "releasing"
    OVER = "over"


class ElectionCore:
    """Decides when to take, renew and give up a Lease.

    The shell runs `start`, then executes the commands in order; the last one is a call, a `Wait` or
    `Stop`, and its outcome is fed to `step`. While `deadline` is not None it also feeds `Tick` at
    that time even though a call is under way, and then abandons that call.

    Guarantees: whether another holder's lease has expired is judged only by how long *this* process
    saw no change of the record, never by comparing clocks of two machines. Leadership ends on our
    side (`renew_deadline` after the last successful renewal began) before others may take over.

    Attributes:
        leading: whether this process leads, as of the last step.
        slow_paths: renewals that needed a fresh read first.
    """

    def __init__(self, options: ElectionOptions) -> None:
        self.options = options
        self.leading = False
        self.slow_paths = 0
        self._state = _State.NEW
        self._lease: Obj | None = None
        self._seen: Obj = {}  # the spec that was observed last
        self._seen_at = 0.0
        self._holder = ""
        self._renewing_since = 0.0
        self._renewed = 0.0

    @property
    def deadline(self) -> float | None:
        """When leadership ends unless it is renewed before; None when not leading."""
        return self._renewed + self.options.renew_deadline if self.leading else None

    def is_leader(self, now: float) -> bool:
        """Whether this process may act as the leader at this moment; ask before every write."""
        return self.leading and now < self._renewed + self.options.renew_deadline

    def start(self, now: float) -> tuple[Command, ...]:
        """The first command."""
        if self._state is not _State.NEW:
            raise ValueError("an election is started once")
        return tuple(self._fetch(now))

    def step(self, event: Input, now: float, wall: float, chance: float) -> tuple[Command, ...]:
        """Feed what happened, get what to do.

        Args:
            event: what happened.
            now: monotonic seconds.
            wall: seconds since the epoch, only written into the Lease.
            chance: a random number in [0, 1).

        Raises:
            ValueError: the input does not fit what was commanded last.
        """
        if self.leading and now >= self._renewed + self.options.renew_deadline:
            return tuple(self._lose("the lease could not be renewed in time"))
        match event:
            case Cancelled() if self._state is not _State.OVER:
                found = self._cancel(wall)
            case Written() | Failed() if self._state is _State.RELEASING:
                found = self._over()
            case Fetched(lease) if self._state is _State.FETCHING:
                found = self._fetched(lease, now, wall, chance)
            case Written(lease) if self._state in (_State.WRITING, _State.FAST_WRITING):
                found = self._written(lease, now)
            case Failed() if self._state is _State.FAST_WRITING:
                self.slow_paths += 1
                found = self._fetch(self._renewing_since)
            case Failed() if self._state in (_State.FETCHING, _State.WRITING):
                found = self._retry(chance)
            case Tick() if self._state is _State.WAITING and self.leading:
                self._renewing_since = now
                found = self._update(wall, _State.FAST_WRITING)
            case Tick() if self._state is _State.WAITING:
                found = self._fetch(now)
            case Tick() if self._state is not _State.NEW:
                found = []
            case _:
                raise ValueError(f"{type(event).__name__} does not fit while {self._state.value}")
        return tuple(found)

    def _fetch(self, now: float) -> list[Command]:
        self._renewing_since = now
        self._state = _State.FETCHING
        return [GetLease()]

    def _fetched(self, lease: Obj | None, now: float, wall: float, chance: float) -> list[Command]:
        if lease is None:
            self._lease = None
            self._state = _State.WRITING
            return [CreateLease(self._claim(wall))]
        said = self._observe(lease, now)
        holder = self._seen.get("holderIdentity") or ""
        if holder and holder != self.options.identity:
            if self.leading:
                return said + self._lose(f"{holder} holds the lease")
            duration = self._seen.get("leaseDurationSeconds") or self.options.lease_duration
            if now < self._seen_at + duration:
                return said + self._retry(chance)
        return said + self._update(wall, _State.WRITING)

    def _update(self, wall: float, state: _State) -> list[Command]:
        self._state = state
        return [UpdateLease(self._claim(wall))]

    def _written(self, lease: Obj, now: float) -> list[Command]:
        said = self._observe(lease, now)
        self._renewed = self._renewing_since
        if not self.leading:
            if now >= self._renewed + self.options.renew_deadline:
                return said + self._fetch(now)
            self.leading = True
            said.append(StartedLeading())
        return said + self._wait(self.options.retry_period)

    def _retry(self, chance: float) -> list[Command]:
        jitter = 0.0 if self.leading else self.options.jitter * chance
        return self._wait(self.options.retry_period * (1.0 + jitter))

    def _wait(self, seconds: float) -> list[Command]:
        self._state = _State.WAITING
        return [Wait(seconds)]

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
            "acquireTime": before.get("acquireTime", at) if ours else at,
            "renewTime": at,
            "leaseTransitions": transitions if ours or not before else transitions + 1,
        }
        return {**self._base(), "spec": spec}

    def _base(self) -> Obj:
        if self._lease is not None:
            return self._lease
        namespace, name = self.options.lease
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"namespace": namespace, "name": name},
        }

    def _lose(self, why: str) -> list[Command]:
        self.leading = False
        return [StoppedLeading(why), *self._over()]

    def _cancel(self, wall: float) -> list[Command]:
        if not (self.leading and self.options.release_on_cancel):
            stopped: list[Command] = [StoppedLeading("cancelled")] if self.leading else []
            self.leading = False
            return stopped + self._over()
        self.leading = False
        self._state = _State.RELEASING
        at = format_micro_time(wall)
        spec = {
            **self._seen,
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": at,
            "renewTime": at,
        }
        return [StoppedLeading("cancelled"), UpdateLease({**self._base(), "spec": spec})]

    def _over(self) -> list[Command]:
        self._state = _State.OVER
        return [Stop()]
