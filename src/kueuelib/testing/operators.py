"""Runs an operator against the API server of a test."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar, overload

from kueuelib.api.kinds import CRDS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from kueuelib.api.meta import KubeObject, Obj, is_true, key_of
from kueuelib.controllers.webhooks import by_url
from kueuelib.errors import ApiError, BadRequest, Invalid, TransportError
from kueuelib.runtime.client import Client
from kueuelib.runtime.manager import Manager
from kueuelib.runtime.operator.declaration import Operator
from kueuelib.runtime.operator.hooks import definitions, hook_configurations
from kueuelib.runtime.operator.running import ServeOptions, assemble
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.testing.processes import free_port

T = TypeVar("T")
K = TypeVar("K", bound=KubeObject)
PAUSE = 0.02
"""Seconds between two looks."""
_KINDS = {each.kind: each for each in (CRDS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)}


@asynccontextmanager
async def running(
    operator: Operator,
    client: Client,
    *,
    namespace: str = "default",
    clusters: Mapping[str, Client] = MappingProxyType({}),
) -> AsyncIterator[None]:
    """Install what an operator declares, and run it until the block ends.

    The API server gets the CRDs and the webhook configurations. The block is entered when all
    parts run. There is no election.

    Args:
        operator: the declaration.
        client: of the API server, for example the fixture `client`.
        namespace: where the certificate of the webhooks is kept.
        clusters: a client of each other cluster of the operator, by name.

    Raises:
        Exception: what a part of the operator raised, when the block ends.
    """
    port = free_port()
    reach = by_url(f"https://127.0.0.1:{port}")
    own = Client(client.transport, field_manager=operator.name)
    for made in (*definitions(operator, reach), *hook_configurations(operator, reach)):
        await own.apply(_KINDS[made["kind"]], made)
        if made["kind"] == CRDS.kind:
            await eventually(partial(_established, own, made))
    manager = Manager()
    options = ServeOptions(namespace=namespace, webhook_address=f"127.0.0.1:{port}")
    assemble(operator, manager, own, options, Telemetry(), clusters)
    program = asyncio.create_task(manager.run(), name=operator.name)
    try:
        await eventually(lambda: manager.ready or program.done())
        if not program.done():
            yield
    finally:
        manager.stop()
        await program


@overload
async def eventually(look: Callable[[], Awaitable[T]], within: float = 30.0) -> T: ...


@overload
async def eventually(look: Callable[[], T], within: float = 30.0) -> T: ...


async def eventually(look: Callable[[], Any], within: float = 30.0) -> Any:
    """Call a function until it returns something true, and return that.

    Answers of the API server such as NotFound, and lost answers, count as not yet. Those that no
    repetition changes are raised at once.

    Args:
        look: a function, or one that returns an awaitable.
        within: seconds.

    Raises:
        AssertionError: it did not; the message has the last error or value.
        BadRequest: the server does not understand the call.
        Invalid: the server does not accept the object.
    """
    end = asyncio.get_running_loop().time() + within
    while True:
        last: Any
        try:
            answer = look()
            last = await answer if inspect.isawaitable(answer) else answer
            if last:
                return last
        except (BadRequest, Invalid):
            raise
        except (ApiError, TransportError) as error:
            last = error
        if asyncio.get_running_loop().time() >= end:
            raise AssertionError(f"not within {within:g} s; at the end it was {last!r}")
        await asyncio.sleep(PAUSE)


async def settled(client: Client, value: K, within: float = 30.0) -> K:
    """Wait until an operator has dealt with an object, and return its newest state.

    The operator has, if `status.observedGeneration` is the generation of the object or a later one.

    Args:
        client: of the API server.
        value: the object, as the server returned it from a write.
        within: seconds.

    Raises:
        AssertionError: it has not.
    """
    kind = client.of(type(value))

    async def look() -> K | None:
        newest = await kind.get(value.key)
        observed = getattr(getattr(newest, "status", None), "observed_generation", 0)
        return newest if observed >= value.metadata.generation else None

    current = await eventually(look, within)
    assert current is not None
    return current


async def _established(client: Client, definition: Obj) -> bool:
    return is_true(await client.get(CRDS, key_of(definition)), "Established")
