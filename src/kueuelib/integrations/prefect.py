"""Prefect: flow runs say why their Jobs wait.

Start the worker from a program that first imports this module:

    import asyncio
    import kueuelib.integrations.prefect
    from prefect_kubernetes import KubernetesWorker

    asyncio.run(KubernetesWorker(work_pool_name="POOL").start())

In the work pool's base job template, set `metadata.labels` of `job_manifest` to
`{"kueue.x-k8s.io/queue-name": "team"}`. In the variable `labels`, a deployment with labels of its
own would replace it. Give `cpu_request` a default, and `backoff_limit` one of at least 1: with 0,
Prefect may submit a preempted flow once more, although its Job returns to the queue.

The cluster is found by kubectl's rules. The worker also needs `get`, `list` and `watch` on
Workloads, and `delete` on Jobs; its log names what is missing. A run that is canceled while its Job
waits loses its Job within ten seconds. While the Job waits, the message of the flow run's state
`InfrastructurePending` has the reason, the place and the expected start, also after a preemption.
Tested with prefect 3.9 and prefect-kubernetes 0.8.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from typing import Any

import httpx
import kopf
from prefect.client.schemas.objects import State as RunState
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, InfrastructurePending
from prefect_kubernetes import observer

import kueuelib
from kueuelib import JobGone, Progress, State
from kueuelib.api.kinds import JOBS
from kueuelib.api.meta import key_of
from kueuelib.api.names import QUEUE_LABEL
from kueuelib.errors import KueuelibError, NotFound
from kueuelib.integrations.waiting import Reasons, waits
from kueuelib.runtime import connect

RUN_LABEL = "prefect.io/flow-run-id"
LOOK_SECONDS = 0.5
"""Between two looks at a run that may change; the worker looks for runs each ten seconds."""
CANCEL_SECONDS = 10.0
"""Between two looks at a run that may be canceled; Prefect only cancels what it submits or runs."""
ENDING_SECONDS = 60.0
"""The time after an eviction in which the process of the flow may still change the run's state."""
LOGGER = logging.getLogger(__name__)
_following: dict[str, asyncio.Task[None]] = {}


@kopf.on.event("jobs", labels={RUN_LABEL: kopf.PRESENT, QUEUE_LABEL: kopf.PRESENT})
async def follow(body: Any, uid: str, event: Any, **_: Any) -> None:
    """Follow a Job from its first event until it leaves its queue."""
    if uid not in _following and event["type"] != "DELETED":
        job = {**body, "apiVersion": "batch/v1", "kind": "Job"}
        task = _following[uid] = asyncio.create_task(_say_why(job))
        task.add_done_callback(lambda _: _following.pop(uid, None))


def yields(state: RunState, progress: Progress) -> bool:
    """Whether the state of a flow run may be replaced by one that says where its Job is.

    The process of a flow that is preempted leaves its run `Running`, or `AwaitingRetry`, which the
    worker would submit again.

    Args:
        state: of the flow run.
        progress: of its Job.
    """
    if state.is_pending():
        return True
    if progress.evicted is None or not waits(progress):
        return False
    ended = progress.state is State.QUEUED
    return state.name == "AwaitingRetry" or (state.is_running() and ended)


def is_canceled(state: RunState) -> bool:
    """Whether a run has to end, or its Job was left when it did."""
    return bool(state.is_cancelling() or state.is_cancelled())


async def _say_why(job: dict[str, Any]) -> None:
    run = uuid.UUID(job["metadata"]["labels"][RUN_LABEL])
    states: asyncio.Queue[Progress] = asyncio.Queue()
    showing = asyncio.create_task(_show(run, job, states))
    report = Reasons(lambda _: states.put_nowait(progress))
    try:
        async with contextlib.aclosing(kueuelib.watch(job)) as moments:
            async for progress in moments:
                report(progress)
                if not waits(progress):
                    await showing
                    return
    except JobGone:
        return
    finally:
        showing.cancel()


async def _show(run: uuid.UUID, job: dict[str, Any], states: asyncio.Queue[Progress]) -> None:
    """Show each reason to wait, and that the Job has left its queue if it waited before."""
    progress = await states.get()
    waited = False
    while waited or waits(progress):
        pause = CANCEL_SECONDS if await _shown(run, job, progress) else LOOK_SECONDS
        if not waits(progress):
            return
        waited = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                progress = await states.get()


async def _shown(run: uuid.UUID, job: dict[str, Any], progress: Progress) -> bool:
    """Whether the run says where its Job is, and will continue to do so."""
    server = observer.orchestration_client
    if server is None:
        return False
    try:
        state = (await server.read_flow_run(run)).state
        if state is not None and progress.state is State.QUEUED and is_canceled(state):
            canceled = Cancelled(message="Cancelled while its Job waited for quota")
            await server.set_flow_run_state(run, canceled, force=True)
            await _delete(job)
        elif state is not None and yields(state, progress) and state.message != progress.text:
            # The server refuses a second pending state, unless it is forced.
            pending = InfrastructurePending(message=progress.text)
            await server.set_flow_run_state(run, pending, force=True)
    except ObjectNotFound:
        return True
    except httpx.HTTPError:
        return False
    except KueuelibError as error:
        LOGGER.warning("The Job of the canceled run %s is not deleted: %s", run, error)
        return True
    return progress.evicted is None or time.time() > progress.evicted.at + ENDING_SECONDS


async def _delete(job: dict[str, Any]) -> None:
    async with await connect() as client:
        with contextlib.suppress(NotFound):
            await client.delete(JOBS, key_of(job))
