"""Runs an operator against the API server of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType

from kueuelib.api.kinds import CRDS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from kueuelib.api.meta import Obj, is_true, key_of
from kueuelib.controllers.webhooks import by_url
from kueuelib.runtime.client import Client
from kueuelib.runtime.manager import Manager
from kueuelib.runtime.operator.declaration import Operator
from kueuelib.runtime.operator.hooks import definitions, hook_configurations
from kueuelib.runtime.operator.running import ServeOptions, assemble
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.testing.processes import free_port
from kueuelib.testing.waiting import eventually, observed

_KINDS = {each.kind: each for each in (CRDS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)}


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
    run. There is no election.

    Args:
        operator: the declaration.
        client: of the API server, for example the fixture `client`.
        namespace: for the certificate of the webhooks.
        clusters: a client of each other cluster of the operator, by name.

    Raises:
        Exception: the exception of a failed part, when the block ends.
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
    with observed() as context:
        program = asyncio.create_task(manager.run(), name=operator.name, context=context)
        try:
            await eventually(lambda: manager.ready or program.done())
            if not program.done():
                yield
        finally:
            manager.stop()
            await program


async def _established(client: Client, definition: Obj) -> bool:
    return is_true(await client.get(CRDS, key_of(definition)), "Established")
