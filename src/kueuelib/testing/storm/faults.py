"""The faults of the hostile world as data: the possible fates of calls and events.

Nothing is injected here: the adversary chooses a fate, and the wire executes it. Each kind of
fault in `CATALOGUE` names the guarantee, or the lack of one, that makes it legal in Kubernetes.
"""

from __future__ import annotations

import json
from typing import Final, Literal, Protocol

import attrs

from kueuelib.testing.storm.exchange import ObservedRequest

__all__ = [
    "CATALOGUE",
    "FINE",
    "FLOWING",
    "READS",
    "WRITES",
    "Adversary",
    "EventFate",
    "Fate",
    "FaultKind",
    "FaultTarget",
    "ForgedResponse",
    "Injection",
    "refusal",
]


# ---- injected faults and their targets -----------------------------------------------------------


@attrs.frozen
class FaultTarget:
    """The target of a fault; empty strings for missing parts.

    Attributes:
        owner: The process.
        verb: The verb of its call; `event` for an event of its watch.
        resource: The resource of its call.
        namespace: The namespace of the object that the call names.
        name: The name of the object that the call names.
    """

    owner: str = ""
    verb: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""


@attrs.frozen
class Injection:
    """One injected fault.

    Attributes:
        label: The label by which it can be suppressed.
        kind: The kind of fault.
        at: The virtual time in seconds.
        subject: Its target.
    """

    label: str
    kind: str
    at: float
    subject: FaultTarget = FaultTarget()


# --------------------------------------------------------------------------------------------------

READS: Final = frozenset({"get", "list", "watch"})
WRITES: Final = frozenset({"create", "update", "patch", "apply", "delete", "deletecollection"})

Place = Literal["connect", "call", "watch", "webhook", "event", "disaster", "moment"]


@attrs.frozen
class ForgedResponse:
    """An HTTP response that the adversary sends instead of the server.

    Attributes:
        status: The HTTP status code.
        body: The bytes of the body.
        headers: Pairs of names and values besides the length of the body.
    """

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)


@attrs.frozen
class Fate:
    """The fate of one connection or call; by default no fault.

    Attributes:
        delay: Seconds before the server receives the request.
        refuse: The answer that is sent instead of the server's, which never receives the request.
            For a connection, any answer means that it is refused.
        answer_delay: Seconds before the answer is sent to the client.
        lose_answer: The server handles the request; the connection is reset before the answer.
        cut_answer: The connection is reset after this share (0 to 1) of the answer's bytes.
        silent: The server handles the request, but no byte arrives: the client has to time out.
        instead: The server handles the request; this answer arrives instead of its own.
        stale_list: Answer from the state this many seconds ago, but not from one older than the
            `resourceVersion` of the request; only for a list or get that names one.
        faults: The names of the injected faults, for counting.
    """

    delay: float = 0.0
    refuse: ForgedResponse | None = None
    answer_delay: float = 0.0
    lose_answer: bool = False
    cut_answer: float | None = None
    silent: bool = False
    instead: ForgedResponse | None = None
    stale_list: float | None = None
    faults: tuple[str, ...] = ()


@attrs.frozen
class EventFate:
    """The fate of one event of a watch; the order within a watch never changes.

    Attributes:
        delay: Seconds by which this event and all later ones are delayed.
        close: Whether the stream ends in an orderly way before this event.
        cut: Whether the connection is reset in the middle of this event.
        silence: Whether neither this event nor a later one arrives, while the connection stays
            open.
        gone: Whether an ERROR event with code 410 arrives instead, and the stream ends.
        drop: Whether the event does not arrive; only for a bookmark, which is best effort.
        faults: The names of the injected faults, for counting.
    """

    delay: float = 0.0
    close: bool = False
    cut: bool = False
    silence: bool = False
    gone: bool = False
    drop: bool = False
    faults: tuple[str, ...] = ()


FINE: Final = Fate()
FLOWING: Final = EventFate()


class Adversary(Protocol):
    """Decides the fate of everything on the wire. Pure: equal questions have equal answers."""

    def connect(self, owner: str, peer: str, ordinal: int, now: float) -> Fate:
        """Return the fate of the attempt number `ordinal` of `owner` to connect to `peer`."""
        ...

    def call(self, call: ObservedRequest, now: float) -> Fate:
        """Return the fate of a request that is about to reach its server."""
        ...

    def event(self, watch: ObservedRequest, number: int, event: bytes, now: float) -> EventFate:
        """Return the fate of event `number` of a watch, counted from 0 for each stream."""
        ...


@attrs.frozen
class FaultKind:
    """One kind of fault.

    Attributes:
        name: The name under which it is counted.
        place: What it affects.
        legal: Why Kubernetes permits it.
        verbs: The verbs that it may affect; empty for faults that do not affect calls.
    """

    name: str
    place: Place
    legal: str
    verbs: frozenset[str] = frozenset()


_CALLS: Final = WRITES | {"get", "list"}
_ALL: Final = _CALLS | {"watch"}
_TIMEOUT: Final = "a timeout or reset says nothing about the outcome"
_PROXY: Final = "replicas restart and proxies drop connections"
_WATCHES: Final = "each watch has its own pace; only the order within one is guaranteed"

CATALOGUE: Final[dict[str, FaultKind]] = {
    kind.name: kind
    for kind in (
        FaultKind("refused", "connect", "a server that restarts accepts no connection"),
        FaultKind("slow-connect", "connect", "the network gives no bound for a handshake"),
        FaultKind("delay", "call", "the network gives no bound for a request", _ALL),
        FaultKind("slow-answer", "call", "the network gives no bound for an answer", _CALLS),
        FaultKind("lost-answer", "call", _TIMEOUT, _CALLS),
        FaultKind("cut-answer", "call", _PROXY, _CALLS),
        FaultKind("silence", "call", "a half-open connection stays silent", _CALLS),
        FaultKind(
            "409",
            "call",
            "optimistic concurrency: an update or patch may conflict",
            frozenset({"update", "patch"}),
        ),
        FaultKind(
            "429", "call", "priority and fairness rejects any call, Lease renewals too", _ALL
        ),
        FaultKind("500", "call", "a replica fails before it handles the request", _ALL),
        FaultKind("503", "call", "no replica is available", _ALL),
        FaultKind("504", "call", _TIMEOUT, _CALLS),
        FaultKind("late-504", "call", "the server commits, then its own deadline passes", _CALLS),
        FaultKind("outage", "call", "the conversion webhook of one kind is down for a while", _ALL),
        FaultKind(
            "stale-list",
            "call",
            "resourceVersion=0 means any version, another one means not older: replicas may lag",
            frozenset({"get", "list"}),
        ),
        FaultKind(
            "too-large-version",
            "call",
            "a lagging replica gives up after three seconds with a retry hint",
            frozenset({"list"}),
        ),
        FaultKind(
            "overtaken",
            "call",
            "anybody may change or delete an object while a write of it is under way",
            WRITES - {"create", "deletecollection"},
        ),
        FaultKind("410", "watch", "history is kept for minutes only", frozenset({"watch"})),
        FaultKind("webhook-away", "webhook", "a webhook is a server and may be away"),
        FaultKind("webhook-slow", "webhook", "a webhook answers late or not at all"),
        FaultKind("webhook-garbage", "webhook", "a proxy answers in place of the webhook"),
        FaultKind("event-delay", "event", _WATCHES),
        FaultKind("event-close", "event", "a server ends a watch at any time"),
        FaultKind("event-cut", "event", _PROXY),
        FaultKind("event-silence", "event", "a half-open connection stays silent"),
        FaultKind("event-gone", "event", "history is kept for minutes only; a relist is due"),
        FaultKind("no-bookmarks", "event", "bookmarks are best effort"),
        FaultKind("kill", "disaster", "a process crashes between any two writes"),
        FaultKind("kill-after-write", "disaster", "a process crashes right after a write"),
        FaultKind("stop", "disaster", "a new version is rolled out: a process is asked to stop"),
        FaultKind("stop-after-write", "disaster", "a process is asked to stop right after a write"),
        FaultKind("pause", "disaster", "a machine suspends a process for any time"),
        FaultKind("skew", "disaster", "clocks of machines differ in offset and rate"),
        FaultKind("server-restart", "disaster", "an API server restarts and keeps its history"),
        FaultKind("server-amnesia", "disaster", "an API server restarts and etcd is compacted"),
        FaultKind(
            "jobs-held", "disaster", "the Job controller is a process of its own and may wait"
        ),
        FaultKind("jobs-late", "disaster", "the Job controller acts on reads that are seconds old"),
        FaultKind("trickle", "moment", _WATCHES),
        FaultKind("garbage-late", "moment", "the garbage collector acts seconds after a deletion"),
        FaultKind("recreated", "moment", "a name is free again as soon as its object is gone"),
        FaultKind("replaced", "moment", "the manager itself creates a Workload again"),
        FaultKind("doubted", "moment", _TIMEOUT),
        FaultKind("undone", "moment", "users deactivate a Workload at any time"),
        FaultKind("overslept", "moment", "a machine suspends a process for longer than its Lease"),
    )
}
"""Every kind of fault, by name."""


def refusal(
    code: int, reason: str, message: str, *, retry_after: int | None = None, cause: str = ""
) -> ForgedResponse:
    """Return the answer of an API server that refuses a call, with a `Status` as its body.

    Args:
        code: The HTTP status code.
        reason: The machine-readable reason, for example `Conflict`.
        message: The sentence for people.
        retry_after: Seconds after which to retry, or `None` for no hint.
        cause: The reason of a cause in the details, for example `ResourceVersionTooLarge`.
    """
    details: dict[str, object] = {}
    if cause:
        details["causes"] = [{"reason": cause, "message": message}]
    if retry_after is not None:
        details["retryAfterSeconds"] = retry_after
    status: dict[str, object] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
        "details": details,
    }
    headers = [("Content-Type", "application/json")]
    if retry_after is not None:
        headers.append(("Retry-After", str(retry_after)))
    return ForgedResponse(code, json.dumps(status).encode(), tuple(headers))
