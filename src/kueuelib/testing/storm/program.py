"""The interface between a world and its program: the installation, and the processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kueuelib.runtime.client import Client
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.testing.storm.api import Api

__all__ = ["Process", "Program"]


class Process(Protocol):
    """One process of a program, from its start until it is killed.

    A process that ends by itself is restarted a second later, as by a kubelet.
    """

    @property
    def ready(self) -> bool:
        """Whether everything that may run is ready."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        ...

    @property
    def root(self) -> object:
        """The root object of its memory; None if it cannot be inspected."""
        ...

    @property
    def telemetries(self) -> Sequence[Telemetry]:
        """The metrics of each of its lives, the newest last; empty if they cannot be read."""
        ...

    async def run(self) -> None:
        """Run until the end.

        Raises:
            Exception: The program failed; the world reports it and runs it again.
        """
        ...

    def stop(self) -> None:
        """Request an orderly end; do not run again."""
        ...


class Program(Protocol):
    """The program of a world."""

    @property
    def services(self) -> Mapping[str, str]:
        """Addresses of its webhook Services: `namespace/name` to `host:port`."""
        ...

    async def install(self, client: Client, api: Api) -> None:
        """Prepare the cluster, before the first process starts.

        Args:
            client: For calls over the wire, with an administrator's rights and without faults.
            api: For the same calls without the wire, on raw objects.
        """
        ...

    def process(self, endpoint: Endpoint) -> Process:
        """Return a new process that does not run yet.

        Args:
            endpoint: The API server.
        """
        ...
