"""Blocking versions of `submit`, `queue_state`, `watch` and `wait`; `kueuelib.sync` exports them.

Each call has an event loop of its own, in another thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import partial
from typing import Any, Final, TypeVar

import anyio
from anyio.from_thread import start_blocking_portal

from kueuelib.api.forms import Typed
from kueuelib.jobs.client import following
from kueuelib.jobs.client.following import JobHandle
from kueuelib.jobs.client.progress import Progress, State
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.integration import Integration
from kueuelib.runtime.connection import Kubeconfig

T = TypeVar("T")
_GRACE: Final = 0.1
"""Seconds until the loop ends, because aborted TLS connections close in the background."""


def submit(
    job: Mapping[str, Any] | GenericJob[Any] | Typed,
    *,
    queue: str,
    namespace: str = "",
    priority_class: str = "",
    kubeconfig: Kubeconfig = None,
) -> JobHandle:
    """Create a job in a queue; arguments and errors are those of `kueuelib.submit`."""
    return _run(
        partial(
            following.submit,
            job,
            queue=queue,
            namespace=namespace,
            priority_class=priority_class,
            kubeconfig=kubeconfig,
        )
    )


def queue_state(
    job: JobHandle | Mapping[str, Any] | GenericJob[Any] | Typed,
    *,
    timeout: float = 30.0,
    integration: Integration | None = None,
    kubeconfig: Kubeconfig = None,
) -> Progress:
    """The state of a job in its queue; arguments and errors are those of `kueuelib.queue_state`."""
    return _run(
        partial(
            following.queue_state,
            job,
            timeout=timeout,
            integration=integration,
            kubeconfig=kubeconfig,
        )
    )


def watch(
    job: JobHandle | Mapping[str, Any] | GenericJob[Any] | Typed,
    *,
    timeout: float | None = None,
    integration: Integration | None = None,
    kubeconfig: Kubeconfig = None,
) -> Generator[Progress, None, None]:
    """Yield the progress of a job, now and after each change, until its end.

    Arguments and errors are those of `kueuelib.watch`. Closing the iterator ends the watch.
    """
    send, receive = anyio.create_memory_object_stream[Progress]()
    stream = following.watch(job, timeout=timeout, integration=integration, kubeconfig=kubeconfig)

    async def pump() -> None:
        async with send, contextlib.aclosing(stream):
            async for progress in stream:
                await send.send(progress)

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(receive):
        pumping = portal.start_task_soon(_gracefully, pump)
        with contextlib.suppress(anyio.EndOfStream):
            while True:
                yield portal.call(receive.receive)
        pumping.result()


def wait(
    job: JobHandle | Mapping[str, Any] | GenericJob[Any] | Typed,
    until: State = State.FINISHED,
    *,
    timeout: float | None = None,
    integration: Integration | None = None,
    kubeconfig: Kubeconfig = None,
) -> Progress:
    """Wait until a job reaches a state, or its end.

    Arguments and errors are those of `kueuelib.wait`.
    """
    return _run(
        partial(
            following.wait,
            job,
            until,
            timeout=timeout,
            integration=integration,
            kubeconfig=kubeconfig,
        )
    )


def _run(work: Callable[[], Awaitable[T]]) -> T:
    with start_blocking_portal() as portal:
        return portal.call(_gracefully, work)


async def _gracefully(work: Callable[[], Awaitable[T]]) -> T:
    """The result of the work, after its connections have had time to close."""
    try:
        return await work()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(_GRACE)
