"""The interfaces of a run to its world, its program and its laws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from kueuelib.runtime.client import Client
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.testing.storm.api import Api
from kueuelib.testing.storm.exchange import Witness
from kueuelib.testing.storm.faults import Adversary
from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.laws import Violation
from kueuelib.testing.storm.laws.conduct import Mind
from kueuelib.testing.storm.profiles import DisasterTarget
from kueuelib.testing.storm.users import RawCalls

__all__ = [
    "LawBook",
    "Process",
    "StormEnvironment",
    "WorldProgram",
]


# ---- the interface between a world and its program: the installation, and the processes ----------


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


class WorldProgram(Protocol):
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


# ---- the addresses of a simulated cluster, and the configuration of its managers -----------------

SERVER_PORT: Final = 6443
WEBHOOK_PORT: Final = 9443
NAMESPACE: Final = "kueue-system"
RESPAWN_SECONDS: Final = 1.0
"""Seconds until a manager that ended by itself is restarted."""
INSTALLER: Final = "installer"
USER: Final = "user"
LEASE_SECONDS: Final = 30.0
"""Seconds after which a Lease that is not renewed may be taken."""
CONFIGURATION: Final[Mapping[str, Any]] = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta1",
    "kind": "Configuration",
    "namespace": NAMESPACE,
    "health": {"healthProbeBindAddress": "0"},
    "metrics": {"bindAddress": "0"},
    "webhook": {"port": WEBHOOK_PORT},
    # Twice as patient as usual: most calls of a quiet cluster renew a Lease.
    "leaderElection": {
        "leaderElect": True,
        "leaseDuration": f"{LEASE_SECONDS:g}s",
        "renewDeadline": "20s",
        "retryPeriod": "5s",
    },
    "controller": {
        "groupKindConcurrency": {"Job.batch": 5, "Pod": 5, "Workload.kueue.x-k8s.io": 5}
    },
    "integrations": {"frameworks": ["batch/job", "pod"]},
}


# --------------------------------------------------------------------------------------------------


class LawBook(Protocol):
    """Judges one storm."""

    sometimes: Counter[str]
    """How often each counted situation was reached."""

    def commit(self, commit: Commit) -> list[Violation]:
        """Return the violations of the next commit; called once for each, in the order of
        revisions.
        """
        ...

    def at_rest(
        self, objects: Callable[[str], list[dict[str, Any]]], now: float
    ) -> list[Violation]:
        """Return the violations of a state at rest; may be called several times.

        Args:
            objects: Returns the stored objects of a resource.
            now: The virtual time in seconds.
        """
        ...


class StormEnvironment(DisasterTarget, Protocol):
    """The part of the world that a run needs."""

    trace: Callable[[str], None] | None
    listeners: list[Callable[[Commit], None]]
    endings: list[str]

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        ...

    @property
    def behind(self) -> bool:
        """Whether some process may not know of all events yet."""
        ...

    @property
    def managers(self) -> Mapping[str, object]:
        """The managers that were started, including dead ones."""
        ...

    @property
    def problems(self) -> Sequence[str]:
        """Uncaught exceptions."""
        ...

    def tell(self, line: str) -> None:
        """Write a line into the trace."""
        ...

    async def ready(self, name: str, limit: float) -> None:
        """Wait until a manager is ready."""
        ...

    def set_witness(self, witness: Witness | None) -> None:
        """Choose the observer of calls and answers."""
        ...

    def set_adversary(self, adversary: Adversary | None) -> None:
        """Give the wire to an adversary, or heal it."""
        ...

    def user(self) -> RawCalls:
        """Return calls without faults."""
        ...

    def objects(self, resource: str) -> list[dict[str, Any]]:
        """Return the stored objects of a resource."""
        ...

    async def quiet(self, seconds: float, limit: float) -> bool:
        """Wait until nothing was committed for some time."""
        ...

    def mind(self, name: str) -> Mind | None:
        """Return the mind of a manager; None if it does not run."""
        ...

    def inside(self) -> list[Violation]:
        """Return the violations in the memory of managers, at rest."""
        ...
