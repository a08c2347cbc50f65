"""Runs one integration in its own process, in addition to the bundled manager or the Go manager.

It reconciles jobs of one kind and answers their webhooks; scheduling is up to another process.
All its objects in the cluster have one name, made from the kind: webhook configurations, Service,
certificate, lease, ServiceAccount.
"""

from __future__ import annotations

import attrs

from kueuelib.app.configuration import Configuration, Integrations, InternalCertManagement
from kueuelib.app.part_settings import job_settings
from kueuelib.app.program_context import Assemble, ProgramContext
from kueuelib.app.servers import add_servers, add_webhooks
from kueuelib.app.wiring import NANOSECONDS, SettledMemory
from kueuelib.controllers.manifests import manager_user
from kueuelib.jobs.assembly import certificate_name, process_name, setup
from kueuelib.jobs.contract.integration import Integration
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.manager import Group
from kueuelib.runtime.webhook.server import Webhooks


def own_configuration(base: Configuration, integration: Integration) -> Configuration:
    """The manager's configuration, adapted to a process for one kind.

    Settings that both need stay: which jobs are managed, and `waitForPodsReady`.
    """
    name = process_name(integration)
    lease = attrs.evolve(base.leader_election, resource_name=name)
    certificates = InternalCertManagement(
        webhook_service_name=name, webhook_secret_name=certificate_name(integration)
    )
    return attrs.evolve(
        base,
        leader_election=lease,
        visibility_server=None,
        internal_cert_management=certificates,
        integrations=Integrations(
            frameworks=(integration.name,),
            external_frameworks=base.integrations.external_frameworks,
            label_keys_to_copy=base.integrations.label_keys_to_copy,
        ),
    )


def assembler(integration: Integration, *, alone: bool = True) -> Assemble:
    """Returns a function that adds the parts of such a process to a manager; see `run_manager`.

    Unless the manager is `alone` in its process, it leaves the garbage collector to the program
    around it.
    """

    async def assemble(program: ProgramContext) -> None:
        manager, configuration = program.manager, program.configuration
        client, telemetry = program.client, program.telemetry
        recorder = EventRecorder(client, "kueue", telemetry=telemetry)
        manager.add(Group.EVENTS, recorder, "event recorder")
        sync_timeout = configuration.controller.cache_sync_timeout / NANOSECONDS
        cache = Cache(client, sync_timeout=sync_timeout, telemetry=telemetry)
        name = process_name(integration)
        server = add_webhooks(program, (name, name))
        user = manager_user(configuration.manager_namespace, name)
        setup(
            manager,
            cache,
            client,
            recorder,
            [integration],
            webhooks=Webhooks(server, name, name, user),
            settings=job_settings(configuration),
            version=program.version,
            telemetry=telemetry,
        )
        manager.add(Group.CACHES, cache, "caches")
        if alone:
            manager.add(Group.SERVERS, SettledMemory(cache), "memory")
        add_servers(program, server, cache)

    return assemble
