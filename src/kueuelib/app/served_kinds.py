"""Waits until a cluster serves the queueing kinds."""

from __future__ import annotations

import random
from collections.abc import Iterable

from kueuelib.api.crd import all_crds
from kueuelib.api.kinds import CRDS, KUEUE
from kueuelib.api.meta import is_true
from kueuelib.errors import ConfigError
from kueuelib.machinery.backoff import Backoff
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock


async def until_served(
    client: Client, versions: Iterable[str], deadline: float, clock: Clock = SYSTEM_CLOCK
) -> None:
    """Waits until every CRD is established and the versions are in discovery.

    Args:
        client: whose cluster.
        versions: in which objects are to be served.
        deadline: seconds to wait.
        clock: how to wait.

    Raises:
        ConfigError: the kinds were not served in time.
    """
    wanted = {crd["metadata"]["name"]: crd["spec"]["names"]["kind"] for crd in all_crds()}
    pauses = Backoff(base=0.05, cap=2.0, jitter=0.1)
    started = clock.monotonic()
    while True:
        by_name = {crd["metadata"]["name"]: crd for crd in (await client.list(CRDS)).items}
        missing = [name for name in wanted if not is_true(by_name.get(name, {}), "Established")]
        if not missing:
            missing = await _undiscovered(client, versions, wanted.values())
        if not missing:
            return
        if clock.monotonic() - started > deadline:
            raise ConfigError(
                ", ".join(missing),
                f"not served after {deadline:.0f} s",
                "check the conditions of the CRDs",
            )
        await clock.sleep(pauses.next(clock.monotonic(), random.random()))


async def _undiscovered(client: Client, versions: Iterable[str], kinds: Iterable[str]) -> list[str]:
    missing: list[str] = []
    for version in versions:
        served = await client.served_kinds(KUEUE, version)
        missing += [f"{kind} ({version})" for kind in kinds if kind not in served]
    return missing
