"""Reads the objects of a kind of jobs for as long as the API server serves it.

It looks for the kind when its CRD changes, and every few seconds: an API server may serve a kind a
moment after its CRD is stored, a kind may have no CRD, and the right to read CRDs may be missing. A
kind counts as gone only if its CRD is gone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import TYPE_CHECKING

import anyio
import attrs
from anyio.abc import TaskGroup

from kueuelib.api.kinds import CRDS
from kueuelib.api.meta import Obj, Resource
from kueuelib.errors import ApiError, ConfigError, Forbidden, TransportError
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.kinds.presence import (
    MISMATCHES,
    Gone,
    Served,
    Unclear,
    Unfit,
    definition_name,
    look,
    trimmed,
)
from kueuelib.jobs.kinds.standing import (
    HELD_BACK,
    KindMetrics,
    KindState,
    Standing,
    Turn,
    turn_without_objects,
)
from kueuelib.jobs.lookups.stores import PREBUILT_NAME, prebuilt_name
from kueuelib.machinery.backoff import Backoff
from kueuelib.machinery.store import Store
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.steps import lasting_tasks

if TYPE_CHECKING:
    from kueuelib.jobs.declared.crd_mismatches import CrdMismatch

FIRST_PAUSE = 0.25
"""Seconds between two looks at a kind after something changed; doubles each time."""
LAST_PAUSE = 10.0
"""Seconds between two looks at a kind without news."""
PATIENCE = 10.0
"""Seconds that others wait, at the start, until the objects of a kind are listed; also the
seconds that a kind may be missing without counting as gone.
"""
GRACE = 3.0
"""Seconds for which reading may fail before that is reported."""


@attrs.define
class _Reading:
    """A running informer.

    Attributes:
        informer: of the kind, at one version.
        definition: the UID of the CRD at its start; empty if that was not known.
        failing: the first of its present errors, and since when.
    """

    informer: Informer
    definition: str
    failing: tuple[Exception, float] | None = None
    _scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope, init=False)
    _ended: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)

    async def run(self, ready: Callable[[], None]) -> None:
        """Read until `stop` is called."""
        try:
            with self._scope:
                await self.informer.run(ready)
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """Return once reading has ended."""
        self._scope.cancel()
        await self._ended.wait()

    def is_of(self, resource: Resource, definition: str) -> bool:
        """Whether it reads this version of exactly this kind, not of another one with the same
        name.
        """
        return self.informer.resource == resource and definition in ("", self.definition)

    def failure(self, now: float) -> Exception | None:
        """The error with which reading has failed for longer than the grace period."""
        error = self.informer.failing
        if error is None:
            self.failing = None
        elif self.failing is None:
            self.failing = (error, now)
        elif type(error) is not type(self.failing[0]):
            self.failing = (error, self.failing[1])
        if self.failing is None or now - self.failing[1] < GRACE:
            return None
        return self.failing[0]


class KindFollower:
    """Follows one kind of jobs; a part of a `Manager`, on every replica.

    Args:
        integration: the kind.
        client: asks whether it is served.
        cache: makes informers.
        stores: the objects of each kind, by the integration's name; the kind has an entry exactly
            while its objects are known.
        metrics: receives the state.
        clock: the time.
    """

    def __init__(
        self,
        integration: Integration,
        client: Client,
        cache: Cache,
        stores: MutableMapping[str, Store[Obj]],
        metrics: KindMetrics,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.integration = integration
        self.standing = Standing(KindState.STARTING)
        self._client = client
        self._stores = stores
        self._cache = cache
        self._metrics = metrics
        self._clock = clock
        self._woken = asyncio.Event()
        self._moved = asyncio.Event()
        self._reading: _Reading | None = None
        self._mismatches: tuple[CrdMismatch, ...] = ()
        self._away_since: float | None = None
        name = definition_name(integration.resource)
        self._definition = cache.apart(
            CRDS, field_selector=f"metadata.name={name}", transform=partial(trimmed, integration)
        )
        self._definition.add_handler(lambda _: self._woken.set())
        self._log = get_logger("jobs", integration=integration.name)

    @property
    def name(self) -> str:
        """The name of the integration."""
        return self.integration.name

    @property
    def kind(self) -> str:
        """Kind and group, for people and metrics."""
        return f"{self.integration.resource.kind}.{self.integration.resource.group}"

    @property
    def definition_uid(self) -> str:
        """The UID of the CRD; empty when it is not known."""
        return next((crd["metadata"]["uid"] for crd in self._definition.store.items()), "")

    async def moved_from(self, standing: Standing) -> Standing:
        """The next standing: returns once it differs from this one."""
        while self.standing == standing:
            await self._moved.wait()
        return self.standing

    async def run(self, ready: Callable[[], None]) -> None:
        """Follow the kind until cancelled.

        `ready` is called when its objects are known, when there are none, or when this takes too
        long.
        """
        self._metrics.now(self.kind, self.standing.state)
        deadline = self._clock.monotonic() + PATIENCE
        pauses = Backoff(base=FIRST_PAUSE, cap=LAST_PAUSE, jitter=0.1)
        async with lasting_tasks(f"{self.name} kind") as tasks:
            definition = anyio.CancelScope()
            tasks.start_soon(self._read_definition, definition, name=f"{self.name}-definition")
            while True:
                if self._woken.is_set():
                    self._woken.clear()
                    pauses.reset()
                before = self.standing
                await self._look(tasks)
                now = self._clock.monotonic()
                if self.standing.state is not KindState.STARTING or now >= deadline:
                    ready()
                if self.standing != before:
                    pauses.reset()
                if (
                    isinstance(self._definition.last_error, Forbidden)
                    and not definition.cancel_called
                ):
                    self._log.info("the CRD may not be watched; the kind is looked up instead")
                    definition.cancel()
                with anyio.move_on_after(pauses.next(now, random.random())):
                    await self._woken.wait()

    async def _read_definition(self, scope: anyio.CancelScope) -> None:
        with scope:
            await self._definition.run()

    async def _look(self, tasks: TaskGroup) -> None:
        """Determine the present standing, and act on it."""
        try:
            presence = await look(self._client, self.integration)
        except (ApiError, TransportError, ConfigError) as error:
            self._log.info("the kind cannot be looked up now", error=str(error))
            if self.standing.state is KindState.STARTING and self._reading is None:
                self._stand(Standing(KindState.MISSING, "the API server does not list it"))
            return
        if isinstance(presence, Served) and (why := self._unsuspendable()):
            presence = Unfit(why)
        now = self._clock.monotonic()
        if not isinstance(presence, Unclear):
            self._away_since = None
        match presence:
            case Served(version):
                await self._read(tasks, version)
                self._stand(self._of_reading(now))
            case Gone():
                await self._stop_reading(gone=True)
                if self.standing.turn is None or self.standing.turn.informer is not None:
                    gone = turn_without_objects(self.integration)
                    self._stand(Standing(KindState.MISSING, "it is not installed", gone))
            case Unfit(why):
                await self._stop_reading()
                self._stand(Standing(KindState.UNFIT, why))
            case Unclear(why):
                self._away_since = now if self._away_since is None else self._away_since
                if self._reading is None or now - self._away_since >= PATIENCE:
                    await self._stop_reading()
                    self._stand(Standing(KindState.MISSING, why))

    def _unsuspendable(self) -> str:
        """Why no job of the kind could be suspended; all that does not fit the CRD is logged."""
        unfit = next((crd[MISMATCHES] for crd in self._definition.store.items()), ())
        if unfit != self._mismatches:
            self._mismatches = unfit
            for each in unfit:
                message = "the declaration does not fit the CRD"
                self._log.warning(message, kind=self.kind, why=str(each))
        return next((str(each) for each in unfit if each.argument == "suspend"), "")

    async def _read(self, tasks: TaskGroup, version: str) -> None:
        """Make sure that an informer reads this version."""
        resource = self.integration.resource.at(version)
        if self._reading is not None:
            self._reading.definition = self._reading.definition or self.definition_uid
            if self._reading.is_of(resource, self.definition_uid):
                return
            await self._stop_reading()
        informer = self._cache.apart(
            resource,
            label_selector=self.integration.watched,
            transform=self.integration.transform,
        )
        informer.add_index(PREBUILT_NAME, prebuilt_name)
        self._reading = _Reading(informer, self.definition_uid)
        tasks.start_soon(self._reading.run, self._woken.set, name=f"informer-{self.name}")

    async def _stop_reading(self, *, gone: bool = False) -> None:
        """Stop the informer; if the kind is gone, so are its objects."""
        if self._reading is None:
            return
        reading, self._reading = self._reading, None
        await reading.stop()
        if gone:
            reading.informer.store.replace(())

    def _of_reading(self, now: float) -> Standing:
        """The standing according to the informer."""
        assert self._reading is not None
        informer = self._reading.informer
        error = self._reading.failure(now)
        turn = self.standing.turn
        if not informer.synced:
            turn = None
        elif turn is None or turn.informer is not informer:
            integration = self.integration.at(informer.resource.version)
            turn = Turn(integration, informer.store, informer)
        if error is not None:
            return Standing(KindState.UNREADABLE, f"its objects cannot be read: {error}", turn)
        return Standing(KindState.STARTING if turn is None else KindState.MANAGED, turn=turn)

    def _stand(self, standing: Standing) -> None:
        if standing == self.standing:
            return
        if standing.turn is None:
            self._stores.pop(self.name, None)
        else:
            self._stores[self.name] = standing.turn.store
        if (standing.state, standing.why) != (self.standing.state, self.standing.why):
            log = self._log.warning if standing.state in HELD_BACK else self._log.info
            log("a kind of jobs", kind=self.kind, state=standing.state, why=standing.why)
        self.standing = standing
        self._metrics.now(self.kind, standing.state)
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
