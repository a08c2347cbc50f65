"""Signs of life of check processes: the Lease that each of them renews, and their silence.

Pure: callers pass what was read and when. Whether a process is silent is judged only by how long
    its
Lease was seen unchanged, never by comparing clocks of two machines.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.kinds import LEASES
from kueuelib.api.meta import Obj, ObjectKey, annotations_of, key_of
from kueuelib.checks.parameters import NO_SIGN_OF_LIFE, active_condition, write_condition
from kueuelib.errors import ApiError, ConfigError, TransportError
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.failures import with_fix
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.logs import get_logger

HEARTBEAT_LABEL = "kueuelib.dev/heartbeat"
HEARTBEAT_OF_CHECKS = "admission-check"
CONTROLLERS_ANNOTATION = "kueuelib.dev/admission-check-controllers"
"""The controller names that a process decides for, separated by commas."""
TERMS = 2.0
"""Lease durations without a renewal after which a process counts as silent."""
LEAST_PATIENCE = 10.0
"""Seconds without a renewal that are always tolerated, however short the Lease is."""
USUAL_DURATION = 15.0
"""Seconds; assumed for a released Lease, which no longer names its duration."""
_NAME_LIMIT = 36


def lease_name(controller_name: str) -> str:
    """The name of the Lease of a process, made from the name of its first check."""
    text = re.sub("[^a-z0-9]+", "-", controller_name.lower()).strip("-")[:_NAME_LIMIT].strip("-")
    digest = hashlib.sha256(controller_name.encode()).hexdigest()[:8]
    return "-".join(filter(None, ("kueuelib-check", text, digest)))


def lease_labels() -> dict[str, str]:
    """The labels by which Leases of check processes are found."""
    return {HEARTBEAT_LABEL: HEARTBEAT_OF_CHECKS}


def lease_annotations(controller_names: Sequence[str]) -> dict[str, str]:
    """The annotations that name the controllers behind a Lease."""
    return {CONTROLLERS_ANNOTATION: ",".join(controller_names)}


@attrs.frozen
class StaleHeartbeat:
    """A controller has been silent for too long.

    Attributes:
        controller_name: of the silent process.
        lease: the Lease that was renewed last.
        since: the last renewal as the process wrote it, for people; empty when it never did.
    """

    controller_name: str
    lease: ObjectKey
    since: str

    @property
    def message(self) -> str:
        """For conditions and events."""
        since = f" since {self.since}" if self.since else ""
        return (
            f"no sign of life from {self.controller_name}{since}: "
            f"its Lease {self.lease} is not renewed"
        )


@attrs.define
class _Seen:
    """One Lease: its spec, and for how many observed seconds it has not changed."""

    controllers: tuple[str, ...]
    spec: Mapping[str, Any]
    duration: float
    unchanged: float = 0.0

    @property
    def silent(self) -> bool:
        return self.unchanged > max(LEAST_PATIENCE, TERMS * self.duration)

    @property
    def since(self) -> str:
        whole, _, _ = str(self.spec.get("renewTime") or "").partition(".")
        return whole if not whole or whole.endswith("Z") else f"{whole}Z"


class Heartbeats:
    """Finds silent controllers by their Leases.

    Only time in which the Leases could be read counts: while the API server did not answer, no
    Lease could be renewed. A controller without a Lease is never silent: it may be a different
    program, or one that does not report itself.
    """

    def __init__(self) -> None:
        self._seen: dict[ObjectKey, _Seen] = {}
        self._looked: float | None = None

    def observe(self, leases: Iterable[Obj], now: float) -> None:
        """Take in all present Leases of check processes; `now` is in monotonic seconds."""
        passed = 0.0 if self._looked is None else max(now - self._looked, 0.0)
        self._looked = now
        before, self._seen = self._seen, {}
        for lease in leases:
            listed = annotations_of(lease).get(CONTROLLERS_ANNOTATION, "")
            names = tuple(filter(None, listed.split(",")))
            spec = lease.get("spec") or {}
            old = before.get(key_of(lease))
            held = spec.get("holderIdentity")
            known = USUAL_DURATION if old is None else old.duration
            duration = (spec.get("leaseDurationSeconds") if held else None) or known
            unchanged = 0.0 if old is None or old.spec != spec else old.unchanged + passed
            self._seen[key_of(lease)] = _Seen(names, spec, duration, unchanged)

    def missed(self) -> None:
        """The Leases could not be read: the time until the next observation does not count."""
        self._looked = None

    def silences(self) -> dict[str, StaleHeartbeat]:
        """The silent controllers by name; any renewed Lease of a controller keeps it alive."""
        alive = {
            name for seen in self._seen.values() if not seen.silent for name in seen.controllers
        }
        silences: dict[str, StaleHeartbeat] = {}
        for key, seen in self._seen.items():
            for name in seen.controllers:
                if name not in alive and seen.since >= (
                    silences[name].since if name in silences else ""
                ):
                    silences[name] = StaleHeartbeat(name, key, seen.since)
        return silences


# ---- shows in AdmissionChecks that the process behind them gives no sign of life -----------------

INTERVAL = 5.0
"""Seconds between two looks at the Leases."""
SELECTOR = f"{HEARTBEAT_LABEL}={HEARTBEAT_OF_CHECKS}"


class HeartbeatWatch:
    """Sets `Active` of an AdmissionCheck to False once its process is silent; a part of a manager.

    The process itself sets it back, as it keeps the condition of its AdmissionChecks. Each silence
    is written only once, so there is no fight with another program that uses the same name. Leases
    are read in one namespace: clients that may write there are trusted.

    Args:
        client: reads Leases and writes conditions.
        checks: the informer of AdmissionChecks.
        recorder: for events about AdmissionChecks.
        namespace: holds the Leases of check processes.
        own: controller names that this process decides for itself.
        clock: time.
    """

    def __init__(
        self,
        client: Client,
        checks: Informer,
        recorder: EventRecorder,
        namespace: str,
        own: Collection[str],
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._checks = checks
        self._recorder = recorder
        self._namespace = namespace
        self._own = frozenset(own)
        self._clock = clock
        self._heartbeats = Heartbeats()
        self._marked: dict[str, StaleHeartbeat] = {}  # by UID of the AdmissionCheck
        self._log = get_logger("checks")

    async def run(self, ready: Callable[[], None]) -> None:
        """Look again and again until cancelled."""
        ready()
        while True:
            try:
                await self._look()
            except (ApiError, TransportError, ConfigError) as error:
                self._heartbeats.missed()
                self._log.warning("signs of life cannot be read", error=with_fix(error))
            await self._clock.sleep(INTERVAL)

    async def _look(self) -> None:
        foreign = [check for check in self._checks.store.items() if self._is_foreign(check)]
        if not foreign:
            self._heartbeats.observe((), self._clock.monotonic())
            self._marked.clear()
            return
        listing = self._client.list_all(LEASES, self._namespace, label_selector=SELECTOR)
        leases = [lease async for lease in listing]
        self._heartbeats.observe(leases, self._clock.monotonic())
        silences = self._heartbeats.silences()
        marked: dict[str, StaleHeartbeat] = {}
        for check in foreign:
            silence = silences.get(check["spec"]["controllerName"])
            if silence is None:
                continue
            uid = check["metadata"]["uid"]
            if self._marked.get(uid) != silence:
                await self._mark(check, silence)
            marked[uid] = silence
        self._marked = marked

    def _is_foreign(self, check: Obj) -> bool:
        name = check["spec"].get("controllerName")
        return (
            bool(name) and name not in self._own and not check["metadata"].get("deletionTimestamp")
        )

    async def _mark(self, check: Obj, silence: StaleHeartbeat) -> None:
        condition = active_condition(check, silence.message, self._clock.now(), NO_SIGN_OF_LIFE)
        if condition is None:
            return
        await write_condition(self._client, self._checks, check, condition)
        self._log.warning(silence.message, check=check["metadata"]["name"])
        self._recorder.event(check, "Warning", NO_SIGN_OF_LIFE, silence.message)
