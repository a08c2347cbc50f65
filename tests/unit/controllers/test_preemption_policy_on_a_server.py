"""A preemption policy in a running manager: the shipped example, and one that fails."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import structlog

from kueuelib.scheduler.policy import Asking, PreemptionPolicy, Refusal, Running
from kueuelib.scheduler.settings import Settings

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "preemption_policies"))

from preemption_policies import MinimumRunTime

LOWER = {"withinClusterQueue": "LowerPriority"}


class Failing(PreemptionPolicy):
    name = "example.com/failing"

    def refuse(self, asking: Asking, running: Running, now: float) -> Refusal | None:
        raise LookupError(running.key.name)


async def test_time_alone_ends_the_protection_of_a_workload(world: Any) -> None:
    world.decisions = Settings(preemption=MinimumRunTime(3))
    await world.queues(cpu="1", preemption=LOWER)
    async with world.running():
        await world.workload("low")
        started = (await world.is_("low", "Admitted"))["lastTransitionTime"]
        await world.workload("high", priority=10)
        waits = await world.is_("high", "QuotaReserved", "False")
        assert "example.com/minimum-run-time protects 1 workload" in waits["message"]
        evicted = await world.is_("low", "Evicted")
        assert evicted["reason"] == "Preempted"
        assert evicted["lastTransitionTime"] > started


async def test_a_policy_that_fails_is_reported_and_does_not_stop_the_manager(world: Any) -> None:
    world.decisions = Settings(preemption=Failing())
    await world.queues(cpu="1", preemption=LOWER)
    with structlog.testing.capture_logs() as lines:
        async with world.running():
            await world.workload("low")
            await world.is_("low", "Admitted")
            await world.workload("high", priority=10)
            assert (await world.is_("low", "Evicted"))["reason"] == "Preempted"
    (line,) = [line for line in lines if "policy" in line]
    assert line["fault"] == "refuse() raised LookupError: low"
    name, labels = "kueuelib_preemption_policy_failures_total", {"policy": Failing.name}
    assert world.telemetry.registry.get_sample_value(name, labels) >= 1
