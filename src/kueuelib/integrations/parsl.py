"""Parsl: blocks that wait for quota.

    HighThroughputExecutor(provider=QueuedProvider(local_queue="team", image=...))

A block that waits is `PENDING`, with the reason as its message, and in `parsl.log` of the run.
Parsl looks at its blocks every ten seconds. A block whose pod is evicted has ended, as after its
walltime. This is not a failure, so Parsl's strategy asks for another block. Apps need `retries` to
run there again. While no manager answers, the API server refuses pods. Such a block is `PENDING`,
too, and its pod is created later. Tested with parsl 2026.10.
"""

from __future__ import annotations

import json
import logging
from functools import partial
from typing import Any

from kubernetes.client import ApiException
from parsl.jobs.states import JobState, JobStatus
from parsl.providers import KubernetesProvider

from kueuelib import JobGone, State, sync
from kueuelib.api.names import PRIORITY_CLASS_LABEL, QUEUE_LABEL
from kueuelib.errors import KueuelibError, NotFound
from kueuelib.integrations.waiting import waits

LOGGER = logging.getLogger("parsl.kueuelib")
"""Parsl writes what loggers below `parsl` say to `parsl.log`."""
_CLEAR = (JobState.RUNNING, JobState.COMPLETED)


class QueuedProvider(KubernetesProvider):
    """A KubernetesProvider whose pods are in a LocalQueue.

    Args:
        local_queue: the LocalQueue.
        priority_class: a WorkloadPriorityClass; empty for none.
        arguments: those of `KubernetesProvider`.
    """

    status_polling_interval = 10
    """Seconds between two looks at the blocks. Parsl's own 60 would hide the reason as long."""

    def __init__(self, *, local_queue: str, priority_class: str = "", **arguments: Any) -> None:
        super().__init__(**arguments)
        self.local_queue = local_queue
        self.priority_class = priority_class
        self._create = self.kube_client.create_namespaced_pod
        self._refused: dict[str, partial[Any]] = {}
        self.kube_client.create_namespaced_pod = self._create_in_queue

    def _create_in_queue(self, namespace: str, body: Any) -> Any:
        body.metadata.labels[QUEUE_LABEL] = self.local_queue
        if self.priority_class:
            body.metadata.labels[PRIORITY_CLASS_LABEL] = self.priority_class
        create = partial(self._create, namespace=namespace, body=body)
        try:
            return create()
        except ApiException as error:
            if not _is_unavailable(error):
                raise
            self._refused[body.metadata.name] = create
            return body

    def _status(self) -> None:
        before = {
            block: each["status"]
            for block, each in self.resources.items()
            if not each["status"].terminal
        }
        super()._status()
        for block, old in before.items():
            resource = self.resources[block]
            # Parsl keeps the status of a pod that it could not read.
            if resource["status"] is old or resource["status"].state not in _CLEAR:
                resource["status"] = self._queued_status(resource)
            if resource["status"].message not in (None, old.message):
                LOGGER.info("Block %s: %s", resource["pod_name"], resource["status"].message)

    def _queued_status(self, resource: Any) -> Any:
        name = resource["pod_name"]
        if name in self._refused:
            return self._created_late(name)
        pod = {"kind": "Pod", "name": name, "namespace": self.namespace}
        try:
            progress = sync.queue_state(pod, kubeconfig=self.kube_client.api_client)
        except (NotFound, JobGone):
            return JobStatus(JobState.TIMEOUT, "The pod is gone: it was evicted or deleted")
        except (KueuelibError, TimeoutError) as error:
            text = f"Its state in the queue is unknown: {error}"
            return JobStatus(resource["status"].state, text)
        if progress.state is State.EVICTED and not progress.comes_back:
            return JobStatus(JobState.TIMEOUT, f"The pod was evicted: {progress.text}")
        if waits(progress):
            return JobStatus(JobState.PENDING, progress.text)
        return resource["status"]

    def _created_late(self, name: str) -> Any:
        """Tries again to create a pod."""
        try:
            self._refused[name]()
        except ApiException as error:
            if _is_unavailable(error):
                text = f"Waiting: the API server refuses the pod for now: {_reason(error)}"
                return JobStatus(JobState.PENDING, text)
            if error.status != 409:  # the answer to an earlier request was lost
                del self._refused[name]
                return JobStatus(JobState.FAILED, _reason(error))
        del self._refused[name]
        return JobStatus(JobState.PENDING)

    def _delete_pod(self, pod_name: str) -> None:
        """Parsl also cancels blocks that have been evicted meanwhile, or do not exist yet."""
        if self._refused.pop(pod_name, None) is not None:
            return
        try:
            super()._delete_pod(pod_name)
        except ApiException as error:
            if error.status != 404:
                raise


def _is_unavailable(error: ApiException) -> bool:
    """Whether the same request may succeed later, for example because its webhook is away."""
    return error.status == 429 or (error.status or 0) >= 500


def _reason(error: ApiException) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (KeyError, TypeError, ValueError):
        return str(error.reason)
