"""Airflow: tasks whose pods and Jobs wait for quota.

    QueuedPodOperator(task_id="train", local_queue="team", image=..., deferrable=True)
    QueuedJobOperator(task_id="sweep", queue_name="team", wait_until_job_complete=True, ...)

The operators take the same arguments as those of the provider. Their timeouts begin when the pod
leaves its queue, and the task's log shows the reason, the place and the expected start. A pod that
is evicted is submitted again within the same try of the task. A Job returns to its queue by itself.
Killing the task deletes them, even while they wait. Tested with Airflow 3.3 and
apache-airflow-providers-cncf-kubernetes 10.25.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow.exceptions import AirflowException
from airflow.providers.cncf.kubernetes.operators.kueue import KubernetesStartKueueJobOperator
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.cncf.kubernetes.triggers.pod import KubernetesPodTrigger
from airflow.triggers.base import TriggerEvent
from kubernetes.client import ApiException

import kueuelib
from kueuelib import sync
from kueuelib.api.names import QUEUE_LABEL
from kueuelib.errors import KueuelibError
from kueuelib.integrations.waiting import Reasons, leave_queue_blocking, waits

if TYPE_CHECKING:
    from kueuelib import Progress

EVICTED = "evicted"
"""The status of the event of a trigger whose pod was evicted."""
NEWS_SECONDS = 5.0
"""For what happened to a pod to be known, after a call about it has failed."""
GONE_SECONDS = 600.0
"""For an evicted pod to be deleted, its grace period included."""


class _Fate:
    """What became of a pod, from its states until its end.

    Attributes:
        evicted: whether it was evicted.
    """

    def __init__(self, log: Any) -> None:
        self._log = log
        self._report = Reasons(log.info)
        self.evicted = False

    def learn(self, progress: Progress | None) -> bool:
        """Whether the pod has left its queue."""
        if progress is None:
            return True
        self.evicted = progress.state is kueuelib.State.EVICTED
        self._report(progress)
        return not waits(progress)


class _Follower(threading.Thread):
    """Follows a pod until its end.

    Args:
        pod: a reference to it.
        log: of the task.
        where: the client of the provider.
    """

    def __init__(self, pod: dict[str, Any], log: Any, where: Any) -> None:
        super().__init__(daemon=True)
        self._pod, self._log, self._where = pod, log, where
        self.fate = _Fate(log)
        self.left = threading.Event()

    def run(self) -> None:
        """Runs in the thread."""
        try:
            for progress in sync.watch(self._pod, kubeconfig=self._where):
                if self.fate.learn(progress):
                    self.left.set()
        except kueuelib.JobGone as gone:
            self.fate.learn(gone.last)
        except (KueuelibError, TimeoutError) as error:
            self._log.warning("The state in the queue is unknown: %s", error)
        finally:
            self.left.set()


class QueuedPodOperator(KubernetesPodOperator):
    """A KubernetesPodOperator whose pod is in a LocalQueue.

    Args:
        local_queue: the LocalQueue.
        arguments: those of `KubernetesPodOperator`.
    """

    template_fields = ("local_queue", *KubernetesPodOperator.template_fields)

    def __init__(self, *, local_queue: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.local_queue = local_queue
        self._follower: _Follower | None = None

    def build_pod_request_obj(self, context: Any = None) -> Any:
        """The pod, with the label of the queue."""
        pod = super().build_pod_request_obj(context)
        pod.metadata.labels[QUEUE_LABEL] = self.local_queue
        return pod

    def await_pod_start(self, pod: Any) -> None:
        """Waits for the queue, then as the provider does."""
        meta = pod.metadata
        where = {"kind": "Pod", "name": meta.name, "namespace": meta.namespace}
        self._follower = _Follower(where, self.log, self.client.api_client)
        self._follower.start()
        self._follower.left.wait()
        super().await_pod_start(pod)

    def execute_sync(self, context: Any) -> Any:
        """Runs the pod, and another one if it is evicted."""
        while True:
            try:
                return super().execute_sync(context)
            except Exception:
                if self._killed or not self._was_evicted():
                    raise
            self._forget_pod()

    def patch_already_checked(self, pod: Any, **arguments: Any) -> None:
        """Labels a pod that was checked; an evicted one is gone, and a traceback in the log."""
        if self._follower is None or not self._follower.fate.evicted:
            super().patch_already_checked(pod, **arguments)

    def _was_evicted(self) -> bool:
        if self._follower is None:
            return False
        self._follower.join(NEWS_SECONDS)
        if self._follower.fate.evicted:
            self._follower.join(GONE_SECONDS)
        return self._follower.fate.evicted

    def _forget_pod(self) -> None:
        self.log.info("The pod was evicted. Submitting it again")
        self.pod = self.remote_pod = self.pod_request_obj = self._follower = None

    def defer(self, *, trigger: Any, **arguments: Any) -> None:
        """Defers to a trigger that knows the queue."""
        if type(trigger) is KubernetesPodTrigger:
            trigger = QueuedPodTrigger(**trigger.serialize()[1])
        super().defer(trigger=trigger, **arguments)

    def trigger_reentry(self, context: Any, event: dict[str, Any]) -> Any:
        """Ends the task, or submits its pod again."""
        if event["status"] != EVICTED:
            return super().trigger_reentry(context, event)
        self._forget_pod()
        return self.execute_async(context)


class QueuedPodTrigger(KubernetesPodTrigger):
    """The trigger of a deferred `QueuedPodOperator`."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The path of this class, and the arguments."""
        return f"{__name__}.{type(self).__name__}", super().serialize()[1]

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """The event of the provider's trigger, unless the pod was evicted."""
        self._left = asyncio.Event()
        self._fate = _Fate(self.log)
        following = asyncio.create_task(self._follow())
        try:
            async for event in super().run():
                if event.payload["status"] == "success":
                    yield event
                    return
                await asyncio.wait({following}, timeout=NEWS_SECONDS)
                if self._fate.evicted:
                    await asyncio.wait({following}, timeout=GONE_SECONDS)
                    yield TriggerEvent({**event.payload, "status": EVICTED})
                else:
                    yield event
        finally:
            following.cancel()

    async def _follow(self) -> None:
        where = {"kind": "Pod", "name": self.pod_name, "namespace": self.pod_namespace}
        try:
            async with (
                self.hook.get_conn() as api,
                contextlib.aclosing(kueuelib.watch(where, kubeconfig=api)) as states,
            ):
                async for progress in states:
                    if self._fate.learn(progress):
                        self._left.set()
        except kueuelib.JobGone as gone:
            self._fate.learn(gone.last)
        except (KueuelibError, TimeoutError) as error:
            self.log.warning("The state in the queue is unknown: %s", error)
        finally:
            self._left.set()

    async def _wait_for_pod_start(self) -> Any:
        await self._left.wait()
        return await super()._wait_for_pod_start()


class QueuedJobOperator(KubernetesStartKueueJobOperator):
    """A KubernetesStartKueueJobOperator that can wait for its Job, which has no pods at first.

    Args:
        arguments: those of `KubernetesStartKueueJobOperator`.
    """

    def get_pods(self, *args: Any, **arguments: Any) -> Sequence[Any]:
        """The pods, once the Job has left its queue."""
        meta = self.job.metadata
        where = {"kind": "Job", "name": meta.name, "namespace": meta.namespace}
        leave_queue_blocking(where, self.log.info, kubeconfig=self.client.api_client)
        deadline = time.monotonic() + self.startup_timeout_seconds
        while True:
            try:
                pods: Sequence[Any] = super().get_pods(*args, **arguments)
            except AirflowException:
                if time.monotonic() > deadline:
                    raise
            else:
                return pods
            time.sleep(1)

    @property
    def pods(self) -> Sequence[Any]:
        """Its pods, without those that an eviction has deleted."""
        return [pod for pod in self._pods if self._exists(pod)]

    @pods.setter
    def pods(self, pods: Sequence[Any]) -> None:
        self._pods = pods

    def _exists(self, pod: Any) -> bool:
        try:
            self.hook.get_pod(pod.metadata.name, pod.metadata.namespace)
        except ApiException as error:
            if error.status != 404:
                raise
            return False
        return True
