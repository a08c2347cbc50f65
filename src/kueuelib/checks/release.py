"""Calls the release function of a check when a Workload no longer uses the quota in question.

A finalizer on the Workload keeps the promise: it is written before the check is first called, names
the reservation, and is removed after the release function returned. So a crash, a restart or the
deletion of the Workload cannot lose a release, but may repeat it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kueuelib.api.meta import Obj, ObjectKey, key_of
from kueuelib.checks.definition import Check, CheckContext
from kueuelib.checks.evaluation import CheckFailed, Evaluator, on_loop
from kueuelib.checks.moves import Reservation, held_reservation, reservation_of
from kueuelib.errors import Conflict, NotFound
from kueuelib.machinery.recurrence import EventType
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import DONE, Result
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.queries import PatchType

if TYPE_CHECKING:
    from kueuelib.runtime.events import EventRecorder

NAME_LIMIT = 63
"""The maximum number of characters in a finalizer after its domain."""
MARK = 10
"""Hexadecimal digits that distinguish reservations."""
CALL_PAUSE = 0.1
"""Seconds until the next try of a release that a cancelled call of the check delays."""

LONGEST_WAIT = 600.0
"""Seconds after which a release no longer waits for a call that still runs after its time limit."""
HANGING_PAUSE = 1.0
"""Seconds until such a call is looked at again."""
FIRST_PAUSE, LAST_PAUSE = 1.0, 600.0
"""Seconds until a failed release is repeated: the first delay, and the longest."""


def finalizer_of(controller_name: str, reservation: Reservation) -> str:
    """The finalizer that promises the release of a reservation.

    It changes with the second of the reservation and the assigned flavors, but not with fields of
    the admission that a manager updates while the job runs.
    """
    assigned = reservation.admission
    flavors = [
        (one.get("name", ""), sorted((one.get("flavors") or {}).items()))
        for one in assigned.get("podSetAssignments") or ()
    ]
    content = repr((reservation.since, assigned.get("clusterQueue", ""), flavors))
    return _prefix(controller_name) + hashlib.sha256(content.encode()).hexdigest()[:MARK]


def held_by(wl: Mapping[str, Any], controller_name: str) -> str | None:
    """The finalizer of a check on a Workload, or None."""
    prefix = _prefix(controller_name)
    for finalizer in wl["metadata"].get("finalizers") or ():
        if finalizer.startswith(prefix) and len(finalizer) == len(prefix) + MARK:
            return str(finalizer)
    return None


def is_promised(wl: Mapping[str, Any], controller_name: str) -> bool:
    """Whether the finalizer on a Workload is that of its present reservation."""
    reservation = reservation_of(wl)
    return reservation is not None and held_by(wl, controller_name) == finalizer_of(
        controller_name, reservation
    )


def _prefix(controller_name: str) -> str:
    domain, _, path = controller_name.partition("/")
    name = re.sub(r"[^A-Za-z0-9_.-]", ".", path)
    if len(name) > NAME_LIMIT - MARK - 1:  # cut names stay unique
        digest = hashlib.sha256(path.encode()).hexdigest()[:MARK]
        name = f"{name[: NAME_LIMIT - 2 * (MARK + 1)]}.{digest}"
    return f"{domain}/{name}."


class ReleaseReconciler:
    """Looks at one Workload for one `Check` with a release function.

    Args:
        check: what to call.
        client: writes the finalizer, and is handed to the function.
        workloads: the informer of Workloads.
        entries: the keys of the entries in a Workload that the check decides.
        called: whether a call of the check about a Workload has not ended.
        evaluator: calls the function.
        recorder: for events about Workloads.
        clock: monotonic time.
    """

    def __init__(
        self,
        check: Check,
        client: Client,
        workloads: Informer,
        entries: Callable[[Obj], Iterable[ObjectKey]],
        called: Callable[[ObjectKey], bool],
        evaluator: Evaluator,
        recorder: EventRecorder,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._waiting: dict[ObjectKey, tuple[str, float]] = {}
        self._clock = clock
        self._check = check
        self._client = client
        self._workloads = workloads
        self._entries = entries
        self._called = called
        self._evaluator = evaluator
        self._recorder = recorder

    async def reconcile(self, key: ObjectKey) -> Result:
        """Release what is no longer needed, then promise the release of the present reservation.

        Raises:
            ApiError: the finalizer could not be written.
            TransportError: the same.
        """
        wl = self._workloads.store.get(key)
        if wl is None:
            self._waiting.pop(key, None)
            return DONE
        decides = any(self._entries(wl))
        asked, used = reservation_of(wl), held_reservation(wl)
        promised = held_by(wl, self._check.controller_name)
        if decides and promised == self._finalizer(used):
            return DONE
        if promised is not None:
            if self._called(key):
                return Result(requeue_after=CALL_PAUSE)
            if self._still_runs(key, wl["metadata"]["uid"]):
                return Result(requeue_after=HANGING_PAUSE)
            if not await self._released(wl):
                return Result(rate_limited=True)
        await self._promise(wl, self._finalizer(asked) if decides else None)
        return DONE

    def _finalizer(self, reservation: Reservation | None) -> str | None:
        name = self._check.controller_name
        return None if reservation is None else finalizer_of(name, reservation)

    def _still_runs(self, key: ObjectKey, uid: str) -> bool:
        """Whether to wait for a call that was given up but still runs: it may acquire something."""
        now = self._clock.monotonic()
        known, since = self._waiting.get(key, (uid, now))
        if known != uid:
            since = now
        if not self._evaluator.runs(uid) or now - since > LONGEST_WAIT:
            self._waiting.pop(key, None)
            return False
        self._waiting[key] = (uid, since)
        return True

    async def _released(self, wl: Obj) -> bool:
        """Call the function; returns whether it succeeded."""
        source = self._check.controller_name

        def event(type: EventType, reason: str, message: str) -> None:
            self._recorder.event(wl, type, reason, message[:1000], component=source)

        context = CheckContext("", wl, self._client, lambda _: (), on_loop(event))
        try:
            await self._evaluator.release(wl, context)
        except CheckFailed as error:
            text = f"Release of check {source} failed, and is retried: {error}"
            event("Warning", "AdmissionCheckReleaseFailed", text)
            return False
        return True

    async def _promise(self, wl: Obj, finalizer: str | None) -> None:
        """Make this the only finalizer of the check; None removes it."""
        meta = wl["metadata"]
        body = {
            "apiVersion": wl["apiVersion"],
            "kind": wl["kind"],
            "metadata": {field: meta[field] for field in ("name", "namespace", "uid")},
        }
        if finalizer is not None:
            body["metadata"]["finalizers"] = [finalizer]
        try:
            answer = await self._client.patch(
                self._workloads.resource,
                key_of(wl),
                body,
                PatchType.APPLY,
                field_manager=self._check.field_manager,
                force=True,
            )
        except (NotFound, Conflict):  # gone, or another one of this name
            await self._workloads.refresh(key_of(wl))
            return
        if finalizer is None and meta.get("deletionTimestamp"):
            await self._workloads.refresh(key_of(wl))  # the answer may be the last state of it
            return
        self._workloads.learn(answer)
