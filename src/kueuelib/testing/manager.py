"""Runs the whole queueing system in a test, with the test's own job kinds and checks."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kueuelib.api.kinds import MANAGER_NAMESPACE
from kueuelib.app.configuration import (
    OFF,
    Configuration,
    Health,
    Integrations,
    LeaderElection,
    Metrics,
    Webhook,
)
from kueuelib.app.installation import Installation, install, resource_of
from kueuelib.app.own_manifests import own_webhooks
from kueuelib.app.own_process import assembler, own_configuration
from kueuelib.app.wiring import Assemble, assemble_manager
from kueuelib.checks.assembly import setup as setup_checks
from kueuelib.checks.definition import Check
from kueuelib.controllers.webhooks import by_url
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.integration import Integration
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.manager import Group, Manager
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.testing.processes import free_port
from kueuelib.testing.waiting import eventually, observed
from kueuelib.workload.served import queueing_version

DEADLINE = 60.0
"""Seconds until the kinds must be served, and until everything must run."""


@asynccontextmanager
async def queueing(
    client: Client, *own: Integration | type[GenericJob[Any]] | Check | str
) -> AsyncIterator[None]:
    """Install the queueing system, and run its manager until the block ends.

    The block is entered once every part runs. There is no election, and only webhooks listen.

    Args:
        client: of the API server, for example the fixture `client`.
        own: job kinds and admission checks, each with its own manager in addition to the bundled
            one. The CRD of a job kind may be created before or inside the block. A name, such as
            `pod`, enables a bundled kind besides Jobs.

    Raises:
        ConfigError: there is no bundled kind of that name.
        Exception: the exception of a failed part, when the block ends.
    """
    names = tuple(each for each in own if isinstance(each, str))
    installation = Installation(MANAGER_NAMESPACE, _url(port := free_port()), frameworks=names)
    await install(client, installation, DEADLINE)
    version = await queueing_version(client)
    managers = [await _manager(client, _configuration(port, *names), version, assemble_manager)]
    for each in own:
        if isinstance(each, str):
            continue
        if isinstance(each, Check):
            managers.append(_check_manager(client, version, each))
            continue
        kind = each if isinstance(each, Integration) else Integration.of(each)
        port = free_port()
        for hook in own_webhooks([kind], MANAGER_NAMESPACE, by_url(_url(port))):
            await client.apply(resource_of(hook), hook)
        base = own_configuration(_configuration(port), kind)
        managers.append(await _manager(client, base, version, assembler(kind)))
    with observed() as context:
        programs = [asyncio.create_task(one.run(), context=context) for one in managers]
        try:
            await eventually(
                lambda: all(one.ready for one in managers) or any(one.done() for one in programs),
                DEADLINE,
            )
            if not any(one.done() for one in programs):
                yield
        finally:
            for manager in managers:
                manager.stop()
            await asyncio.gather(*programs)
            gc.unfreeze()  # the manager has set its caches aside


def _url(port: int) -> str:
    return f"https://127.0.0.1:{port}"


def _configuration(port: int, *names: str) -> Configuration:
    return Configuration(
        integrations=Integrations((*Integrations().frameworks, *names)),
        namespace=MANAGER_NAMESPACE,
        webhook=Webhook(host="127.0.0.1", port=port),
        leader_election=LeaderElection(leader_elect=False),
        metrics=Metrics(bind_address=OFF),
        health=Health(health_probe_bind_address=OFF),
    )


async def _manager(
    client: Client, configuration: Configuration, version: str, assemble: Assemble
) -> Manager:
    manager, own = Manager(), Client(client.transport, field_manager="kueue")
    await assemble(manager, configuration, own, Telemetry(), version, "queueing")
    return manager


def _check_manager(client: Client, version: str, check: Check) -> Manager:
    manager, own = Manager(), Client(client.transport, field_manager=check.field_manager)
    cache, recorder = Cache(own), EventRecorder(own, check.controller_name)
    manager.add(Group.EVENTS, recorder, "event recorder")
    setup_checks(manager, cache, own, recorder, [check], version=version)
    manager.add(Group.CACHES, cache, "caches")
    return manager
