"""JupyterHub: notebook servers that wait for quota.

    c.JupyterHub.spawner_class = "kueuelib.integrations.kubespawner.QueuedKubeSpawner"
    c.QueuedKubeSpawner.local_queue = "notebooks"

`start_timeout` counts from the admission; `queue_timeout` limits the time before. The progress page
shows the reason, the place and the expected start. A server that is preempted has stopped for
the hub; when a user starts it again, it is queued. Tested with jupyterhub 6.1 and kubespawner 7.1.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from kubernetes_asyncio.client.rest import ApiException
from kubespawner import KubeSpawner
from traitlets import Integer, Unicode

from kueuelib.api.names import QUEUE_LABEL
from kueuelib.integrations.waiting import leave_queue

WEEK = 7 * 24 * 3600


class QueuedKubeSpawner(KubeSpawner):
    """A KubeSpawner whose pods are in a LocalQueue."""

    start_timeout: int
    local_queue = Unicode("", config=True, help="The LocalQueue; if empty, extra_labels set it.")
    queue_timeout = Integer(WEEK, config=True, help="Maximum seconds in the queue.")

    def start(self) -> asyncio.Future[Any]:
        """The future that the hub awaits for `start_timeout` seconds, which it reads afterwards."""
        self._texts: list[str] = []
        self._own_timeout = own = self.start_timeout
        self.start_timeout = own + self.queue_timeout
        future: asyncio.Future[Any] = super().start()
        future.add_done_callback(lambda _: setattr(self, "start_timeout", own))
        return future

    async def get_pod_manifest(self) -> Any:
        """The pod, with the label of the queue."""
        pod = await super().get_pod_manifest()
        if self.local_queue:
            pod.metadata.labels[QUEUE_LABEL] = self.local_queue
        return pod

    async def _start(self) -> Any:
        async with asyncio.timeout(None) as self._deadline:
            return await super()._start()

    async def _make_create_pod_request(self, pod: Any, request_timeout: float) -> bool:
        try:
            created: bool = await super()._make_create_pod_request(pod, request_timeout)
        except ApiException as error:
            if error.status < 500:
                raise
            # The webhook of a manager that starts again; the spawner gives up in time.
            if (text := f"The pod is refused, trying again: {_message(error)}") not in self._texts:
                self._texts.append(text)
            return False
        if created:
            where = {"name": pod.metadata.name, "namespace": self.namespace, "kind": "Pod"}
            api = self.api.api_client
            async with asyncio.timeout(self.queue_timeout):
                await leave_queue(where, self._texts.append, kubeconfig=api)
            self._deadline.reschedule(asyncio.get_running_loop().time() + self._own_timeout)
        return created

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """The events of the pod, and between them why it waits."""
        shown = 0
        events = super().progress()
        coming = asyncio.ensure_future(anext(events, None))
        try:
            while True:
                await asyncio.wait({coming}, timeout=1)
                for text in self._texts[shown:]:
                    yield {"message": text}
                shown = len(self._texts)
                if coming.done():
                    if (event := coming.result()) is None:
                        return
                    yield event
                    coming = asyncio.ensure_future(anext(events, None))
        finally:
            coming.cancel()


def _message(error: ApiException) -> str:
    """What the API server says, without headers."""
    try:
        return str(json.loads(error.body or "")["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason)
