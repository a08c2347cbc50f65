"""The whole simulated cluster, which `--simulate` starts with the API server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import Self

from kueuelib.api.kinds import (
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    REPLICA_SETS,
    SERVICES,
    STATEFUL_SETS,
)
from kueuelib.api.meta import Obj
from kueuelib.embedded.cluster.clock import ManualClock, SteadyClock, WakeableClock
from kueuelib.embedded.cluster.collector import Collector
from kueuelib.embedded.cluster.contract import KUBELET
from kueuelib.embedded.cluster.controller import ControllerTools, Events
from kueuelib.embedded.cluster.deployments import DeploymentController
from kueuelib.embedded.cluster.doomed_pods import ENDED_LIMIT, EndedPods, Evictions, OrphanedPods
from kueuelib.embedded.cluster.job_controller import JobController
from kueuelib.embedded.cluster.job_decision import PodBackoff
from kueuelib.embedded.cluster.kinds import Kinds
from kueuelib.embedded.cluster.kubelet import Kubelet, NodeKeeper
from kueuelib.embedded.cluster.namespaces import AccountController, NamespaceController
from kueuelib.embedded.cluster.nodes import node_status, simulated_node
from kueuelib.embedded.cluster.pod_control import POD_LIMIT, PodRoom
from kueuelib.embedded.cluster.replica_sets import ReplicaSetController
from kueuelib.embedded.cluster.scheduler import Scheduler
from kueuelib.embedded.cluster.services import EndpointController
from kueuelib.embedded.cluster.stateful_sets import StatefulSetController
from kueuelib.embedded.cluster.volumes import VolumeController
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.verbs import WriteOptions
from kueuelib.errors import AlreadyExists

NODE_COUNT = 2
_QUIET_ROUNDS = 20
_ROUND = 0.002
_EXACT_STEPS = 5_000
_COARSE_STEPS = 500
"""After this many instants, time passes in steps, so that a year of frequent events terminates."""
_FULL = (
    LEASES,
    *(PODS, JOBS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, NODES, NAMESPACES),
    *(PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, SERVICES, ENDPOINTS, ENDPOINT_SLICES),
)
"""The kinds of which whole objects are kept."""
_LOG = logging.getLogger(__name__)


class SimulatedCluster:
    """The controllers of workloads, volumes, namespaces and garbage; scheduler, kubelets.

    An asynchronous context manager: on entry the nodes exist and all parts work; on exit they have
    stopped. The objects in the server stay as they are, and the next simulated cluster continues
    with them.
    """

    def __init__(
        self,
        service: ApiService,
        *,
        nodes: Sequence[Obj] = (),
        clock: WakeableClock | None = None,
        backoff: PodBackoff | None = None,
        pod_limit: int = POD_LIMIT,
        ended_limit: int = ENDED_LIMIT,
    ) -> None:
        """Args:
        service: the API.
        nodes: the initial nodes; by default two with room for everything.
        clock: the time of the cluster.
        backoff: how long pods that have failed or ended delay those that replace them.
        pod_limit: controllers create no further pods while this many have not ended.
        ended_limit: the number of ended pods beyond which the oldest are deleted.
        """
        self._service = service
        self._initial = nodes or [simulated_node(index) for index in range(NODE_COUNT)]
        self._clock = clock or SteadyClock()
        full = frozenset(kind.group_kind for kind in _FULL)
        self._kinds = Kinds(service, full)
        self._events = Events(service, self._clock)
        parts = ControllerTools(service, self._kinds, self._clock, self._events)
        self._collector = collector = Collector(parts)
        room = PodRoom(self._kinds.of(PODS), pod_limit)
        backoff = backoff or PodBackoff()
        self._jobs = JobController(parts, room, backoff)
        keeper = NodeKeeper(parts)
        self._leases = keeper.loop
        controllers = (
            keeper,
            Scheduler(parts),
            Kubelet(parts),
            Evictions(parts),
            OrphanedPods(parts),
            self._jobs,
            ReplicaSetController(parts, room, backoff),
            DeploymentController(parts),
            StatefulSetController(parts),
            EndpointController(parts),
            VolumeController(parts),
            collector,
            NamespaceController(parts, collector),
            EndedPods(parts, ended_limit),
            AccountController(parts),
        )
        self._loops = tuple(each.loop for each in controllers)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Makes the nodes and starts all parts."""
        for index, node in enumerate(self._initial):
            options = WriteOptions(field_manager=KUBELET)
            status = node_status(node["status"], index, self._clock.now())
            try:
                await self._service.create(NODES, {**node, "status": status}, options=options)
            except AlreadyExists:
                continue
        self._task = asyncio.create_task(self._run(), name="simulated cluster")
        self._task.add_done_callback(_report)
        await _either(self._kinds.synced(), self._task)

    async def close(self) -> None:
        """Stops all parts.

        Raises:
            BaseExceptionGroup: a part had failed.
        """
        task = self._task
        if task is None:
            return
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
        finally:
            for loop in self._loops:
                loop.close()

    def hold_jobs(self, held: bool) -> None:
        """Pauses or resumes the Job controller."""
        self._jobs.loop.hold(held)

    def hold_garbage(self, held: bool) -> None:
        """Pauses or resumes the garbage collector."""
        self._collector.loop.hold(held)

    def delay_jobs(self, seconds: float) -> None:
        """Lets the Job controller write that long after it has read."""
        self._jobs.delay = seconds

    @property
    def idle(self) -> bool:
        """Whether no part has anything to do now."""
        return self._events.idle and all(loop.idle for loop in self._loops)

    async def pass_time(self, clock: ManualClock, seconds: float) -> None:
        """Lets time pass: work that becomes due meanwhile is done at its own instant, one by one.

        Args:
            clock: that of the cluster.
            seconds: how many.

        Raises:
            ValueError: time would go back, or nowhere.
            BaseExceptionGroup: a part of the cluster has failed.
        """
        end = clock.after(seconds)
        steps, least = 0, 0.0
        while True:
            await self.settle()
            now = clock.now()
            dues = [loop.due for loop in self._loops if loop is not self._leases]
            due = min((each for each in dues if each is not None), default=end)
            if now >= end or due >= end:
                break
            steps += 1
            if steps == _EXACT_STEPS:
                least = (end - now) / _COARSE_STEPS
            clock.move_to(min(max(due, now + least), end))
        clock.move_to(end)
        await self.settle()

    async def settle(self) -> None:
        """Returns when all work that is due at the present time of the clock is done.

        For tests with their own clock: advance it, then settle.

        Raises:
            BaseExceptionGroup: a part of the cluster has failed.
        """
        quiet = 0
        while quiet < _QUIET_ROUNDS:
            if self._task is not None and self._task.done():
                self._task.result()
            before = self._service.storage.revision
            await asyncio.sleep(0 if self.idle else _ROUND)
            quiet = quiet + 1 if self.idle and self._service.storage.revision == before else 0

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._kinds.run())
            group.create_task(self._events.run())
            await self._kinds.synced()
            for loop in self._loops:
                group.create_task(loop.run())


def _report(task: asyncio.Task[None]) -> None:
    """Nothing waits for the cluster while the server runs, so the log reports its failure."""
    if not task.cancelled() and task.exception() is not None:
        _LOG.error("the simulated cluster has stopped", exc_info=task.exception())


async def _either(wanted: Awaitable[None], running: asyncio.Task[None]) -> None:
    """Waits for a result; raises if a task that runs meanwhile fails."""
    waiter = asyncio.ensure_future(wanted)
    await asyncio.wait((waiter, running), return_when=asyncio.FIRST_COMPLETED)
    if not waiter.done():
        waiter.cancel()
        running.result()
