"""From a configuration to a running manager: its parts, and when they start."""

from __future__ import annotations

import gc
import linecache
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import attrs

from kueuelib import __version__
from kueuelib.api.crd import converted_crds
from kueuelib.api.definitions import CONVERSION_PATH
from kueuelib.api.kinds import ADMISSION_CHECKS, API_SERVICES, CRDS
from kueuelib.app.configuration import Configuration
from kueuelib.app.configuration_reading import check_addresses, election_options
from kueuelib.app.decision_settings import engine_settings
from kueuelib.app.part_settings import job_settings, life_settings
from kueuelib.app.program_context import Assemble, ProgramContext
from kueuelib.app.reloading import RESTART_NEEDED, ConfigurationFile
from kueuelib.app.running_configuration import PUBLISHED, LeaseNotes, published
from kueuelib.app.servers import add_servers, add_visibility, add_webhooks, waiting_probes
from kueuelib.checks import setup
from kueuelib.checks.definition import installed
from kueuelib.checks.heartbeats import HeartbeatWatch
from kueuelib.checks.provisioning import provisioning_check
from kueuelib.controllers.assembly import ControllerSettings
from kueuelib.controllers.assembly import setup as setup_controllers
from kueuelib.controllers.manifests import manager_user
from kueuelib.controllers.webhooks import MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION
from kueuelib.controllers.webhooks import serve as serve_queueing
from kueuelib.jobs.assembly import add_jobs, wire
from kueuelib.jobs.assembly import add_webhooks as add_job_webhooks
from kueuelib.jobs.plugins import registry_for
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import connect, wait_for_server
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.entry import uncollected
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.leader import Elector, default_identity
from kueuelib.runtime.manager import Group, Manager, ProgramRun, run_until_signal
from kueuelib.runtime.telemetry import RestMetrics, Telemetry
from kueuelib.runtime.webhook.server import Webhooks
from kueuelib.runtime.webhook.trust import Trusting
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.settings import Settings
from kueuelib.workload.served import queueing_version

if TYPE_CHECKING:
    from kueuelib.recording.writer import RecordingOptions


# ---- admission checks in the bundled manager: built-in ones and those of installed packages ------


def add_checks(
    program: ProgramContext, cache: Cache, client: Client, recorder: EventRecorder
) -> None:
    """Adds the built-in check, those of installed packages, and the watch for silent processes.

    Args:
        program: gets them.
        cache: shares informers.
        client: writes.
        recorder: for events.

    Raises:
        ConfigError: a package offers something that cannot be loaded or is not a check.
    """
    manager, version, telemetry = program.manager, program.version, program.telemetry
    namespace = program.configuration.manager_namespace
    checks = (provisioning_check(version=version), *installed())
    setup(manager, cache, client, recorder, checks, version=version, telemetry=telemetry)
    informer = cache.informer(ADMISSION_CHECKS.at(version))
    names = [check.controller_name for check in checks]
    watch = HeartbeatWatch(client, informer, recorder, namespace, names)
    manager.add(Group.ELECTED, watch, "silence of checks")


# --------------------------------------------------------------------------------------------------

USER_AGENT = f"kueuelib/{__version__}"
GC_THRESHOLDS = (20_000, 10, 500)
"""A collection of the youngest holds the event loop for 5 to 13 ms, one of 100,000 objects for 50.
A full one, which holds it for as long as there are objects, is as rare as with 100,000, 20, 50.
"""
NANOSECONDS = 1e9


async def run_manager(
    configuration: Configuration,
    source: str,
    kubeconfig: Path | None,
    server_timeout: float,
    assemble: Assemble | None = None,
    *,
    serves: bool = True,
) -> None:
    """Runs the manager, or another program of the same form, until SIGTERM or SIGINT.

    Args:
        configuration: the user's configuration.
        source: what to call the configuration in errors.
        kubeconfig: where the cluster is; found by kubectl's rules when None.
        server_timeout: seconds to wait for the API server at the start.
        assemble: adds the parts; by default those of the bundled manager.
        serves: whether the parts listen at the addresses of the configuration.

    Raises:
        ConfigError: a problem with the kubeconfig, the server, missing CRDs or ports in use.
    """
    gc.set_threshold(*GC_THRESHOLDS)  # the first lists make many objects, and all of them stay
    if serves:
        await check_addresses(configuration, source)
    await run_until_signal(lives_of(configuration, source, kubeconfig, assemble), server_timeout)


def lives_of(
    configuration: Configuration,
    source: str,
    cluster: Path | Endpoint | None,
    assemble: Assemble | None = None,
) -> Callable[[ProgramRun, float], Awaitable[None]]:
    """The function for `run_until_signal` and `live_until`: it runs one life of the manager, always
    with the same identity.

    Args:
        configuration: the user's configuration.
        source: what to call the configuration in errors.
        cluster: a kubeconfig or an endpoint; found by kubectl's rules when None.
        assemble: adds the parts; by default those of the bundled manager.
    """
    identity = default_identity()  # of all lives, so that the next one knows the lost lease as ours

    async def once(life: ProgramRun, patience: float) -> None:
        telemetry = Telemetry()
        rate = configuration.client_connection
        async with await connect(
            cluster,
            observer=RestMetrics(telemetry),
            user_agent=USER_AGENT,
            field_manager="kueue",
            qps=rate.qps,
            burst=rate.burst,
        ) as client:
            async with waiting_probes(configuration, client, source):
                await wait_for_server(client, patience)
                version = await queueing_version(client)
            election = await _elector(configuration, source, cluster, telemetry, identity)
            try:
                manager = Manager(elector=election.elector if election else None)
                program = ProgramContext(manager, configuration, client, telemetry, version, source)
                await (assemble or assemble_manager)(program)
                await life.run(manager)
            finally:
                if election:
                    await election.client.close()

    return once


async def assemble_manager(
    program: ProgramContext,
    recording: RecordingOptions | None = None,
    file: Path | None = None,
    *,
    alone: bool = True,
) -> None:
    """Adds every part of the bundled manager.

    With `recording`, the input and the decisions of the engine are written to a file. With `file`,
    the manager follows changes of that configuration file. Unless it is `alone` in its process, it
    leaves the garbage collector to the program around it.
    """
    manager, configuration = program.manager, program.configuration
    client, telemetry = program.client, program.telemetry
    annotate = manager.annotate_lease
    if file is not None and not configuration.leader_election.leader_elect:
        notes = LeaseNotes(client, configuration.lease)
        manager.add(Group.OTHERS, notes, "notes on the lease")
        annotate = notes.annotate
    annotate(RESTART_NEEDED, "")  # of this life: the last one may have left others
    annotate(PUBLISHED, published(configuration, manager.identity))
    workers = configuration.controller.group_kind_concurrency
    recorder = EventRecorder(client, "kueue", telemetry=telemetry)
    manager.add(Group.EVENTS, recorder, "event recorder")
    cache = Cache(
        client,
        sync_timeout=configuration.controller.cache_sync_timeout / NANOSECONDS,
        telemetry=telemetry,
    )
    engine = engine_for(manager, engine_settings(configuration, program.source), recording)
    controllers = setup_controllers(
        manager,
        cache,
        client,
        recorder,
        engine,
        telemetry=telemetry,
        settings=ControllerSettings(
            version=program.version,
            workers=workers,
            metrics=configuration.metrics.settings,
            life=life_settings(configuration),
            reason_events=configuration.integrations.reason_events,
        ),
    )
    settings = job_settings(configuration)
    registry = registry_for(settings.frameworks)
    leading = client.guarded(manager.require_leadership)  # a paused leader may wake up too late
    wired = wire(
        leading,
        cache,
        recorder,
        settings,
        version=program.version,
        registry=registry,
        telemetry=telemetry,
    )
    add_jobs(manager, wired, recorder)
    add_checks(program, cache, leading, recorder)
    manager.add(Group.CACHES, cache, "caches")
    if alone:
        manager.add(Group.SERVERS, SettledMemory(cache), "memory")
    names = (MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION)
    trusting = [Trusting(CRDS, name, path=CONVERSION_PATH) for name in converted_crds()]
    if configuration.visibility_server is not None:
        from kueuelib.controllers.manifests import api_service_names

        trusting += [Trusting(API_SERVICES, name, optional=True) for name in api_service_names()]
    visibility = configuration.tls.context()  # of its own: it asks for client certificates
    metrics = configuration.tls.context()
    server = add_webhooks(program, names, trusting, [visibility, metrics])
    serve_queueing(server, admits_claims=settings.admits_claims, places_pods=settings.places_pods)
    webhooks = Webhooks(server, *names, manager_user(configuration.manager_namespace))
    enabled = registry.enabled(settings.frameworks)
    add_job_webhooks(manager, client, webhooks, wired, enabled, settings)
    add_servers(program, server, cache, metrics)
    life = life_settings(configuration)
    starts = add_visibility(program, engine, controllers.feed, life, visibility)
    if file is not None:

        def take(reloaded: Configuration) -> None:
            controllers.use_life(life_settings(reloaded))
            if starts is not None:
                starts.life = life_settings(reloaded)
            controllers.report(reloaded.metrics.local_queue_metrics.selector)
            annotate(PUBLISHED, published(reloaded, manager.identity))

        def announce(keys: tuple[str, ...]) -> None:
            annotate(RESTART_NEEDED, ", ".join(keys))

        followed = ConfigurationFile(file, configuration, take, telemetry, announce=announce)
        manager.add(Group.OTHERS, followed, "configuration file")


def engine_for(manager: Manager, settings: Settings, recording: RecordingOptions | None) -> Engine:
    """The decision engine; if it is recorded, the manager also gets the recorder.

    Raises:
        ConfigError: the file cannot be written.
    """
    if recording is None:
        return Engine(settings)
    from kueuelib.recording.writer import Recorder

    recorder = Recorder(recording, settings)
    manager.add(Group.EVENTS, recorder, "recorder")
    return recorder.engine


class SettledMemory:
    """Keeps the garbage collector from traversing the caches, while they are filled and later.

    The source of the methods that attrs generates goes first: 1.6 MB that only tracebacks show.

    Args:
        cache: the caches; they start later.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    async def run(self, ready: Callable[[], None]) -> None:
        """Freezes the content of the caches, then does nothing until cancelled."""
        linecache.clearcache()
        gc.collect()
        ready()
        with uncollected():
            await self._cache.wait_synced()
            gc.freeze()
        await anyio.sleep_forever()


@attrs.frozen
class _Election:
    elector: Elector
    client: Client


async def _elector(
    configuration: Configuration,
    source: str,
    cluster: Path | Endpoint | None,
    telemetry: Telemetry,
    identity: str,
) -> _Election | None:
    """The elector with a client of its own, so that other calls cannot delay a renewal."""
    options = election_options(configuration, identity, source)
    if options is None:
        return None
    client = await connect(cluster, user_agent=USER_AGENT, field_manager="kueue")
    return _Election(Elector(client, options, telemetry=telemetry), client)
