"""The bundled manager, and the process of one kind of jobs, as programs of a world."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kueuelib.api.kinds import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from kueuelib.api.meta import Obj
from kueuelib.app.configuration import Configuration
from kueuelib.app.configuration_reading import parse_configuration
from kueuelib.app.installation import Installation, install
from kueuelib.app.own_process import assembler, own_configuration
from kueuelib.app.program_context import Assemble, ProgramContext
from kueuelib.app.program_manifests import process_manifests
from kueuelib.app.wiring import assemble_manager, lives_of
from kueuelib.jobs.assembly import process_name
from kueuelib.jobs.contract.integration import Integration
from kueuelib.runtime.client import Client
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.manager import Manager, ProgramRun, run_until_stopped
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.testing.storm.api import Api
from kueuelib.testing.storm.environment import CONFIGURATION, NAMESPACE, WEBHOOK_PORT
from kueuelib.testing.storm.network import WEBHOOK_HOST

__all__ = ["BundledManager", "JobProgram", "ManagerProcess"]

JOB_WEBHOOK_PORT: Final = 9444
"""The port of the process of one kind; the other manager uses another one."""
_INSTALLED: Final = frozenset({MUTATING_WEBHOOKS.kind, VALIDATING_WEBHOOKS.kind, "Service"})
SERVICES: Final = {f"{NAMESPACE}/kueue-webhook-service": f"{WEBHOOK_HOST}:{WEBHOOK_PORT}"}


class ManagerProcess:
    """A process of a manager that is assembled from a configuration.

    Args:
        configuration: The manager's configuration.
        endpoint: The API server.
        assemble: Adds the parts.

    Attributes:
        root: The manager of the present life; None until its parts are known.
        telemetries: The metrics of each life.
    """

    def __init__(
        self,
        configuration: Configuration,
        endpoint: Endpoint,
        assemble: Assemble = assemble_manager,
    ) -> None:
        self.root: Manager | None = None
        self.telemetries: list[Telemetry] = []
        self._configuration = configuration
        self._endpoint = endpoint
        self._add_parts = assemble
        self._life = ProgramRun()

    @property
    def ready(self) -> bool:
        """Whether all parts of the manager that may run do."""
        return self.root is not None and self.root.ready

    @property
    def stopped(self) -> bool:
        """Whether it was asked to stop."""
        return self._life.stopped

    async def run(self) -> None:
        """Run the manager, again after each lost lease."""
        try:
            once = lives_of(self._configuration, "storm", self._endpoint, self._assemble)
            await run_until_stopped(self._life, once, math.inf)
        finally:
            self.root = None

    def stop(self) -> None:
        """Request an orderly end."""
        self._life.stop()

    async def _assemble(self, program: ProgramContext) -> None:
        self.root = program.manager
        self.telemetries.append(program.telemetry)
        await self._add_parts(program)


class BundledManager:
    """The whole queueing system: CRDs, permissions, webhooks, and its manager.

    Args:
        configuration: The manager's configuration, decoded from YAML; None for the default of
            storms.

    Raises:
        ConfigError: The configuration cannot work.
    """

    def __init__(self, configuration: Mapping[str, Any] | None = None) -> None:
        self.services: Mapping[str, str] = SERVICES
        self._configuration = parse_configuration(dict(configuration or CONFIGURATION), "storm")

    async def install(self, client: Client, api: Api) -> None:
        """Write the objects of `kueuelib install`."""
        del api
        await install(client, Installation(NAMESPACE), 60.0)

    def process(self, endpoint: Endpoint) -> ManagerProcess:
        """Return a new process of the manager."""
        return ManagerProcess(self._configuration, endpoint)


class JobProgram:
    """One kind of jobs in its own process, like `kueuelib run`.

    Args:
        integration: The kind.
        objects: Raw objects that are created before it starts.
    """

    def __init__(self, integration: Integration, objects: Sequence[Obj] = ()) -> None:
        name = process_name(integration)
        self.services = {f"{NAMESPACE}/{name}": f"{WEBHOOK_HOST}:{JOB_WEBHOOK_PORT}"}
        manifests = process_manifests([integration], "storm", NAMESPACE, image="storm")
        self._objects = (
            *objects,
            *(each for each in manifests if each["kind"] in _INSTALLED),
        )
        base = {**CONFIGURATION, "webhook": {"port": JOB_WEBHOOK_PORT}}
        self._configuration = own_configuration(parse_configuration(base, "storm"), integration)
        self._assemble = assembler(integration)

    async def install(self, client: Client, api: Api) -> None:
        """Create the objects, the Service and the webhook configurations."""
        del client
        await api.create_missing(self._objects)

    def process(self, endpoint: Endpoint) -> ManagerProcess:
        """Return a new process."""
        return ManagerProcess(self._configuration, endpoint, self._assemble)
