"""Runs an operator against the API server of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from types import MappingProxyType

import anyio

from kueuelib.api.kinds import CRDS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from kueuelib.api.meta import Obj, ObjectKey, Resource, is_true, key_of
from kueuelib.controllers.webhooks import by_url
from kueuelib.errors import NotFound, TransportError
from kueuelib.runtime.client import Client
from kueuelib.runtime.manager import Manager
from kueuelib.runtime.operator.declaration import Operator
from kueuelib.runtime.operator.hooks import definitions, hook_configurations
from kueuelib.runtime.operator.running import ServeOptions, assemble
from kueuelib.runtime.operator.served import check_served
from kueuelib.runtime.reading import read
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.testing.processes import free_port
from kueuelib.testing.waiting import eventually, observed

_HOOKS = {each.kind: each for each in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)}
RESTORE_TIMEOUT = 10.0
"""Seconds in which a webhook configuration has to be what it was."""


@asynccontextmanager
async def running(
    operator: Operator,
    client: Client,
    *,
    namespace: str = "default",
    clusters: Mapping[str, Client] = MappingProxyType({}),
) -> AsyncIterator[None]:
    """Install an operator, and run it until the block ends.

    The API server gets the CRDs and the webhook configurations. The block is entered once all parts
    run. There is no election. At the end, also after an error, the webhook configurations are as
    before; the CRDs stay, as their objects would vanish with them.

    Args:
        operator: the declaration.
        client: of the API server, for example the fixture `client`.
        namespace: for the certificate of the webhooks.
        clusters: a client of each other cluster of the operator, by name.

    Raises:
        ConfigError: a kind that the operator reconciles, owns, watches or writes is not served.
        Exception: the exception of a failed part, when the block ends.
    """
    port = free_port()
    reach = by_url(f"https://127.0.0.1:{port}")
    own = Client(client.transport, field_manager=operator.name)
    for made in definitions(operator, reach):
        await own.apply(CRDS, made)
        await eventually(partial(_established, own, made))
    await check_served(operator, own, patience=0)
    async with AsyncExitStack() as stack:
        for made in hook_configurations(operator, reach):
            before = await read(own, _HOOKS[made["kind"]], key_of(made))
            stack.push_async_callback(_restore, own, _HOOKS[made["kind"]], key_of(made), before)
            await own.apply(_HOOKS[made["kind"]], made)
        manager = Manager()
        options = ServeOptions(namespace=namespace, webhook_address=f"127.0.0.1:{port}")
        assemble(operator, manager, own, options, Telemetry(), clusters)
        with observed() as context:
            program = asyncio.create_task(manager.run(), name=operator.name, context=context)
            try:
                await eventually(lambda: manager.ready or program.done())
                if not program.done():
                    yield
            finally:
                manager.stop()
                await program


async def _restore(client: Client, resource: Resource, key: ObjectKey, before: Obj | None) -> None:
    """Make a webhook configuration what it was; a server that is gone has none."""
    with anyio.move_on_after(RESTORE_TIMEOUT, shield=True):
        with suppress(NotFound, TransportError):
            if before is None:
                await client.delete(resource, key)
            else:
                now = await client.get(resource, key)
                version = now["metadata"]["resourceVersion"]
                meta = {**before["metadata"], "resourceVersion": version, "managedFields": None}
                await client.replace(resource, {**before, "metadata": meta})


async def _established(client: Client, definition: Obj) -> bool:
    """The definition has its names, and discovery shows its versions."""
    if not is_true(await client.get(CRDS, key_of(definition)), "Established"):
        return False
    spec = definition["spec"]
    for version in spec["versions"]:
        if version["served"]:
            wanted = f"{spec['group']}/{version['name']}", spec["names"]["kind"]
            if await client.find_resource(*wanted) is None:
                return False
    return True
