"""One process: a reconciler, a kind of jobs, an admission check, and the whole queue.

Usage: python program.py KUBECONFIG PORT; the API server calls https://127.0.0.1:PORT.
"""

import asyncio
import sys

from trainings import Trainer, Training, TrainingJob

from kueuelib import checks, controllers, jobs
from kueuelib import runtime as rt
from kueuelib.scheduler import Engine


@checks.check("example.com/license")
async def license_check(workload: checks.Workload, _: rt.Obj | None) -> checks.Verdict:
    """Ready; a real one would ask a license server."""
    return checks.Ready(f"a license for {workload.name}")


async def main(kubeconfig: str, port: int) -> None:
    """Runs until SIGTERM or SIGINT."""
    async with await rt.connect(kubeconfig, field_manager="trainer") as client:
        await rt.wait_for_server(client)
        await client.apply(rt.kinds.CRDS, rt.crd_of(Training))
        manager, cache, recorder = rt.Manager(), rt.Cache(client), rt.EventRecorder(client, "me")
        webhooks = controllers.queue_webhooks(manager, client, f"127.0.0.1:{port}")
        controllers.setup(manager, cache, client, recorder, Engine(), webhooks=webhooks)
        jobs.setup(manager, cache, client, recorder, [TrainingJob, "batch/job"], webhooks=webhooks)
        checks.setup(manager, cache, client, recorder, [license_check])
        trainer = Trainer(client, cache)
        controller = rt.Controller("trainer", trainer).for_(trainer.trainings)
        manager.add(rt.Group.ELECTED, controller)
        manager.add(rt.Group.EVENTS, recorder)
        manager.add(rt.Group.CACHES, cache)
        with rt.Signals(manager.stop):
            await manager.run()


if __name__ == "__main__":
    rt.configure_logs()
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
