"""Reads the objects of a kind of jobs for as long as the API server serves it.

It looks for the kind when its CRD changes, and every few seconds: an API server may serve a kind a
moment after its CRD is stored, a kind may have no CRD, and the right to read CRDs may be missing. A
kind counts as gone only if its CRD is gone.
"""

from __future__ import annotations

import asyncio
import enum
import random
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import attrs
from anyio.abc import TaskGroup

from kueuelib.api.kinds import CRDS
from kueuelib.api.meta import Obj, ObjectKey, Resource, find_condition
from kueuelib.errors import ApiError, ConfigError, Forbidden, NotFound, TransportError
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.lookups.stores import PREBUILT_NAME, prebuilt_name
from kueuelib.jobs.reconcile.self_wired import SelfWired
from kueuelib.machinery.backoff import Backoff
from kueuelib.machinery.store import Store
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.steps import lasting_tasks
from kueuelib.runtime.telemetry import Telemetry

if TYPE_CHECKING:
    from kueuelib.jobs.declared.crd_mismatches import CrdMismatch


# Decides whether the API server serves a kind of jobs in a version that its integration reads.


@attrs.frozen
class Served:
    """The kind is served.

    Attributes:
        version: the first of the integration's versions that is served.
    """

    version: str


@attrs.frozen
class NotServed:
    """The kind does not exist, so there are no objects."""


@attrs.frozen
class Unfit:
    """The kind exists, but not as the integration expects it.

    Attributes:
        why: a clause for people.
    """

    why: str


@attrs.frozen
class Unclear:
    """The kind is not served at this moment; its objects may exist.

    Attributes:
        why: a clause for people.
    """

    why: str


Presence = Served | NotServed | Unfit | Unclear


MISMATCHES = "mismatches"
"""The key under which `trimmed` stores what does not fit the CRD."""


def is_lasting(integration: Integration) -> bool:
    """Whether every API server always serves the kind, like `batch/v1`.

    The groups of all CRDs have a dot. An integration with its own controllers also counts as
    lasting.
    """
    return "." not in integration.resource.group or isinstance(integration, SelfWired)


def definition_name(resource: Resource) -> str:
    """The name of the CRD of a kind."""
    return f"{resource.plural}.{resource.group}"


async def look(client: Client, integration: Integration) -> Presence:
    """Ask the API server; one call is enough as long as all is well.

    Raises:
        ApiError: the server cannot answer.
        TransportError: no answer.
    """
    resource = integration.resource
    offered: dict[str, Resource] = {}

    async def ask(versions: Iterable[str]) -> None:
        for version in versions:
            served = await client.find_resource(f"{resource.group}/{version}", resource.kind)
            if served is not None:
                offered[version] = served

    for version in integration.versions:
        await ask([version])
        if _fits(resource, offered.get(version)):
            return Served(version)
    others = await client.served_versions(resource.group)
    await ask(version for version in others if version not in integration.versions)
    if offered:
        return judged(integration, offered, None)
    try:
        crd = await client.get(CRDS, ObjectKey("", definition_name(resource)))
    except NotFound:
        return NotServed()
    except Forbidden:
        crd = None
    return judged(integration, offered, crd)


def judged(
    integration: Integration, offered: Mapping[str, Resource], crd: Mapping[str, Any] | None
) -> Presence:
    """The presence of a kind, judged from the answers of the API server.

    Args:
        integration: the kind.
        offered: the versions in which the server serves a kind of this group and name.
        crd: its definition; None: it may not be read.
    """
    resource = integration.resource
    for version in integration.versions:
        if _fits(resource, offered.get(version)):
            return Served(version)
    for version in integration.versions:
        served = offered.get(version)
        if served is not None and not served.namespaced:
            return Unfit("its objects are in no namespace")
        if served is not None:
            return Unfit(
                f"its plural is {served.plural}, and the integration's is {resource.plural}"
            )
    if offered:
        return _other_versions(integration, offered)
    if crd is None:
        return Unclear("the API server does not serve it")
    return _judged_by_definition(integration, crd)


def _judged_by_definition(integration: Integration, crd: Mapping[str, Any]) -> Presence:
    accepted = find_condition((crd.get("status") or {}).get("conditions"), "NamesAccepted")
    if accepted.get("status") == "False":
        return Unfit(f"the names of its definition are not accepted: {accepted.get('message')}")
    served = [each["name"] for each in crd["spec"].get("versions") or () if each.get("served")]
    if not {*served} & {*integration.versions}:
        return _other_versions(integration, served)
    return Unclear("it is defined, but not served yet")


def _other_versions(integration: Integration, served: Iterable[str]) -> Unfit:
    versions, read = ", ".join(sorted(served)), " or ".join(integration.versions)
    if not versions:
        return Unfit(f"no version of it is served; the integration reads {read}")
    return Unfit(f"it is served in {versions}; the integration reads {read}")


def _fits(resource: Resource, served: Resource | None) -> bool:
    if served is None or not served.namespaced:
        return False
    return served.plural == resource.plural


def trimmed(integration: Integration, crd: Obj) -> Obj:
    """The parts of a CRD that are kept to detect changes, and what does not fit them."""
    from kueuelib.jobs.declared.crd_mismatches import mismatches

    return {
        MISMATCHES: mismatches(integration, crd),
        "apiVersion": crd.get("apiVersion"),
        "kind": crd.get("kind"),
        "metadata": {
            field: crd["metadata"].get(field) for field in ("name", "uid", "resourceVersion")
        },
    }


# ---- the state of a kind of jobs, and how it is reported and counted -----------------------------


class KindState(enum.StrEnum):
    """The state of a kind of jobs."""

    STARTING = "starting"
    """Its objects are being listed."""
    MANAGED = "managed"
    """Its jobs are queued."""
    MISSING = "missing"
    """It is not installed."""
    UNFIT = "unfit"
    """It is installed, but in another form or version than the integration reads."""
    UNREADABLE = "unreadable"
    """Its objects cannot be listed or watched."""


HELD_BACK = frozenset({KindState.UNFIT, KindState.UNREADABLE})
"""States in which jobs may be suspended that cannot be started."""


@attrs.frozen(eq=False)
class InformerEpoch:
    """A period in which the objects of a kind are known, from one informer.

    Attributes:
        integration: at the version that is served.
        store: the objects.
        informer: the owner of the store; None if the kind is gone, with all its objects.
    """

    integration: Integration
    store: Store[Obj]
    informer: Informer | None = None


@attrs.frozen
class KindReadiness:
    """The state of a kind, with its reason.

    Attributes:
        state: the state.
        why: a clause for people; empty if all is well.
        turn: the objects to reconcile, or None.
    """

    state: KindState
    why: str = ""
    turn: InformerEpoch | None = None


def epoch_without_objects(integration: Integration) -> InformerEpoch:
    """The turn of a deleted kind: Workloads of its jobs are released."""
    return InformerEpoch(integration, Store({PREBUILT_NAME: prebuilt_name}))


class KindMetrics:
    """Reports the standing of each kind to a scrape.

    Args:
        telemetry: where to report; None: nowhere.
    """

    def __init__(self, telemetry: Telemetry | None = None) -> None:
        telemetry = telemetry or Telemetry()
        self._state = telemetry.gauge(
            "kueuelib_job_kind_state",
            "1 for the state that an enabled kind of jobs is in, if a CRD defines it.",
            ("kind", "state"),
        )
        self._held_back = telemetry.counter(
            "kueuelib_jobs_held_back_total",
            "Jobs that were suspended on creation while their kind could not be managed.",
            ("kind",),
        )

    def now(self, kind: str, state: KindState) -> None:
        """Report the state of a kind."""
        for each in KindState:
            self._state.labels(kind, each).set(1 if each is state else 0)

    def held_back(self, kind: str) -> None:
        """Count a job that was suspended and cannot be started for now."""
        self._held_back.labels(kind).inc()


# --------------------------------------------------------------------------------------------------

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
        self.standing = KindReadiness(KindState.STARTING)
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

    async def moved_from(self, standing: KindReadiness) -> KindReadiness:
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
                self._stand(KindReadiness(KindState.MISSING, "the API server does not list it"))
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
            case NotServed():
                await self._stop_reading(gone=True)
                if self.standing.turn is None or self.standing.turn.informer is not None:
                    gone = epoch_without_objects(self.integration)
                    self._stand(KindReadiness(KindState.MISSING, "it is not installed", gone))
            case Unfit(why):
                await self._stop_reading()
                self._stand(KindReadiness(KindState.UNFIT, why))
            case Unclear(why):
                self._away_since = now if self._away_since is None else self._away_since
                if self._reading is None or now - self._away_since >= PATIENCE:
                    await self._stop_reading()
                    self._stand(KindReadiness(KindState.MISSING, why))

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

    def _of_reading(self, now: float) -> KindReadiness:
        """The standing according to the informer."""
        assert self._reading is not None
        informer = self._reading.informer
        error = self._reading.failure(now)
        turn = self.standing.turn
        if not informer.synced:
            turn = None
        elif turn is None or turn.informer is not informer:
            integration = self.integration.at(informer.resource.version)
            turn = InformerEpoch(integration, informer.store, informer)
        if error is not None:
            return KindReadiness(KindState.UNREADABLE, f"its objects cannot be read: {error}", turn)
        return KindReadiness(KindState.STARTING if turn is None else KindState.MANAGED, turn=turn)

    def _stand(self, standing: KindReadiness) -> None:
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
