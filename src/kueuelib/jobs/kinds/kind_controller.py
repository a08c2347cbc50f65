"""Reconciles the jobs of a kind that comes and goes, and releases Workloads of one that is gone."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from kueuelib.api.kinds import CRDS, WORKLOADS
from kueuelib.api.meta import ObjectKey, controller_of
from kueuelib.jobs.contract.commands import NORMAL, WARNING, Delete
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.kinds.follower import (
    HELD_BACK,
    InformerEpoch,
    KindFollower,
    KindReadiness,
    KindState,
    definition_name,
)
from kueuelib.jobs.lookups.stores import JobStores
from kueuelib.jobs.reconcile.executor import Executor
from kueuelib.jobs.reconcile.steps import Commands, release
from kueuelib.machinery.recurrence import EventType
from kueuelib.runtime.controller import DONE, Controller, Result
from kueuelib.runtime.events import EventSink

# ---- releases Workloads whose kind of jobs is gone -----------------------------------------------


class AbandonedWorkloads:
    """Deletes the Workloads of jobs whose kind no longer has objects, and frees their quota.

    The garbage collector cannot be relied on for that: it only handles owners of kinds that the API
    server knows.

    Args:
        integration: the kind.
        stores: hold the Workloads.
        executor: executes the plan.
    """

    def __init__(self, integration: Integration, stores: JobStores, executor: Executor) -> None:
        self._integration = integration
        self._stores = stores
        self._executor = executor

    async def reconcile(self, key: ObjectKey) -> Result:
        """Release the Workloads of the job that had this name."""
        planned: Commands = ()
        for workload in self._stores.workloads_of_name(self._integration.resource, key):
            ref = controller_of(workload)
            if ref is None or ref["name"] != key.name or not self._integration.is_owner(ref):
                continue
            if not workload["metadata"].get("deletionTimestamp"):
                planned += (Delete(WORKLOADS, workload),)
            planned += release(workload)
        if planned:
            await self._executor.run(planned)
        return DONE


# --------------------------------------------------------------------------------------------------

NOT_MANAGED = "NotManaged"
MANAGED = "Managed"
REMIND = 1800.0
"""Seconds between reports that a kind is not managed; events are kept for an hour."""


class KindController:
    """The part of a `KindFollower` that only the leader runs: a controller per turn, and events on
    the CRD.

    A new turn begins only once the controller of the last one has ended.

    Args:
        follower: knows the standing of the kind.
        make: makes the controller of a turn.
        recorder: reports events.
    """

    def __init__(
        self,
        follower: KindFollower,
        make: Callable[[InformerEpoch], Controller],
        recorder: EventSink,
    ) -> None:
        self._follower = follower
        self._make = make
        self._recorder = recorder
        self._was_held_back = False

    @property
    def name(self) -> str:
        """The name of the integration."""
        return self._follower.name

    async def run(self, ready: Callable[[], None]) -> None:
        """Reconcile until cancelled."""
        ready()
        while True:
            turn = self._follower.standing.turn
            if turn is None:
                await self._until_it_ends(turn)
                continue
            async with anyio.create_task_group() as group:
                group.start_soon(self._reconcile, turn, name=self.name)
                await self._until_it_ends(turn)
                group.cancel_scope.cancel()

    async def _reconcile(self, turn: InformerEpoch) -> None:
        await self._make(turn).run(lambda: None)

    async def _until_it_ends(self, turn: InformerEpoch | None) -> None:
        """Keep reporting this standing until the next turn."""
        standing = self._follower.standing
        while standing.turn is turn:
            self._report(standing)
            with anyio.move_on_after(REMIND):
                standing = await self._follower.moved_from(standing)

    def _report(self, standing: KindReadiness) -> None:
        """Report on the CRD why jobs are not managed, and when they are again."""
        if standing.state in HELD_BACK:
            text = f"Jobs of this kind that name a queue stay as they are: {standing.why}"
            self._event(WARNING, NOT_MANAGED, text)
        elif (
            standing.state is KindState.MANAGED
            and self._was_held_back
            and standing.turn is not None
        ):
            version = standing.turn.integration.resource.version
            self._event(NORMAL, MANAGED, f"Jobs of this kind are queued, in version {version}")
        if standing.state is not KindState.STARTING:
            self._was_held_back = standing.state in HELD_BACK

    def _event(self, type_: EventType, reason: str, message: str) -> None:
        integration = self._follower.integration
        definition = {
            "apiVersion": CRDS.api_version,
            "kind": CRDS.kind,
            "name": definition_name(integration.resource),
            "uid": self._follower.definition_uid,
        }
        regarding = {field: text for field, text in definition.items() if text}
        self._recorder.event(regarding, type_, reason, message, component=integration.component)
