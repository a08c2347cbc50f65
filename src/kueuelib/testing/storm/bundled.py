"""The bundled manager as a program of a world, alone or with one integration of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from kueuelib.app.configuration import Configuration, parse_configuration
from kueuelib.app.installation import Plan, install
from kueuelib.app.wiring import Assemble, assemble_manager, lives_of
from kueuelib.runtime.client import Client
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.lives import Life, live_until
from kueuelib.runtime.manager import Manager
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.testing.storm.api import Api
from kueuelib.testing.storm.settings import CONFIGURATION, NAMESPACE, WEBHOOK_PORT
from kueuelib.testing.storm.wire import WEBHOOK_HOST

__all__ = ["BundledManager", "ManagerProcess"]

SERVICES: Final = {f"{NAMESPACE}/kueue-webhook-service": f"{WEBHOOK_HOST}:{WEBHOOK_PORT}"}


class ManagerProcess:
    """A process of a manager that is wired from a configuration.

    Args:
        configuration: Of the manager.
        endpoint: The API server.
        assemble: Adds the parts.

    Attributes:
        root: The manager of the present life; None until its parts are known.
        telemetries: What each life measures.
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
        self._life = Life()

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
            await live_until(self._life, once, math.inf)
        finally:
            self.root = None

    def stop(self) -> None:
        """Request an orderly end."""
        self._life.stop()

    async def _assemble(
        self,
        manager: Manager,
        configuration: Configuration,
        client: Client,
        telemetry: Telemetry,
        version: str,
        source: str,
    ) -> None:
        self.root = manager
        self.telemetries.append(telemetry)
        await self._add_parts(manager, configuration, client, telemetry, version, source)


class BundledManager:
    """The whole queueing system: CRDs, permissions, webhooks, and its manager.

    Args:
        configuration: Of the manager, decoded from YAML; None for the usual one of storms.

    Raises:
        ConfigError: The configuration cannot work.
    """

    def __init__(self, configuration: Mapping[str, Any] | None = None) -> None:
        self.services: Mapping[str, str] = SERVICES
        self._configuration = parse_configuration(dict(configuration or CONFIGURATION), "storm")

    async def install(self, client: Client, api: Api) -> None:
        """Write what `kueuelib install` writes."""
        del api
        await install(client, Plan(NAMESPACE), 60.0)

    def process(self, endpoint: Endpoint) -> ManagerProcess:
        """Return a new process of the manager."""
        return ManagerProcess(self._configuration, endpoint)
