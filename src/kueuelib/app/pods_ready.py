"""The block `waitForPodsReady` of the configuration (KEP-349)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kueuelib.app.configuration_keys import at_least, key, one_of
from kueuelib.app.decoding import Duration

if TYPE_CHECKING:
    from kueuelib.workload.life import PodsReadyPolicy


@attrs.frozen
class RequeuingStrategy:
    """How a workload is requeued after its pods were not ready in time."""

    timestamp: str = key("Eviction", rule=one_of("Eviction", "Creation"))
    backoff_limit_count: int | None = key(None, live=True, rule=at_least(0))
    backoff_base_seconds: int = key(60, live=True, rule=at_least(0))
    backoff_max_seconds: int = key(3600, live=True, rule=at_least(0))


@attrs.frozen
class WaitForPodsReady:
    """All-or-nothing start with a time-out; without a `recovery_timeout`, or if it is 0, pods that
    fail later may stay away.
    """

    enable: bool = False
    timeout: Duration = key(Duration(300), live=True)
    recovery_timeout: Duration | None = None
    block_admission: bool | None = None
    requeuing_strategy: RequeuingStrategy = RequeuingStrategy()

    @property
    def blocks(self) -> bool:
        """Whether workloads are admitted one at a time, which is the default."""
        return self.enable and self.block_admission is not False

    @property
    def policy(self) -> PodsReadyPolicy:
        """The same for the life of Workloads."""
        from kueuelib.workload.life import PodsReadyPolicy

        strategy = self.requeuing_strategy
        return PodsReadyPolicy(
            timeout=self.timeout,
            recovery_timeout=self.recovery_timeout or None,
            backoff_base=strategy.backoff_base_seconds,
            backoff_max=strategy.backoff_max_seconds,
            limit=strategy.backoff_limit_count,
        )
