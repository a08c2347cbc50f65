"""Shows in AdmissionChecks that the process behind them gives no sign of life."""

from __future__ import annotations

from collections.abc import Callable, Collection

from kueuelib.api.kinds import LEASES
from kueuelib.api.meta import Obj
from kueuelib.checks.active_condition import NO_SIGN_OF_LIFE, active_condition, write_condition
from kueuelib.checks.heartbeats import HEARTBEAT_LABEL, HEARTBEAT_OF_CHECKS, Heartbeats, Silence
from kueuelib.errors import ApiError, ConfigError, TransportError
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.failures import with_fix
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.logs import get_logger

INTERVAL = 5.0
"""Seconds between two looks at the Leases."""
SELECTOR = f"{HEARTBEAT_LABEL}={HEARTBEAT_OF_CHECKS}"


class SilenceWatch:
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
        self._marked: dict[str, Silence] = {}  # by UID of the AdmissionCheck
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
        marked: dict[str, Silence] = {}
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

    async def _mark(self, check: Obj, silence: Silence) -> None:
        condition = active_condition(check, silence.message, self._clock.now(), NO_SIGN_OF_LIFE)
        if condition is None:
            return
        await write_condition(self._client, self._checks, check, condition)
        self._log.warning(silence.message, check=check["metadata"]["name"])
        self._recorder.event(check, "Warning", NO_SIGN_OF_LIFE, silence.message)
