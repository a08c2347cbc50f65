"""Decides the fate of calls and events from labelled draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from urllib.parse import parse_qs

import attrs

from kueuelib.testing.storm.faults import FaultTarget, Injection

from .draws import Draws
from .exchange import ObservedRequest
from .faults import CATALOGUE, FINE, FLOWING, WRITES, EventFate, Fate, ForgedResponse, refusal
from .profiles import WORKLOADS, Weather

__all__ = ["Hostile", "Remaining"]

MANAGERS = "manager"
"""The prefix of the names of managers."""
FOCUS = 4.0
"""The factor for faults on the resource in focus."""
MOST = 0.6
"""The largest probability of a fault: retries must be able to succeed."""
WEBHOOK_PATIENCE = 10.0
"""Seconds after which the API server gives up on a webhook; slow ones may exceed it."""

STALLS = 2.0
"""The factor for late events after a lost answer or an overtaken write."""
TRICKLE = 4.0
"""Seconds between two events of a watch that trickles."""
MOST_BEHIND = 40.0
"""Seconds after which such a watch delivers its events at once."""
OVERTAKEN = frozenset({WORKLOADS, "jobs.batch", "pods"})
"""The resources that users change or delete while a manager writes them."""
OVERTAKING = (0.1, 5.0)
"""Seconds for which a write is held back so that a user overtakes it."""


def _reserves(call: ObservedRequest) -> bool:
    """Whether a write gives quota to a Workload."""
    return call.resource == WORKLOADS and b'"podSetAssignments"' in call.body


def _starts(call: ObservedRequest) -> bool:
    """Whether a write starts a Job."""
    return call.resource == "jobs.batch" and b'"suspend":false' in call.body


def _ends(call: ObservedRequest) -> bool:
    """Whether a write says that a Workload is Finished; the removal of its finalizer follows."""
    return call.resource == WORKLOADS and b'"type":"Finished"' in call.body


@attrs.frozen
class Ambush:
    """What happens at one moment.

    Attributes:
        moment: Whether a write of a manager is such a moment.
        fate: The fate of the write.
        stall: Seconds for which the events of Workloads are late from then on.
    """

    moment: Callable[[ObservedRequest], bool]
    fate: Fate = FINE
    stall: float = 0.0


AMBUSHES = {
    "recreated": Ambush(_starts, Fate(delay=1.0)),
    "replaced": Ambush(_reserves, Fate(delay=4.0)),
    "doubted": Ambush(_reserves, Fate(answer_delay=6.0, lose_answer=True), stall=25.0),
    "undone": Ambush(_starts),
    "overslept": Ambush(_ends),
}
"""What users and machines do at the moments that matter; at most one of them strikes a call."""

_CONFLICT = refusal(409, "Conflict", "the object has been modified; read it and try again")
_INTERNAL = refusal(500, "InternalError", "an error on the server prevented the request")
_AWAY = refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request")
_TIMEOUT = refusal(504, "Timeout", "request did not complete within the allotted time")
_EXPIRED = refusal(410, "Expired", "too old resource version")
_AHEAD = refusal(
    504, "Timeout", "Too large resource version", retry_after=1, cause="ResourceVersionTooLarge"
)
_BROKEN = refusal(500, "InternalError", "conversion webhook failed: connection refused")
_GARBAGE = ForgedResponse(200, b"<html>502 Bad Gateway</html>", (("Content-Type", "text/html"),))
_REFUSED = ForgedResponse(503)
_EXACT = frozenset({"limit", "resourceVersionMatch"})
"""Parameters with which a version does not only mean *not older than that*."""


class Remaining:
    """The faults that remain in the calm: those that may last forever, and those that happen once.

    Args:
        lags: Whether replicas never reach the version that a client has seen. A kind without writes
            may stay like that forever (kubernetes#107133).
        conflicts: Whether the first change of every object has a conflict, after an invisible write
            by another client.
    """

    def __init__(self, *, lags: bool, conflicts: bool) -> None:
        self._lags = lags
        self._conflicts = conflicts
        self._met: set[tuple[str, str, str]] = set()

    def connect(self, owner: str, peer: str, ordinal: int, now: float) -> Fate:
        """Return the fate of an attempt to connect: no fault."""
        del owner, peer, ordinal, now
        return FINE

    def call(self, call: ObservedRequest, now: float) -> Fate:
        """Return the fate of a request."""
        del now
        if not _struck(call.owner, call.peer):
            return FINE
        if self._lags and call.verb == "list" and "continue=" not in call.query:
            if _possible("too-large-version", call):
                return Fate(refuse=_AHEAD, faults=("too-large-version",))
        elif self._conflicts and self._is_first(call):
            return Fate(refuse=_CONFLICT, faults=("409",))
        return FINE

    def _is_first(self, call: ObservedRequest) -> bool:
        """Whether it is the first attempt to change an object; Leases are excepted."""
        key = (call.resource, call.namespace, call.name)
        if call.verb not in CATALOGUE["409"].verbs or call.resource in _QUIET_KINDS:
            return False
        first = key not in self._met
        self._met.add(key)
        return first

    def event(self, watch: ObservedRequest, number: int, event: bytes, now: float) -> EventFate:
        """Return the fate of one event of a watch: no fault."""
        del watch, number, event, now
        return FLOWING


class Hostile:
    """The adversary of one seed.

    Args:
        draws: The stream of the faults.
        weather: Which faults are active at which rates.
        start: The virtual time at which the storm starts, in seconds.
        only: The labels of the faults that may happen; `None` means any.
        seen: Called with each injection.
        meddlers: Whether users write objects that a manager is writing.
        owners: The prefix of the processes whose links it owns; empty for those of all.
    """

    def __init__(
        self,
        draws: Draws,
        weather: Weather,
        *,
        start: float = 0.0,
        only: frozenset[str] | None = None,
        seen: Callable[[Injection], None] | None = None,
        meddlers: bool = True,
        owners: str = MANAGERS,
    ) -> None:
        self.injections: list[Injection] = []
        self.counts: Counter[str] = Counter()
        self._meddlers = meddlers
        self._owners = owners
        self._draws = draws
        self._weather = weather
        self._start = start
        self._only = only
        self._seen = seen
        self._now = start
        self._subject = FaultTarget()
        self._writes: Counter[str] = Counter()
        self._frozen: dict[tuple[str, str], tuple[float, str]] = {}
        self._last_event: dict[tuple[str, str], float] = {}

    def connect(self, owner: str, peer: str, ordinal: int, now: float) -> Fate:
        """Return the fate of an attempt to connect."""
        self._now = now
        if not _struck(owner, peer, self._owners):
            return FINE
        self._subject = FaultTarget(owner)
        label = f"connect/{owner}/{peer}/{ordinal}"
        if self._strikes(label, "refused", ""):
            return Fate(refuse=_REFUSED, faults=("refused",))
        if self._strikes(label, "slow-connect", ""):
            return Fate(delay=self._seconds(f"{label}/slow-connect"), faults=("slow-connect",))
        return FINE

    def call(self, call: ObservedRequest, now: float) -> Fate:
        """Return the fate of a request."""
        self._now = now
        if not _struck(call.owner, call.peer, self._owners):
            return FINE
        self._subject = _subject(call, call.verb)
        if call.verb == "webhook":
            return self._webhook(call)
        if call.resource in self._weather.spared:
            return FINE
        label = _label(call)
        broken = self._outage(call)
        if broken:
            return broken
        for kind, ambush in AMBUSHES.items():
            if ambush.moment(call) and self._meddlers and self._strikes(label, kind, ""):
                if ambush.stall:
                    self._frozen[call.owner, WORKLOADS] = self._now + ambush.stall, kind
                return attrs.evolve(ambush.fate, faults=(kind,))
        fate = self._ending(call, label)
        faults = fate.faults
        delay = answer_delay = 0.0
        if self._strikes(label, "delay", call.resource):
            delay = self._seconds(f"{label}/delay")
            faults = (*faults, "delay")
        if fate.refuse is None and self._overtaken(call, label):
            delay += self._draws.scaled(f"{label}/overtaken/delay", *OVERTAKING)
            self._stall(call.owner, WORKLOADS, label)
            faults = (*faults, "overtaken")
        if call.verb != "watch" and self._strikes(label, "slow-answer", call.resource):
            answer_delay = self._seconds(f"{label}/slow-answer")
            faults = (*faults, "slow-answer")
        return attrs.evolve(fate, delay=delay, answer_delay=answer_delay, faults=faults)

    def event(self, watch: ObservedRequest, number: int, event: bytes, now: float) -> EventFate:
        """Return the fate of one event of a watch."""
        self._now = now
        if not _struck(watch.owner, watch.peer, self._owners):
            return FLOWING
        if watch.resource in self._weather.spared:
            return FLOWING
        self._subject = _subject(watch, "event")
        if _is_bookmark(event):
            # One draw for each stream: all of its bookmarks are missing, or none.
            missing = self._strikes(f"event/{_label(watch)}", "no-bookmarks", "", share=3.0)
            return EventFate(drop=True, faults=("no-bookmarks",)) if missing else FLOWING
        if self._outage(watch) is not None:
            return EventFate(
                gone=True, faults=("outage",)
            )  # and no client can watch again for a while
        until, cause = self._frozen.get((watch.owner, watch.resource), (0.0, ""))
        if until > now:  # the replica whose list was old is still behind
            return EventFate(delay=until - now, faults=(cause,))
        if self._strikes(f"event/{_label(watch)}", "trickle", watch.resource):
            last = self._last_event.get((watch.owner, watch.resource), 0.0)
            due = min(max(last + TRICKLE, self._now), self._now + MOST_BEHIND)
            self._last_event[watch.owner, watch.resource] = due
            return EventFate(delay=due - self._now, faults=("trickle",))
        label = f"event/{_label(watch)}/{number}"
        for kind, fate in _ENDS.items():
            # A watch has many events, so an end strikes each one a fifth as often as a fault
            # strikes a call.
            if self._strikes(label, kind, watch.resource, share=0.2):
                return fate
        if self._strikes(label, "event-delay", watch.resource, share=0.5):
            delay = self._seconds(f"{label}/event-delay")
            return EventFate(delay=delay, faults=("event-delay",))
        return FLOWING

    def wrote(self, owner: str, resource: str, namespace: str, name: str, now: float) -> str:
        """Return how a manager ends right after a write that was committed just now.

        Returns:
            `kill-after-write`, `stop-after-write`, or an empty string: it does not end.
        """
        self._now = now
        if resource in _QUIET_KINDS:
            return ""
        self._subject = FaultTarget(owner, "", resource, namespace, name)
        key = f"write/{owner}/{resource}/{namespace}/{name}"
        self._writes[key] += 1
        label = f"{key}/{self._writes[key]}"
        for kind, share in _LAST_WRITES.items():
            if self._strikes(label, kind, resource, share=share):
                return kind
        return ""

    def _overtaken(self, call: ObservedRequest, label: str) -> bool:
        """Whether a user writes the object of a call while the call is under way."""
        return (
            self._meddlers
            and bool(call.name)
            and call.verb in CATALOGUE["overtaken"].verbs
            and call.resource in OVERTAKEN
            and self._strikes(label, "overtaken", call.resource, share=0.15)
        )

    def _ending(self, call: ObservedRequest, label: str) -> Fate:
        """Return the fate of the answer: at most one fault."""
        for kind in _ENDINGS:
            if call.verb not in CATALOGUE[kind].verbs or not _possible(kind, call):
                continue
            if self._strikes(label, kind, call.resource):
                if kind in _UNHEARD and call.verb in WRITES:
                    self._stall(call.owner, call.resource, label)
                return self._made(kind, label, call)
        return FINE

    def _stall(self, owner: str, resource: str, label: str) -> None:
        """After a lost answer or an overtaken write, the events are often late, too."""
        if self._strikes(f"{label}/stall", "event-delay", resource, share=STALLS):
            seconds = self._seconds(f"{label}/stall")
            self._frozen[owner, resource] = self._now + seconds, "event-delay"

    def _made(self, kind: str, label: str, call: ObservedRequest) -> Fate:
        draws = self._draws
        fate = FINE
        match kind:
            case "lost-answer":
                fate = Fate(lose_answer=True)
            case "cut-answer":
                fate = Fate(cut_answer=draws.unit(f"{label}/cut"))
            case "silence":
                fate = Fate(silent=True)
            case "late-504":
                fate = Fate(instead=_TIMEOUT)
            case "stale-list":
                age = draws.scaled(f"{label}/age", 0.5, 120.0)
                self._frozen[call.owner, call.resource] = self._now + age, "stale-list"
                fate = Fate(stale_list=age)
            case "429":
                pause = draws.integer(f"{label}/pause", 1, 8)
                text = "too many requests, please try again later"
                fate = Fate(refuse=refusal(429, "TooManyRequests", text, retry_after=pause))
            case _:
                fate = Fate(refuse=_REFUSALS[kind])
        return attrs.evolve(fate, faults=(kind,))

    def _outage(self, call: ObservedRequest) -> Fate | None:
        since = self._now - self._start
        for outage in self._weather.outages:
            reads = call.verb in {"get", "list", "watch"}
            if (
                outage.owner in {"", call.owner}
                and outage.resource == call.resource
                and outage.reads == reads
                and outage.start <= since < outage.end
                and self._permitted(outage.label)
            ):
                self._note(outage.label, "outage")
                return Fate(refuse=_BROKEN, faults=("outage",))
        return None

    def _webhook(self, call: ObservedRequest) -> Fate:
        label = _label(call)
        if self._strikes(label, "webhook-away", ""):
            return Fate(refuse=_AWAY, faults=("webhook-away",))
        if self._strikes(label, "webhook-garbage", ""):
            return Fate(refuse=_GARBAGE, faults=("webhook-garbage",))
        if self._strikes(label, "webhook-slow", ""):
            delay = self._draws.uniform(f"{label}/slow", 0.0, 2 * WEBHOOK_PATIENCE)
            return Fate(answer_delay=delay, faults=("webhook-slow",))
        return FINE

    def _strikes(self, label: str, kind: str, resource: str, share: float = 1.0) -> bool:
        rate = self._weather.rates.get(kind)
        if rate is None:
            return False
        if resource and resource == self._weather.focus:
            rate *= FOCUS
        name = f"{label}/{kind}"
        if not self._draws.chance(name, min(rate * share, MOST)) or not self._permitted(name):
            return False
        self._note(name, kind)
        return True

    def _permitted(self, label: str) -> bool:
        return self._only is None or label in self._only

    def _note(self, label: str, kind: str) -> None:
        injection = Injection(label, kind, self._now, self._subject)
        self.injections.append(injection)
        self.counts[kind] += 1
        if self._seen is not None:
            self._seen(injection)

    def _seconds(self, label: str) -> float:
        """Return a delay: short ones are more likely than long ones."""
        return self._weather.longest * self._draws.unit(f"{label}/seconds") ** 3


_REFUSALS = {
    "409": _CONFLICT,
    "410": _EXPIRED,
    "500": _INTERNAL,
    "503": _AWAY,
    "504": _TIMEOUT,
    "too-large-version": _AHEAD,
}
_QUIET_KINDS = frozenset({"leases.coordination.k8s.io", "events", "events.events.k8s.io"})
"""Kinds whose writes are too frequent to end a process after them."""
_UNHEARD = frozenset({"lost-answer", "cut-answer", "silence", "late-504"})
"""Faults after which a client does not know the result of its write."""
_LAST_WRITES = {"kill-after-write": 0.3, "stop-after-write": 0.15}
"""How a process ends after a write, and the share of the rate per write."""
_ENDS = {
    "event-close": EventFate(close=True, faults=("event-close",)),
    "event-cut": EventFate(cut=True, faults=("event-cut",)),
    "event-silence": EventFate(silence=True, faults=("event-silence",)),
    "event-gone": EventFate(gone=True, faults=("event-gone",)),
}
_ENDINGS = (
    "lost-answer",
    "cut-answer",
    "silence",
    "late-504",
    "stale-list",
    "429",
    *_REFUSALS,
)


def _struck(owner: str, peer: str, owners: str = MANAGERS) -> bool:
    """Whether the adversary owns the link: users, observers and companions have a clean one."""
    return owner.startswith(owners) or peer.startswith(f"webhook@{owners}")


def _is_bookmark(event: bytes) -> bool:
    """Whether an event is a bookmark that may be missing, that is, not the end of initial
    events.
    """
    return b'"BOOKMARK"' in event[:64] and b"k8s.io/initial-events-end" not in event


def _label(call: ObservedRequest) -> str:
    parts = (call.verb, call.resource, call.namespace, call.name, call.subresource)
    where = "/".join(part for part in parts if part)
    return f"{call.owner}>{call.peer}/{where}/{call.ordinal}"


def _subject(call: ObservedRequest, verb: str) -> FaultTarget:
    return FaultTarget(call.owner, verb, call.resource, call.namespace, call.name)


def _possible(kind: str, call: ObservedRequest) -> bool:
    """Whether the parameters of a call permit a fault of this kind."""
    if kind not in {"stale-list", "too-large-version", "410"}:
        return True
    query = parse_qs(call.query)
    version = query.get("resourceVersion", [""])[0]
    if kind == "stale-list":
        return version == "0" or (bool(version) and not query.keys() & _EXACT)
    return version not in {"", "0"}
