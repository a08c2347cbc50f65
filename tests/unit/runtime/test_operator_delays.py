"""When an operator's function is called again: its timers, and the delays after errors."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from kueuelib.errors import Conflict, ServerError
from kueuelib.runtime import (
    Client,
    ConditionedStatus,
    Context,
    KubeObject,
    ObjectKey,
    Operator,
    PatchType,
    Result,
    Struct,
    crd,
    frozen,
    predicates,
)
from kueuelib.testing import eventually, running, settled


@frozen
class Spec(Struct):
    """What is asked for."""

    text: str = ""


@frozen
class Status(ConditionedStatus):
    """What was seen."""

    seen: tuple[str, ...] = ()


@crd("example.com", "v1", plural="boxes")
@frozen
class Box(KubeObject):
    """A thing without children."""

    spec: Spec = Spec()
    status: Status = Status()


ONE = ObjectKey("default", "one")


async def test_a_check_that_records_its_time_is_a_timer_that_each_call_starts_again(
    kube_client: Client,
) -> None:
    app, calls = Operator("boxes"), list[float]()
    time = asyncio.get_running_loop().time

    @app.reconciles(Box, predicate=predicates.generation_changed)
    async def reconcile(found: Box, context: Context) -> Result | None:
        calls.append(time())
        context.report(Status(seen=(str(len(calls)),)))
        return Result(requeue_after=1.0) if found.spec.text != "stop" else None

    async with running(app, kube_client):
        made = await kube_client.of(Box).create(Box.new(ONE.name, ONE.namespace))
        one = await settled(kube_client, made)
        await asyncio.sleep(0.5)
        assert len(calls) == 1
        await kube_client.patch(Box.resource, ONE, {"spec": {"text": "a"}}, PatchType.MERGE)
        await eventually(lambda: len(calls) == 3)
        assert calls[2] - calls[1] >= 0.99
        await kube_client.patch(Box.resource, ONE, {"spec": {"text": "stop"}}, PatchType.MERGE)
        await eventually(lambda: len(calls) == 4)
        await asyncio.sleep(1.2)
    assert len(calls) == 4
    assert one.status.seen == ("1",)


async def test_the_author_chooses_the_delays_after_errors(kube_client: Client) -> None:
    app, calls = Operator("boxes"), list[float]()
    time = asyncio.get_running_loop().time

    @app.reconciles(Box, predicate=predicates.generation_changed, backoff=(0.4, 0.5))
    async def reconcile(found: Box, context: Context) -> None:
        calls.append(time())
        if len(calls) < 4:
            raise ServerError("not today")

    async with running(app, kube_client):
        await kube_client.of(Box).create(Box.new(ONE.name, ONE.namespace))
        await eventually(lambda: len(calls) == 4)
    delays = [later - earlier for earlier, later in pairwise(calls)]
    assert [delay >= wanted for delay, wanted in zip(delays, (0.39, 0.49, 0.49), strict=True)]


async def test_a_conflict_is_retried_soon_whatever_the_author_chose(kube_client: Client) -> None:
    app, calls = Operator("boxes"), list[str]()

    @app.reconciles(Box, predicate=predicates.generation_changed, backoff=(1000, 1000))
    async def reconcile(found: Box, context: Context) -> None:
        calls.append(found.name)
        if len(calls) < 3:
            raise Conflict("the object has been modified")

    async with running(app, kube_client):
        made = await kube_client.of(Box).create(Box.new(ONE.name, ONE.namespace))
        await settled(kube_client, made)
    assert len(calls) == 3
