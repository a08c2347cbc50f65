"""$RUNS runs of a flow in the queue of the namespace $TEAM, a worker, and its observer.

Prints the states of the runs, and ends with them. With $CANCEL, a run that waits for quota is
canceled. $PREFECT_API_URL names the server, $KUBECONFIG the cluster.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from prefect import Flow, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.states import Cancelling
from prefect_kubernetes.worker import KubernetesWorker

import kueuelib.integrations.prefect  # noqa: F401 - its handlers are registered

POOL = os.environ["TEAM"]
QUEUE = {"kueue.x-k8s.io/queue-name": "team"}
LOW = {"kueue.x-k8s.io/priority-class": "low"}


async def main() -> None:
    """All of it."""
    template = KubernetesWorker.get_default_base_job_template()
    given = {"namespace": os.environ["TEAM"], "image": "local", "backoff_limit": 1}
    for name, value in given.items():
        template["variables"]["properties"][name]["default"] = value
    manifest = template["job_configuration"]["job_manifest"]
    manifest["metadata"]["labels"] = QUEUE
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"cpu": "1"}}
    async with get_client() as server:
        pool = WorkPoolCreate(name=POOL, type="kubernetes", base_job_template=template)
        await server.create_work_pool(pool)
        source = {"source": str(Path(__file__).parent), "entrypoint": "prefect_flow.py:work"}
        flow = await Flow.from_source(**source)
        options = {"image": "local", "build": False, "push": False, "work_pool_name": POOL}
        deployment = await flow.deploy("queued", job_variables={"labels": LOW}, **options)
        create = server.create_flow_run_from_deployment
        runs = [await create(deployment) for _ in range(int(os.environ["RUNS"]))]
        working = asyncio.create_task(KubernetesWorker(work_pool_name=POOL).start())
        shown: dict[int, str] = {}
        ended = set[int]()
        while len(ended) < len(runs):
            assert not working.done(), working
            for number, run in enumerate(runs):
                state = (await server.read_flow_run(run.id)).state
                assert state is not None
                text = f"run {number} {state.name}: {state.message}"
                if text != shown.get(number):
                    shown[number] = text
                    print(text, flush=True)
                    if "CANCEL" in os.environ and "Waiting for quota" in text:
                        await server.set_flow_run_state(run.id, Cancelling())
                if state.is_final():
                    ended.add(number)
            await asyncio.sleep(0.3)
        working.cancel()


if __name__ == "__main__":
    asyncio.run(main())
