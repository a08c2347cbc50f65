"""Runs job kinds in their own process, in addition to any manager."""

from __future__ import annotations

import os
from functools import partial

from kueuelib.api.kinds import MANAGER_NAMESPACE
from kueuelib.api.meta import ObjectKey
from kueuelib.jobs.assembly import Kind, job_webhooks, process_name, registry_with, setup
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.runtime import program
from kueuelib.runtime.addresses import own_namespace
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import WAIT_FOR_SERVER, connect
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.manager import Manager
from kueuelib.runtime.program import LEASE_DURATION, candidacy
from kueuelib.workload.served import queueing_version


async def serve(
    *kinds: Kind,
    kubeconfig: str | os.PathLike[str] | Endpoint | None = None,
    context: str | None = None,
    server_timeout: float = WAIT_FOR_SERVER,
    namespace: str = "",
    leader_elect: bool = True,
    lease_duration: float = LEASE_DURATION,
    webhook_address: str = ":9443",
    settings: JobSettings | None = None,
) -> None:
    """Runs job kinds until SIGTERM or SIGINT, or until cancelled; another process admits the jobs.

    If there are several replicas, the one that holds the Lease acts. Its objects in the cluster
    have the names that `kueuelib manifests` gives them for the first of the kinds. `kueuelib run`
    also has a configuration file, probes and metrics.

    Args:
        kinds: the kinds to run, each a subclass of `GenericJob`, an `Integration` or a name.
        kubeconfig: a kubeconfig, or the endpoint of the server; if None, kubectl's rules decide.
        context: the context of the kubeconfig.
        server_timeout: seconds to wait for the API server at the start.
        namespace: the namespace of Lease, Secret and Service; if empty, that of the pod, or
            `kueue-system` outside a cluster.
        leader_elect: whether to wait for the Lease; without it only one replica may run.
        lease_duration: seconds after which another replica takes over from one that died, whole
            and at least 2.
        webhook_address: the `host:port` on which the webhooks listen.
        settings: the settings for jobs, the same as those of the manager that admits the jobs.

    Raises:
        ConfigError: there is no kind or one cannot be queued; there is no cluster, or it has no
            queueing API; the Lease may not be read; `lease_duration` or the address is not valid.
    """
    registry, names = registry_with(kinds)
    (first,) = (each for each in registry.integrations if each.name == names[0])
    name, space = process_name(first), namespace or own_namespace(MANAGER_NAMESPACE)
    election = candidacy(ObjectKey(space, name), lease_duration)

    async def reach() -> Client:
        return await connect(
            kubeconfig, context, user_agent=f"kueuelib-jobs/{name}", field_manager="kueue"
        )

    async def assemble(
        manager: Manager, cache: Cache, client: Client, recorder: EventRecorder
    ) -> None:
        version = await queueing_version(client)
        webhooks = job_webhooks(manager, client, kinds, webhook_address, namespace=space)
        setup(
            manager,
            cache,
            client,
            recorder,
            kinds,
            webhooks=webhooks,
            settings=settings,
            version=version,
        )

    await program.serve(
        reach, election if leader_elect else None, "kueue", assemble, server_timeout
    )


def run(
    *kinds: Kind,
    kubeconfig: str | os.PathLike[str] | None = None,
    context: str | None = None,
    namespace: str = "",
    leader_elect: bool = True,
    lease_duration: float = LEASE_DURATION,
    webhook_address: str = ":9443",
    settings: JobSettings | None = None,
) -> None:
    """Runs job kinds until SIGTERM or SIGINT; the last line of a program. See `serve`."""
    from kueuelib.runtime.entry import run_logged

    run_logged(
        partial(
            serve,
            *kinds,
            kubeconfig=kubeconfig,
            context=context,
            namespace=namespace,
            leader_elect=leader_elect,
            lease_duration=lease_duration,
            webhook_address=webhook_address,
            settings=settings,
        )
    )
