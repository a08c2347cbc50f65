"""One API server of several: its client, its caches, and whether it answers."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from kueuelib.errors import ApiError, ConfigError, TransportError
from kueuelib.machinery.backoff import Backoff
from kueuelib.machinery.options import ReflectorOptions
from kueuelib.runtime.cache import SYNC_TIMEOUT, Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.failures import with_fix
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.steps import lasting_tasks

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry


# ---- whether the API server still answers, for readiness -----------------------------------------

INTERVAL = 5.0
"""Seconds without an answer after which the server is asked for its version."""
ATTEMPT_TIMEOUT = 5.0
PATIENCE = 20.0
"""Seconds without an answer after which the server counts as away."""


class ServerContact:
    """Notes when the API server answered last; a part of a `Manager`.

    Every answer to a call of the client counts, even a refusal, but not a failure of the server
    (5xx). While there are no calls, the server is asked for its version, so a silent network is
    noticed before any watch ends. One answer is enough to be in contact again: a server that
    answers occasionally causes no flapping, because only `patience` seconds without any answer
    count.

    Args:
        client: whose server.
        cluster: its name in the log, if there are several.
        interval: seconds without an answer after which the server is asked.
        patience: seconds without an answer after which there is a problem.
        clock: time.
    """

    def __init__(
        self,
        client: Client,
        *,
        cluster: str = "",
        interval: float = INTERVAL,
        patience: float = PATIENCE,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._transport = client.transport
        self._interval = interval
        self._patience = patience
        self._clock = clock
        self._since = clock.monotonic()
        self._error = ""
        self._away = False
        self._log = get_logger("contact", **({"cluster": cluster} if cluster else {}))

    def problem(self) -> str:
        """How long the server has not answered, and why; empty while it answers."""
        silent = self._silent()
        if silent < self._patience:
            return ""
        why = f" ({self._error})" if self._error else ""
        return f"the API server has not answered for {silent:.0f} s{why}"

    async def run(self, ready: Callable[[], None]) -> None:
        """Ask whenever the server was silent for the interval, until cancelled."""
        ready()
        while True:
            left = self._interval - self._silent()
            if left <= 0.0:
                await self._ask()
                left = self._interval
            self._log_changes()
            await self._clock.sleep(left)

    async def _ask(self) -> None:
        try:
            await self._transport.request("GET", "/version", timeout=ATTEMPT_TIMEOUT, verb="get")
        except (ApiError, TransportError, ConfigError) as error:
            self._error = error.problem if isinstance(error, TransportError) else str(error)

    def _silent(self) -> float:
        """Seconds since the last answer; without one, since this object was made."""
        heard = self._transport.answered_at
        since = self._since if heard is None else max(heard, self._since)
        return self._clock.monotonic() - since

    def _log_changes(self) -> None:
        """Log when the server goes away and when it is back."""
        problem = self.problem()
        if problem and not self._away:
            self._log.warning("not ready", problem=problem)
        elif self._away and not problem:
            self._log.info("the API server answers again")
        self._away = bool(problem)


# --------------------------------------------------------------------------------------------------

CATCH_UP_TIMEOUT = 10.0
"""Seconds for which another cluster may delay a new leader."""
_NAME = re.compile(r"[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?")


class Cluster:
    """A cluster: client, caches, and whether its API server answers; a part of a `Manager`.

    Controllers watch the objects of all clusters in the same way:

    ```python
    west = Cluster(west_client, "west")
    manager.add(Group.CACHES, west)
    controller.watches(west.cache.informer(kinds.JOBS), lambda delta: [delta.key])
    probes.add_ready_check("west", west.problem, shown=True, required=False)
    ```

    The loss of a cluster with a name is isolated. No start, no controller and no new leader waits
    for it, and nothing stops. Its informers keep what they know, and resume when it answers again:
    what has changed arrives as deltas. Ask `problem` before you act on what may be stale. The
    program's own cluster has no name. It must answer at the start, as with a `Cache` alone.

    Args:
        client: of the API server; the caller closes it.
        name: for probes, logs and metrics; empty for the program's own cluster.
        interval: seconds without an answer after which the server is asked for its version.
        patience: seconds without an answer after which the cluster counts as away.
        options: how to list and watch.
        clock: time.
        telemetry: where to report.

    Attributes:
        name: see above.
        client: see above.
        cache: makes informers.

    Raises:
        ConfigError: the name is not valid.
    """

    def __init__(
        self,
        client: Client,
        name: str = "",
        *,
        interval: float = INTERVAL,
        patience: float = PATIENCE,
        options: ReflectorOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
        telemetry: Telemetry | None = None,
    ) -> None:
        if name and not _NAME.fullmatch(name):
            raise ConfigError(
                f"cluster {name!r}", "is not a valid name", "use letters, digits, '-', '.' and '_'"
            )
        self.name = name
        self.client = client
        self.cache = Cache(
            client,
            options=options,
            sync_timeout=CATCH_UP_TIMEOUT if name else SYNC_TIMEOUT,
            cluster=name,
            clock=clock,
            telemetry=telemetry,
        )
        self._contact = ServerContact(
            client, cluster=name, interval=interval, patience=patience, clock=clock
        )
        self._clock = clock
        self._behind = False  # a leader has not read it yet
        self._log = get_logger("cluster", **({"cluster": name} if name else {}))
        if telemetry is not None:
            telemetry.gauge(
                "kueuelib_cluster_up",
                "Whether a cluster answers and its objects are known.",
                ("cluster",),
            ).labels(name).set_function(lambda: 0.0 if self.problem() else 1.0)

    def problem(self) -> str:
        """Why the cluster cannot be relied on now; empty if it can.

        It does not answer, a first list is missing, or this process leads and could not read it
        since.
        """
        if silent := self._contact.problem():
            return silent
        if self._behind:
            return "it could not be read since this process became the leader"
        for informer in self.cache.unsynced:
            why = f" ({informer.failing})" if informer.failing else ""
            return f"{informer.resource.plural} have not been listed yet{why}"
        return ""

    async def run(self, ready: Callable[[], None]) -> None:
        """Follow the cluster until cancelled.

        Raises:
            ConfigError: it has no name, and its first lists took too long.
        """
        async with lasting_tasks(f"cluster {self.name}") as group:
            group.start_soon(self._contact.run, lambda: None, name=f"contact {self.name}")
            group.start_soon(self._keep_up, name=f"catching up {self.name}")
            group.start_soon(self.cache.run, ready, name=f"caches {self.name}")

    async def catch_up(self) -> None:
        """Make every store as new as the server; a `Manager` that takes over calls it.

        A cluster with a name that does not answer is read later, when it does.

        Raises:
            ConfigError: it has no name, and could not be read in time.
        """
        if not self.name:
            await self.cache.catch_up()
            return
        self._behind = True
        if not self._contact.problem():
            await self._try_to_catch_up()

    async def _try_to_catch_up(self) -> None:
        try:
            await self.cache.catch_up()
        except ConfigError as error:
            self._log.warning("cannot be read", error=with_fix(error))
        else:
            self._behind = False

    async def _keep_up(self) -> None:
        """Read a cluster that was away when this process became the leader, once it answers."""
        pauses = Backoff(base=1.0, cap=30.0)
        while True:
            await self._clock.sleep(pauses.next(self._clock.monotonic(), random.random()))
            if not self._behind:
                pauses.reset()
            elif not self._contact.problem():
                await self._try_to_catch_up()
