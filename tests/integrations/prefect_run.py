"""A flow run whose Job is in the queue of the namespace $TEAM; prints the messages of its state.

It ends when the Job has left the queue. $PREFECT_API_URL names the server, $KUBECONFIG the cluster.
"""

from __future__ import annotations

import asyncio
import os

import prefect_kubernetes.observer
from kubernetes_asyncio import client, config
from prefect import flow, get_client
from prefect.states import Pending

import kueuelib
import kueuelib.integrations.prefect
from kueuelib import State

RUN = "prefect.io/flow-run-id"


@flow
def nothing() -> None:
    """What the run is of; the simulated Job does not run it."""


async def main() -> None:
    """All of it."""
    namespace = os.environ["TEAM"]
    async with get_client() as server:
        run = await server.create_flow_run(nothing, state=Pending(message="submitted"))
        labels = {RUN: str(run.id), "kueue.x-k8s.io/queue-name": "team"}
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "run", "namespace": namespace, "labels": labels},
            "spec": {
                "suspend": True,
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"restartPolicy": "Never", "containers": [container]},
                },
            },
        }
        prefect_kubernetes.observer.start_observer()
        while prefect_kubernetes.observer.orchestration_client is None:
            await asyncio.sleep(0.1)
        await config.load_kube_config(os.environ["KUBECONFIG"])
        async with client.ApiClient() as api:
            await client.BatchV1Api(api).create_namespaced_job(namespace, job)
        shown = None
        while True:
            state = (await server.read_flow_run(run.id)).state
            assert state is not None
            if state.message != shown:
                shown = state.message
                print(f"{state.name}: {shown}", flush=True)
            if (await kueuelib.queue_state(job)).state is not State.QUEUED and shown != "submitted":
                break
            await asyncio.sleep(0.3)
    prefect_kubernetes.observer.stop_observer()


if __name__ == "__main__":
    asyncio.run(main())
