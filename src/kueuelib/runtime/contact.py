"""Whether the API server still answers, for readiness."""

from __future__ import annotations

from collections.abc import Callable

from kueuelib.errors import ApiError, ConfigError, TransportError
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.logs import get_logger

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
            self._tell()
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

    def _tell(self) -> None:
        """Log when the server goes away and when it is back."""
        problem = self.problem()
        if problem and not self._away:
            self._log.warning("not ready", problem=problem)
        elif self._away and not problem:
            self._log.info("the API server answers again")
        self._away = bool(problem)
