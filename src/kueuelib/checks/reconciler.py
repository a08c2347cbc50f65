"""Calls a check about the workloads that list it, and writes its answers (KEP-993)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import attrs

from kueuelib.api.codec import decode
from kueuelib.api.kueue import CHECK_PENDING, CHECK_READY, Workload
from kueuelib.api.meta import Obj, ObjectKey, key_of
from kueuelib.checks import moves
from kueuelib.checks.definition import Check, CheckContext
from kueuelib.checks.evaluation import CheckFailed, Evaluator, SerialTurns, on_loop
from kueuelib.checks.moves import Ask, LastAnswer, Reservation, Reset, StayPut, reservation_of
from kueuelib.checks.parameters import UNSETTLED, ParameterProblem, ParameterSource, content
from kueuelib.checks.release import is_promised
from kueuelib.checks.verdicts import Pending, Ready, Retry, Verdict, readable
from kueuelib.errors import ApiError, Conflict, NotFound
from kueuelib.machinery.recurrence import EventType
from kueuelib.machinery.store import Delta, DeltaKind
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import DONE, Result
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.queries import PatchType
from kueuelib.workload import states
from kueuelib.workload.writer import on_newest

if TYPE_CHECKING:
    from kueuelib.runtime.events import EventRecorder


# ---- writes answers of a check into its entry of a Workload, by server-side apply (KEP-993) ------

NEWER_FIELDS = ("reason", "requeueAfterSeconds", "retryCount")
"""Fields of an entry that the CRDs of older managers do not have."""

_EVENTS: dict[str, EventType] = {"Ready": "Normal", "Retry": "Normal", "Rejected": "Warning"}


class EntryWriter:
    """Writes entries, and passes the answers of the server to the informer.

    Args:
        check: whose entries.
        client: writes.
        workloads: the informer of Workloads.
        mine: the names of the AdmissionChecks of the check.
        recorder: for events about Workloads.
    """

    def __init__(
        self,
        check: Check,
        client: Client,
        workloads: Informer,
        mine: Callable[[], frozenset[str]],
        recorder: EventRecorder,
    ) -> None:
        self._check = check
        self._client = client
        self._workloads = workloads
        self._mine = mine
        self._recorder = recorder
        self._plain_entries = False

    async def write(
        self,
        wl: Obj,
        name: str,
        change: Callable[[Obj, Mapping[str, Any]], Obj | None],
        still: Callable[[Obj], bool],
    ) -> Obj | None:
        """Changes one entry on the newest object; returns that object, or None if it is too late.

        Args:
            wl: the raw Workload.
            name: the AdmissionCheck.
            change: the new entry for the newest object and its entry; None leaves it.
            still: whether the decision still applies to the newest object.

        Raises:
            ApiError: it could not be written.
            TransportError: the same.
        """
        uid = wl["metadata"]["uid"]
        written: Obj | None = None

        async def attempt(newest: Obj) -> Obj | None:
            nonlocal written
            written = None
            if newest["metadata"]["uid"] != uid or not still(newest):
                return None
            entry = moves.entry_of(newest, name)
            if entry is None:
                return None
            changed = change(newest, entry)
            if changed is None:
                written = newest
                return None
            written = await self._send(newest, name, changed)
            self._workloads.learn(written)
            self._report(written, name, entry, changed)
            return written

        try:
            await on_newest(self._workloads, key_of(wl), attempt)
        except NotFound:
            return None
        return written

    async def _send(self, wl: Obj, name: str, entry: Obj) -> Obj:
        if self._plain_entries:
            entry = {field: value for field, value in entry.items() if field not in NEWER_FIELDS}
        body = moves.apply_body(wl, self._mine(), {name: entry})
        try:
            return await self._client.patch(
                self._workloads.resource,
                key_of(wl),
                body,
                PatchType.APPLY,
                subresource="status",
                field_manager=self._check.field_manager,
                force=True,
            )
        except ApiError as error:
            unknown = "not declared in schema" in error.message
            if self._plain_entries or not unknown or not {*NEWER_FIELDS} & entry.keys():
                raise
        self._plain_entries = True
        return await self._send(wl, name, entry)

    def _report(self, wl: Obj, name: str, old: Mapping[str, Any], new: Obj) -> None:
        severity = _EVENTS.get(new["state"])
        if severity is None or old.get("state") == new["state"]:
            return
        text = f": {new['message']}" if new["message"] else ""
        self._recorder.event(
            wl,
            severity,
            f"AdmissionCheck{new['state']}",
            f"Check {name} is {new['state']}{text}"[:1000],
            component=self._check.controller_name,
        )


# --------------------------------------------------------------------------------------------------

BY_CHECK = "workloads by admission check"
FIRST_PAUSE, LAST_PAUSE = 10.0, 600.0
"""Seconds until a failed check is called again: the first delay, and the longest."""
LEAST_PAUSE = 1.0
"""The shortest delay, in seconds, of `Pending(again=...)`."""


def entry_key(workload: ObjectKey, check: str) -> ObjectKey:
    """The key of one entry of a workload: `WORKLOAD/CHECK`, in its namespace."""
    return ObjectKey(workload.namespace, f"{workload.name}/{check}")


class CheckReconciler:
    """Looks at one entry of one workload for one `Check`; its keys are those of `entry_key`.

    Entries of one workload are independent: a slow or failing check does not affect the others.

    Args:
        check: the check to call.
        client: writes, and is handed to the check.
        workloads: the informer of Workloads, indexed by `BY_CHECK`.
        checks: the informer of AdmissionChecks.
        parameters: the parameters objects.
        recorder: for events about Workloads.
        clock: the time.
    """

    def __init__(
        self,
        check: Check,
        client: Client,
        workloads: Informer,
        checks: Informer,
        parameters: ParameterSource,
        recorder: EventRecorder,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._check = check
        self._client = client
        self._workloads = workloads
        self._checks = checks
        self._parameters = parameters
        self._recorder = recorder
        self._clock = clock
        self.evaluator = Evaluator(check)
        self._writer = EntryWriter(
            check, client, workloads, lambda: frozenset(self.mine()), recorder
        )
        self._asked: dict[tuple[ObjectKey, str], LastAnswer] = {}
        self._running: dict[tuple[ObjectKey, str], tuple[Reservation, anyio.CancelScope]] = {}
        self._enqueue: Callable[[ObjectKey], None] = lambda _: None
        self._turns = SerialTurns(self._call)
        self._nudges: dict[ObjectKey, int] = {}
        workloads.add_handler(self._heard)

    def enqueue_with(self, enqueue: Callable[[ObjectKey], None]) -> None:
        """Sets how to request another look at an entry; called before the first look."""
        self._enqueue = enqueue

    def _call(self, key: ObjectKey) -> None:
        self._enqueue(key)

    # ---- what is known

    def entries(self, wl: Mapping[str, Any]) -> Iterator[ObjectKey]:
        """The keys of the entries in a raw Workload that this check decides."""
        for entry in states.check_states(wl):
            if self._mine(entry["name"]) is not None:
                yield entry_key(key_of(wl), entry["name"])

    def _mine(self, name: str) -> Obj | None:
        check = self._checks.store.get(ObjectKey("", name))
        if check is None or check["spec"].get("controllerName") != self._check.controller_name:
            return None
        return check

    def mine(self) -> dict[str, Obj]:
        """The AdmissionChecks that this check decides, by name."""
        return {
            obj["metadata"]["name"]: obj
            for obj in self._checks.store.items()
            if obj["spec"].get("controllerName") == self._check.controller_name
        }

    def passed(self, check: str, namespace: str, but: str) -> tuple[Workload, ...]:
        """The workloads with quota that an AdmissionCheck has accepted, except one UID.

        Also those that are being evicted: they use what they got until their pods are gone.
        """
        workloads = []
        for key in self._workloads.store.keys_by_index(BY_CHECK, check):
            wl = self._workloads.store.get(key)
            if wl is None or wl["metadata"]["uid"] == but or namespace not in ("", key.namespace):
                continue
            if moves.holds(wl, check):
                workloads.append(decode(Workload, wl))
        return tuple(workloads)

    def called(self, key: ObjectKey) -> bool:
        """Whether a call about a Workload has not ended."""
        return any(workload == key for workload, _ in self._running)

    def ask_again(self, key: ObjectKey) -> None:
        """Call the check again, because something that its answers depend on has changed."""
        self._nudges[key] = self._nudges.get(key, 0) + 1
        self._call_at_once(key, self.mine())

    def _call_at_once(self, key: ObjectKey, checks: Iterable[str]) -> None:
        """Let no interval pass before the next call about a Workload."""
        for name in checks:
            asked = self._asked.get((key, name))
            if asked is not None:
                self._asked[key, name] = attrs.evolve(asked, again=0.0)

    def _heard(self, delta: Delta[Obj]) -> None:
        if not self._asked and not self._running:
            return
        gone = delta.kind is DeltaKind.DELETED or delta.new is None
        reservation = None if gone or delta.new is None else reservation_of(delta.new)
        if delta.new is not None and reservation is None:
            # The next reservation may equal this one, if it comes within the same second.
            names = (entry["name"] for entry in states.check_states(delta.new))
            self._call_at_once(delta.key, names)
        known = {*self._running, *(self._asked if gone else ())}
        entries = [entry for entry in known if entry[0] == delta.key]
        if not entries:
            return
        for entry in entries:
            if gone:
                self._asked.pop(entry, None)
                self._nudges.pop(delta.key, None)
            running = self._running.get(entry)
            if running is not None and running[0] != reservation:
                running[1].cancel()

    # ---- one look

    async def reconcile(self, key: ObjectKey) -> Result:
        """Moves one entry as far as possible now.

        Raises:
            ApiError: an answer could not be written; the check is called again.
            TransportError: the same.
        """
        workload, _, name = key.name.partition("/")
        try:
            instant = await self._look(ObjectKey(key.namespace, workload), name)
        finally:
            self._turns.pass_on(key)
        if instant is None:
            return DONE
        return Result(requeue_after=max(instant - self._clock.now(), 0.01))

    async def _look(self, key: ObjectKey, name: str) -> float | None:
        """Moves one entry; returns when to look again, or None."""
        wl, check = self._workloads.store.get(key), self._mine(name)
        entry = None if wl is None else moves.entry_of(wl, name)
        if wl is None or check is None or entry is None:
            return None
        answer = self._parameters.find(check, key.namespace, accepted=states.is_admitted(wl))
        parameters = content(answer) if isinstance(answer, dict) else answer
        asked = self._asked.get((key, name))
        # What it depends on may have changed while nobody followed it.
        given = self._check
        rechecks = any(each is not None for each in (given.recheck, given.parameters, given.owned))
        delay, now = moves.retry_delay_of(check), self._clock.now()
        match moves.next_move(wl, entry, parameters, asked, delay, now, rechecks=rechecks):
            case StayPut(until):
                return until
            case Reset(message):
                await self._writer.write(
                    wl,
                    name,
                    lambda _, entry: moves.reset(entry, message, self._clock.now()),
                    lambda newest: reservation_of(newest) is None,
                )
                return None
            case Ask():
                if not self._settled:
                    return now + UNSETTLED
                if not self._promised(wl):
                    return None  # the finalizer that promises a release comes first
                nudges = self._nudges.get(key)
                again = await self._ask(wl, name, answer)
                if nudges != self._nudges.get(key):  # what it depends on changed under way
                    self.ask_again(key)
                    return self._clock.now()
                return again

    async def _ask(
        self, wl: Obj, name: str, parameters: Obj | ParameterProblem | None
    ) -> float | None:
        reservation = reservation_of(wl)
        assert reservation is not None
        if isinstance(parameters, ParameterProblem):
            await self._settle(wl, name, reservation, parameters, Pending(parameters.text), 0)
            return None
        if self._check.serialize is None:
            return await self._decide(wl, name, reservation, parameters)
        try:
            group = await self.evaluator.group(wl, self._turns)
        except CheckFailed as error:
            return await self._decide(wl, name, reservation, parameters, str(error))
        if not self._turns.take(group, entry_key(key_of(wl), name)):
            return None  # it is called when it is its turn
        try:
            return await self._decide(wl, name, reservation, parameters)
        finally:
            self._turns.end(group)

    async def _decide(
        self,
        wl: Obj,
        name: str,
        reservation: Reservation,
        parameters: Obj | None,
        failure: str | None = None,
    ) -> float | None:
        """Calls the check and writes any answer; returns when to call again, or None."""
        verdict = None
        if failure is None:
            verdict, failure = await self._evaluate(wl, name, reservation, parameters)
        if verdict is None and failure is None:
            return None  # the reservation was lost meanwhile
        before = self._asked.get((key_of(wl), name))
        failures = 0 if failure is None else (before.failures if before else 0) + 1
        if failure is not None:
            verdict = self._after_failure(wl, name, failure, failures)
        assert verdict is not None
        known = content(parameters)
        try:
            return await self._settle(wl, name, reservation, known, verdict, failures)
        except (ValueError, TypeError) as error:
            if failure is not None:
                raise
            refusal = readable(str(error))
        except ApiError as error:
            if failure is not None or not _is_refusal(error):
                raise
            refusal = error.message
        failures = (before.failures if before else 0) + 1
        verdict = self._after_failure(wl, name, f"its answer is refused: {refusal}", failures)
        return await self._settle(wl, name, reservation, known, verdict, failures)

    async def _evaluate(
        self, wl: Obj, name: str, reservation: Reservation, parameters: Obj | None
    ) -> tuple[Verdict | None, str | None]:
        """The verdict, or what went wrong; neither when the answer is no longer needed."""
        key, uid = key_of(wl), wl["metadata"]["uid"]
        newest = self._workloads.store.get(key)
        if newest is None or reservation_of(newest) != reservation or not self._promised(newest):
            return None, None
        source = self._check.controller_name

        def event(type: EventType, reason: str, message: str) -> None:
            text = readable(message)
            self._recorder.event(newest, type, readable(reason), text, component=source)

        context = CheckContext(
            name,
            newest,
            self._client,
            on_loop(lambda namespace: self.passed(name, namespace, uid)),
            on_loop(event),
        )
        with anyio.CancelScope() as scope:
            self._running[key, name] = (reservation, scope)
            try:
                return await self.evaluator.ask(newest, parameters, context), None
            except CheckFailed as error:
                return None, str(error)
            finally:
                self._running.pop((key, name), None)
        return None, None

    @property
    def _settled(self) -> bool:
        """Whether enough is known after a start; otherwise earlier answers would be taken back."""
        owned = self._check.owned
        return self._parameters.settled and (owned is None or owned.settled)

    def _promised(self, wl: Obj) -> bool:
        """Whether the check may be called: a release function needs its finalizer first."""
        return self._check.release is None or is_promised(wl, self._check.controller_name)

    def _after_failure(self, wl: Obj, name: str, problem: str, failures: int) -> Verdict:
        """Handles a call without an answer: it is repeated later, with growing pauses."""
        pause = min(FIRST_PAUSE * 2.0 ** min(failures - 1, 10), LAST_PAUSE)
        message = f"Check {name} failed: {problem}"
        self._recorder.event(
            wl,
            "Warning",
            "AdmissionCheckFailed",
            message[:1000],
            component=self._check.controller_name,
        )
        entry = moves.entry_of(wl, name) or {}
        stays = entry.get("state") == CHECK_READY or states.is_admitted(wl)
        if stays and not self._check.evict_on_failure:
            return Pending(again=pause)
        return Retry(message, after=pause)

    async def _settle(
        self,
        wl: Obj,
        name: str,
        reservation: Reservation,
        parameters: Any,
        verdict: Verdict,
        failures: int,
    ) -> float | None:
        """Writes a verdict, unless its reservation is gone; returns when to call again."""
        if isinstance(verdict, Retry) and verdict.after is None:
            check = self.mine().get(name)
            if check is not None and "retryDelayMinutes" not in check["spec"]:
                # A manager whose AdmissionChecks know no delay would ask again at once.
                verdict = attrs.evolve(verdict, after=moves.retry_delay_of(check))
        kept = failures and isinstance(verdict, Pending)  # a failure does not take Ready back
        now = self._clock.now()

        def change(newest: Obj, entry: Mapping[str, Any]) -> Obj | None:
            return None if kept else moves.decided(newest, entry, verdict, now)

        written, state = await self._write(wl, name, reservation, change)
        if isinstance(verdict, Ready) and state == CHECK_PENDING:  # it had other updates
            written, state = await self._write(wl, name, reservation, change)
        if written is None:
            return None
        again = self._again(verdict, state, now)
        until = None
        if isinstance(verdict, Retry) and verdict.after is not None:
            until = now + moves.retry_pause_of(moves.entry_of(written, name) or {}, verdict.after)
        self._asked[key_of(wl), name] = LastAnswer(
            reservation, parameters, state, again, failures, until
        )
        return again

    async def _write(
        self,
        wl: Obj,
        name: str,
        reservation: Reservation,
        change: Callable[[Obj, Mapping[str, Any]], Obj | None],
    ) -> tuple[Obj | None, str]:
        """Changes an entry; returns the newest Workload and the state of the entry.

        Without a Workload, its reservation is gone.
        """
        written = await self._writer.write(
            wl, name, change, lambda newest: reservation_of(newest) == reservation
        )
        entry = None if written is None else moves.entry_of(written, name)
        return written, (entry or {}).get("state", "")

    def _again(self, verdict: Verdict, state: str, now: float) -> float | None:
        if isinstance(verdict, Pending) and verdict.again is not None:
            return now + max(verdict.again, LEAST_PAUSE)
        if state == CHECK_PENDING:
            return now + self._check.interval
        if state == CHECK_READY and self._check.recheck is not None:
            return now + self._check.recheck
        return None


def _is_refusal(error: ApiError) -> bool:
    """Whether the server will never accept the write."""
    if isinstance(error, (Conflict, NotFound)):
        return False
    return error.code < 500 and error.code != 429
