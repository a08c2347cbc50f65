"""Both policies keep the laws of preemption."""

from __future__ import annotations

from kueuelib.testing import check_preemption_policy
from preemption_policies import MinimumRunTime, PreemptionBudget


def test_minimum_run_time() -> None:
    """Whatever ran for ten minutes may be preempted."""
    assert check_preemption_policy(lambda: MinimumRunTime(seconds=600), worlds=50)


def test_preemption_budget() -> None:
    """Two preemptions per hour and LocalQueue."""
    assert check_preemption_policy(lambda: PreemptionBudget(2, seconds=3600), worlds=50)
