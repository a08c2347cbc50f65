"""Laws about the calls of managers, whatever their results.

A store only shows writes that succeeded. A manager that forgets what it wrote, or retries without
success, is protected by conflicts and visible only on the wire.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import attrs

from kueuelib.testing.storm.history import Commit, Obj
from kueuelib.testing.storm.laws.law import CALL, COMMIT, Law, Tolerance, Violation
from kueuelib.testing.storm.laws.memory import is_manager
from kueuelib.testing.storm.laws.reading import (
    CLUSTER_QUEUES,
    IN_USE,
    JOBS,
    LEASES,
    LOCAL_QUEUES,
    PODS,
    WORKLOADS,
    busy,
    condition,
    controller,
    finished,
    job_end,
    leaving,
    meta,
    reserving,
    spec,
    suspended,
    uid,
)

# ---- tracks running Jobs, and recognises calls that release the quota of one ---------------------

Key = tuple[str, str, str]
"""Resource, namespace and name."""


class UninterruptedRuns:
    """The Jobs that run without a pause, and the Workloads that hold quota for them."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[Key, int]] = {}
        self._used_by: dict[Key, str] = {}

    def commit(self, commit: Commit) -> None:
        """Take in a commit."""
        new = commit.new
        if commit.resource == JOBS:
            identity = uid(commit.present)
            if new is None or not _runs(new):
                self._since.pop(identity, None)
            else:
                version = int(meta(new).get("resourceVersion") or 0)
                self._since.setdefault(identity, (commit.key, version))
        elif commit.resource == WORKLOADS:
            self._used_by.pop(commit.key, None)
            owner = controller(new) if new is not None else {}
            if new is not None and owner and reserving(new) and not finished(new):
                self._used_by[commit.key] = str(owner["uid"])

    def used(self, workload: Key) -> tuple[Key, int] | None:
        """The running Job of a Workload.

        Returns:
            the Job, and the version since which all its states were running; None if it does not
            run.
        """
        return self._since.get(self._used_by.get(workload, ""))


def lets_go(subresource: str, body: bytes) -> bool:
    """Whether a patch of a Workload releases its quota, or permits its deletion."""
    try:
        patch: Any = json.loads(body)
    except ValueError:
        return False
    if isinstance(patch, list):
        return any(step.get("op") == "test" and step.get("value") == IN_USE for step in patch)
    if subresource != "status" or not isinstance(patch, dict):
        return False
    return condition(patch, "QuotaReserved").get("status") == "False"


def _runs(job: Obj) -> bool:
    """Whether a Job may start pods, or has some."""
    return not leaving(job) and not job_end(job) and (not suspended(job) or busy(job))


# ---- checks that a manager charges the quota that it has reserved --------------------------------

ObjectKey = tuple[str, str]
"""Namespace and name."""


class Mind(Protocol):
    """The beliefs of a manager, from its start to its end."""

    def charges(self, namespace: str, name: str, uid: str, /) -> bool:
        """Whether it charges exactly this Workload."""
        ...


class Charged:
    """The reservations written by managers that are still alive.

    A manager charges a Workload from its decision until it has seen the release of the quota, which
    is visible only once it is stored. A request from an earlier life may be stored during the next
    one, which need not know of it.

    Args:
        mind: returns the mind of a manager by name, the same one until it ends; None if it does not
            run or cannot be inspected.
    """

    def __init__(self, mind: Callable[[str], Mind | None]) -> None:
        self._mind = mind
        self._sent: dict[tuple[str, ObjectKey], tuple[str, Mind]] = {}
        self._stored: dict[ObjectKey, tuple[str, str, Mind]] = {}

    def sent(self, owner: str, key: ObjectKey, body: bytes) -> None:
        """A manager asks for a change of the status of a Workload."""
        patch = json.loads(body)
        if condition(patch, "QuotaReserved").get("status") != "True":
            return
        mind = self._mind(owner)
        if mind is not None:
            self._sent[owner, key] = uid(patch), mind

    def committed(self, commit: Commit) -> Iterator[tuple[ObjectKey, str]]:
        """Take in a commit.

        Returns:
            the Workloads, each once, that the writer has reserved quota for without charging them,
            and their UIDs.
        """
        if commit.resource == WORKLOADS:
            self._store(commit)
        if not is_manager(commit.actor):
            return
        present = self._mind(commit.actor)
        for key, (owner, identity, mind) in tuple(self._stored.items()):
            if owner == commit.actor and mind is present and not mind.charges(*key, identity):
                del self._stored[key]
                yield key, identity

    def _store(self, commit: Commit) -> None:
        key, new = (commit.namespace, commit.name), commit.new
        if new is not None and reserving(new) and reserving(commit.old):
            return
        self._stored.pop(key, None)
        asked = self._sent.get((commit.actor, key))
        if new is not None and reserving(new) and asked is not None and asked[0] == uid(new):
            self._stored[key] = (commit.actor, *asked)


# --------------------------------------------------------------------------------------------------

SERVER = "server"
LED = frozenset({WORKLOADS, JOBS, PODS, CLUSTER_QUEUES, LOCAL_QUEUES})
"""The resources that only the leader writes."""
WRITES = frozenset({"create", "update", "patch", "apply", "delete"})
REFUSED = frozenset({400, 403, 415, 422})
"""Answers to a write that is wrong whatever the state of the object."""
WINDOW = 10.0
"""Seconds over which calls are counted."""
MOST = 60
"""The maximum number of calls of one kind about one object within the window."""

RELEASED = Law(
    "no-write-after-release",
    CALL,
    "A process that gave the Lease up sends no more writes as the leader.",
)
LEASED = Law(
    "writes-within-the-lease",
    CALL,
    "A leader sends writes only while the Lease that it renewed last has not expired.",
)
REMEMBERED = Law(
    "own-answers-are-remembered",
    CALL,
    "A write is not made from a state older than the last answer that this process received.",
)
REPEATED = Law(
    "conflicts-are-read-again",
    CALL,
    "What a conflict has refused is not sent again before the object is asked for.",
)
CHANGING = Law(
    "writes-change-something",
    CALL,
    "A write with the current version of an object changes the object.",
)
VALID = Law(
    "requests-are-valid", CALL, "The server does not refuse a write as malformed or not allowed."
)
BOUNDED = Law("calls-are-bounded", CALL, "The same call is not sent again and again in no time.")
KEPT = Law(
    "nothing-is-let-go-while-it-runs",
    CALL,
    "A Workload keeps its quota and its finalizer as long as its Job is known to run.",
)
CONDITIONAL = Law(
    "changes-are-conditional",
    CALL,
    "A job, a pod, or what was admitted is changed only if nobody else changed it meanwhile.",
)
PRESENT = Law(
    "begins-with-the-present",
    CALL,
    "A new process does not begin with a list that is older than the writes before it.",
)
TAKEN_OVER = Law(
    "takes-over-with-the-present",
    CALL,
    "A new leader reads what managers wrote before it took the Lease, and writes only then.",
)
CHARGED = Law(
    "reservations-are-charged",
    COMMIT,
    "What a manager has reserved is charged in its engine for as long as it is stored.",
)

CONDUCT = (
    RELEASED,
    LEASED,
    REMEMBERED,
    REPEATED,
    CHANGING,
    VALID,
    BOUNDED,
    KEPT,
    CONDITIONAL,
    PRESENT,
    TAKEN_OVER,
    CHARGED,
)
"""All of them."""

"""Resource, namespace and name."""


class RequestFacts(Protocol):
    """The parts of a request that these laws read."""

    @property
    def owner(self) -> str:
        """The process that sent it."""
        ...

    @property
    def peer(self) -> str:
        """The process that receives it."""
        ...

    @property
    def verb(self) -> str:
        """The Kubernetes verb."""
        ...

    @property
    def resource(self) -> str:
        """The resource with its group."""
        ...

    @property
    def namespace(self) -> str:
        """The namespace, or an empty string."""
        ...

    @property
    def name(self) -> str:
        """The name of the object, or an empty string."""
        ...

    @property
    def subresource(self) -> str:
        """The subresource, or an empty string."""
        ...

    @property
    def title(self) -> str:
        """Its name in a timeline."""
        ...

    @property
    def body(self) -> bytes:
        """The body."""
        ...


@attrs.define
class ProcessConduct:
    """The calls and answers of one process.

    Attributes:
        renewed: when it sent its last granted claim of a Lease.
        began: the newest version written by a manager before this process began.
        taken_over: the newest version of a Workload written by a manager before this process took
            the Lease.
        listed: the version of its newest list of Workloads.
        released: whether it has released the Lease since.
        claims: when unanswered claims were sent, by identity of the call.
        known: the newest version in an answer, and the time of the answer.
        told: all versions of Jobs in answers, with the times, and the newest version of anything
            then.
        refused: bodies refused by a conflict since the object was last read.
        again: bodies that are repeated because the server asked for it.
        times: instants of recent calls.
    """

    renewed: float
    began: int = 0
    taken_over: int = 0
    listed: int = 0
    released: bool = False
    claims: dict[int, float] = attrs.field(factory=dict)
    known: dict[Key, tuple[int, float]] = attrs.field(factory=dict)
    told: dict[Key, list[tuple[int, float, int]]] = attrs.field(factory=lambda: defaultdict(list))
    refused: dict[Key, set[bytes]] = attrs.field(factory=lambda: defaultdict(set))
    again: set[bytes] = attrs.field(factory=set)
    times: dict[tuple[str, ...], deque[float]] = attrs.field(factory=lambda: defaultdict(deque))


class Conduct:
    """Follows the calls of managers and reports violations.

    Args:
        tolerance: what the adversary of this run makes legal.
        lease: seconds that a Lease lasts, in the time of the world.
        start: the virtual time since which the first writer is assumed to lead.
        accuse: called with every violation.
        mind: returns the mind of a manager by name; see `Charged`.
    """

    def __init__(
        self,
        tolerance: Tolerance,
        lease: float,
        start: float,
        accuse: Callable[[Violation], None],
        mind: Callable[[str], Mind | None] = lambda _: None,
    ) -> None:
        self._tolerance = tolerance
        self._lease = lease
        self._start = start
        self._accuse = accuse
        self._processes: dict[str, ProcessConduct] = {}
        self._running = UninterruptedRuns()
        self._charged = Charged(mind)
        self._written = 0
        self._stored = 0
        self._newest = 0

    def committed(self, commit: Commit) -> None:
        """Something was stored."""
        self._newest = commit.revision
        self._running.commit(commit)
        if is_manager(commit.actor):
            if commit.resource == WORKLOADS:
                self._stored = commit.revision
            elif commit.resource == LEASES and _changes_hands(commit):
                self._of(commit.actor).taken_over = self._stored
        for (namespace, name), identity in self._charged.committed(commit):
            text = f"{commit.actor} has reserved quota for UID {identity}, but does not charge it"
            where = f"{WORKLOADS} {namespace}/{name}"
            self._accuse(Violation(CHARGED.name, commit.at, where, text))

    def reborn(self, owner: str) -> None:
        """A process of that name starts, without knowledge or Lease."""
        self._processes[owner] = ProcessConduct(-math.inf, self._written)

    def woken(self, owner: str, now: float) -> None:
        """A paused process continues: everything that arrived meanwhile is delivered now."""
        process = self._of(owner)
        process.known = {key: (version, now) for key, (version, _) in process.known.items()}
        process.told.clear()

    def sent(self, call: RequestFacts, now: float) -> None:
        """A call is sent."""
        if call.peer != SERVER or not is_manager(call.owner):
            return
        process = self._of(call.owner)
        if call.verb == "apply" and (call.resource, call.subresource) == (WORKLOADS, "status"):
            self._charged.sent(call.owner, (call.namespace, call.name), call.body)
        broken = list(self._judge(process, call, now))
        if call.verb in ("get", "list"):
            for key in list(process.refused):
                if key[0] == call.resource and call.name in ("", key[2]):
                    del process.refused[key]
        if call.resource == LEASES and call.verb in WRITES:
            process.released = not _holder(call)
            if not process.released:
                process.claims[id(call)] = now
        for law, text in broken:
            self._accuse(Violation(law.name, now, call.title, f"{call.owner} {text}"))

    def answered(self, call: RequestFacts, status: int, body: bytes, now: float) -> None:
        """The whole answer to a call has arrived."""
        if call.peer != SERVER or not is_manager(call.owner):
            return
        process = self._of(call.owner)
        if call.verb == "list" and status < 300:
            newest = _version(_parsed(body))
            if call.resource == WORKLOADS:
                process.listed = max(process.listed, newest)
            if 0 < newest < process.began:
                text = f"began with version {newest}, but {process.began} was known to be written"
                self._accuse(Violation(PRESENT.name, now, call.title, f"{call.owner} {text}"))
            return
        if call.resource == LEASES:
            claimed = process.claims.pop(id(call), None)
            if claimed is not None and status < 300:
                process.renewed = max(process.renewed, claimed)
            return
        if call.verb in WRITES and call.resource in LED:
            self._judge_answer(call, status, body, now)
        key = _key(call)
        if status == 429:
            process.again.add(call.body)
        elif status == 409 and call.verb in WRITES and call.verb != "create":
            process.refused[key].add(call.body)
        elif status < 300 and call.name and (version := _version(_parsed(body))):
            if call.resource == JOBS:
                process.told[key].append((version, now, self._newest))
            if call.verb in WRITES:
                self._written = max(self._written, version)
            before = process.known.get(key, (0, now))
            if version > before[0]:
                process.known[key] = (version, now)

    def _judge_answer(self, call: RequestFacts, status: int, body: bytes, now: float) -> None:
        named = _version(_parsed(call.body))
        says = body.decode(errors="replace")
        # A JSON patch says what has to be there, and any body may name the UID of what is gone.
        outdated = status == 422 and (call.body[:1] == b"[" or "metadata.uid" in says)
        if status in REFUSED and not outdated:
            text = f"was refused with {status}: {says[:200]}"
            self._accuse(Violation(VALID.name, now, call.title, f"{call.owner} {text}"))
        elif status < 300 and 0 < named == _version(_parsed(body)):
            text = f"changed nothing in version {named}"
            self._accuse(Violation(CHANGING.name, now, call.title, f"{call.owner} {text}"))

    def _judge(
        self, process: ProcessConduct, call: RequestFacts, now: float
    ) -> Iterator[tuple[Law, str]]:
        if call.verb != "watch":
            yield from self._count(process, call, now)
        if call.verb not in WRITES or call.resource not in LED:
            return
        if process.released:
            yield RELEASED, "sent it after it had given the Lease up"
        elif now - process.renewed > self._lease:
            yield LEASED, f"sent it {now - process.renewed:g} s after it last renewed the Lease"
        if process.listed < process.taken_over:
            text = f"leads since version {process.taken_over}, but has read only {process.listed}"
            yield TAKEN_OVER, f"{text} of the Workloads"
        key = _key(call)
        base = _version(_parsed(call.body))
        if base and call.body in process.refused.get(key, ()):
            yield REPEATED, "sent again what a conflict has refused, and did not ask for the object"
        version, at = process.known.get(key, (0, now))
        late = now - at
        if (
            0 < base < version
            and late > self._tolerance.patience
            and call.body not in process.again
        ):
            yield REMEMBERED, f"made it from version {base}, but has known {version} for {late:g} s"
        if not base and _must_name_a_version(call):
            yield CONDITIONAL, "names no version in a change that must not overwrite another one"
        yield from self._keep(process, call, now)

    def _keep(
        self, process: ProcessConduct, call: RequestFacts, now: float
    ) -> Iterator[tuple[Law, str]]:
        """Whether all states of a Job since a version were running, and the process knows one of
        them.

        A decision from a state of the Workload was made after that state was stored.
        """
        used = self._running.used(_key(call))
        if used is None or call.body in process.again or not lets_go(call.subresource, call.body):
            return
        job, since = used
        told = [one for one in process.told[job] if one[0] >= since]
        if not told:
            return
        _, at, revision = told[0]
        if revision < _version(_parsed(call.body)) or now - at > self._tolerance.patience:
            yield KEPT, f"released it, but has known for {now - at:g} s that its Job runs"

    def _count(
        self, process: ProcessConduct, call: RequestFacts, now: float
    ) -> Iterator[tuple[Law, str]]:
        name = call.name
        if call.verb == "create":
            name = str((_parsed(call.body).get("metadata") or {}).get("name") or "")
        times = process.times[call.verb, call.resource, call.namespace, name, call.subresource]
        times.append(now)
        while times[0] < now - WINDOW:
            times.popleft()
        if (name or call.verb == "list") and len(times) > MOST:
            times.clear()
            yield BOUNDED, f"sent it more than {MOST} times within {WINDOW:g} s"

    def _of(self, owner: str) -> ProcessConduct:
        return self._processes.setdefault(owner, ProcessConduct(self._start))


def _key(call: RequestFacts) -> Key:
    return call.resource, call.namespace, call.name


def _must_name_a_version(call: RequestFacts) -> bool:
    """Whether a call changes fields that others may change, too; a JSON patch has its tests."""
    if call.verb not in ("patch", "update", "apply") or call.body[:1] != b"{":
        return False
    if call.subresource:
        admits = {"QuotaReserved", "Admitted"}
        parts = (_parsed(call.body).get("status") or {}).get("conditions") or ()
        return call.resource == WORKLOADS and any(part["type"] in admits for part in parts)
    return call.resource in (JOBS, PODS, WORKLOADS)


def _parsed(body: bytes) -> dict[str, Any]:
    """A JSON object; empty for anything else."""
    try:
        data = json.loads(body) if body[:1] == b"{" else {}
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def _version(obj: dict[str, Any]) -> int:
    """The resource version in an object; 0 for none."""
    text = str((obj.get("metadata") or {}).get("resourceVersion") or "")
    return int(text) if text.isdecimal() else 0


def _changes_hands(commit: Commit) -> bool:
    """Whether the holder of a Lease changes."""
    before, after = (spec(obj or {}).get("holderIdentity") for obj in (commit.old, commit.new))
    return bool(after) and after != before


def _holder(call: RequestFacts) -> str:
    """The holder that the Lease in a call names."""
    return str((_parsed(call.body).get("spec") or {}).get("holderIdentity") or "")
