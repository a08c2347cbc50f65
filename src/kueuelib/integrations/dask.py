"""Dask: schedulers and workers that wait for quota.

    cluster = QueuedKubeCluster(local_queue="team", name="sums", image=..., resources=...)

All pods of the cluster are in the LocalQueue, also those of `add_worker_group` and `adapt`. While
a pod waits, the box of a starting cluster shows the reason, the place and the expected start, and
`cluster.get_logs()` has the reason as the log of the pod. Without a terminal for the box, or with
`quiet=True`, set the logger `kueuelib.integrations.dask` to INFO. The operator needs no change: it
replaces a worker that is preempted, and Dask computes its tasks again.

Give schedulers a queue with quota of their own, or at least a higher priority than workers. Each
pod is admitted on its own, so the schedulers of several clusters could take the whole quota, and
wait for workers until one of them is deleted. A lost scheduler loses its computation.

    QueuedKubeCluster(local_queue="team", scheduler_queue="schedulers", ...)
    QueuedKubeCluster(local_queue="team", scheduler_priority_class="high", ...)

Connect to an existing cluster with `QueuedKubeCluster.from_name("sums", local_queue="team")`. The
cluster is found by kubectl's rules. Tried with dask-kubernetes 2026.3 and distributed 2026.3.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import kr8s
from dask_kubernetes.operator import KubeCluster, make_cluster_spec, make_worker_spec
from distributed.utils import Log

import kueuelib
from kueuelib import JobGone
from kueuelib.api.names import PRIORITY_CLASS_LABEL, QUEUE_LABEL
from kueuelib.errors import KueuelibError, NotFound
from kueuelib.integrations.waiting import Reasons, waits

LOGGER = logging.getLogger(__name__)
PAUSE_SECONDS = 2.0
"""Between two looks at the pods of a starting cluster."""


class QueuedKubeCluster(KubeCluster):
    """A KubeCluster whose pods are in a LocalQueue.

    Args:
        local_queue: the LocalQueue.
        scheduler_queue: the LocalQueue of the scheduler; empty for the same.
        priority_class: the WorkloadPriorityClass of the workers; empty for none.
        scheduler_priority_class: that of the scheduler; empty for none.
        arguments: those of `KubeCluster`. Labels of these names in a `custom_cluster_spec` stay.
    """

    _custom_cluster_spec: Any
    _resource_timeout: float

    def __init__(
        self,
        *,
        local_queue: str,
        scheduler_queue: str = "",
        priority_class: str = "",
        scheduler_priority_class: str = "",
        **arguments: Any,
    ) -> None:
        self.local_queue = local_queue
        workers = {QUEUE_LABEL: local_queue, PRIORITY_CLASS_LABEL: priority_class}
        scheduler = {
            QUEUE_LABEL: scheduler_queue or local_queue,
            PRIORITY_CLASS_LABEL: scheduler_priority_class,
        }
        self._queue_labels = {"worker": workers, "scheduler": scheduler}
        super().__init__(**arguments)

    async def _create_cluster(self) -> None:
        spec = self._custom_cluster_spec or make_cluster_spec(
            name=self.name,
            env=self.env,
            resources=self.resources,
            worker_command=self.worker_command,
            n_workers=self.n_workers,
            image=self.image,
            scheduler_service_type=self.scheduler_service_type,
            idle_timeout=self.idle_timeout,
            jupyter=self.jupyter,
        )
        parts = {part: self._queued(part, spec["spec"][part]) for part in ("scheduler", "worker")}
        self._custom_cluster_spec = {**spec, "spec": {**spec["spec"], **parts}}
        await super()._create_cluster()

    async def _wait_for_controller(self) -> None:
        """Waits until the operator has created the scheduler's Service, the last before the queue.

        It then writes the phase `Running`, but may write `Pending` over it, which stays.
        """
        name = f"{self.name}-scheduler"
        try:
            async with asyncio.timeout(self._resource_timeout):
                while True:
                    if await self._has_service(name):
                        return
                    await asyncio.sleep(0.25)
        except TimeoutError:
            problem = f"The Service {name} is not ready after {self._resource_timeout} seconds"
            raise TimeoutError(f"{problem}. Check that the Dask operator is running") from None

    async def _has_service(self, name: str) -> bool:
        """Whether a Service exists; the pods behind it may wait for quota."""
        async for each in kr8s.asyncio.get("services", name, namespace=self.namespace):
            balancer = each.raw["status"].get("loadBalancer", {})
            return each.raw["spec"]["type"] != "LoadBalancer" or bool(balancer.get("ingress"))
        return False

    async def _add_worker_group(
        self, name: str, n_workers: int = 3, custom_spec: Any = None, **arguments: Any
    ) -> None:
        own = {key: getattr(self, key) for key in ("env", "resources", "image", "worker_command")}
        given = {key: value for key, value in arguments.items() if value}
        spec = custom_spec or make_worker_spec(n_workers=n_workers, **{**own, **given})
        await super()._add_worker_group(name, custom_spec=self._queued("worker", spec))

    def _queued(self, part: str, spec: Any) -> dict[str, Any]:
        meta = spec.get("metadata") or {}
        ours = {key: value for key, value in self._queue_labels[part].items() if value}
        labels = {**ours, **(meta.get("labels") or {})}
        return {**spec, "metadata": {**meta, "labels": labels}}

    async def _watch_component_status(self) -> None:
        """Shows the state of the parts, and why pods wait, until the cluster has started."""
        async with asyncio.TaskGroup() as both:
            both.create_task(super()._watch_component_status())
            both.create_task(self._say_why())

    async def _say_why(self) -> None:
        reasons: dict[str, Reasons] = {}
        while True:
            for name, progress in (await self._waiting()).items():
                reasons.setdefault(name, Reasons(partial(self._report, name)))(progress)
            await asyncio.sleep(PAUSE_SECONDS)

    def _report(self, pod: str, reason: str) -> None:
        self._log(reason)
        LOGGER.info("Pod %s: %s", pod, reason)

    async def _get_logs(self) -> Any:
        logs = await self._read_logs()
        for name, progress in (await self._waiting()).items():
            logs[name] = Log(progress.text)
        return logs

    async def _read_logs(self, tries: int = 5) -> Any:
        """The logs of Dask; a pod that is evicted between its listing and its log is skipped."""
        try:
            return await super()._get_logs()
        except kr8s.ServerError as error:
            gone = error.response is not None and error.response.status_code == 404
            if not gone or tries == 0:
                raise
        return await self._read_logs(tries - 1)

    async def _waiting(self) -> dict[str, kueuelib.Progress]:
        """The states of the pods that wait, by name."""
        waiting = {}
        selector = f"dask.org/cluster-name={self.name}"
        async for pod in kr8s.asyncio.get(
            "pods", namespace=self.namespace, label_selector=selector
        ):
            if pod.raw["status"].get("phase") != "Pending":
                continue
            where = {"kind": "Pod", "name": pod.name, "namespace": self.namespace}
            try:
                progress = await kueuelib.queue_state(where)
            except (NotFound, JobGone):
                continue
            except (KueuelibError, TimeoutError) as error:
                self._log(f"The state of {pod.name} in the queue is unknown: {error}")
                continue
            if waits(progress):
                waiting[pod.name] = progress
        return waiting
