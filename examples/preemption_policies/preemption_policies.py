"""Two preemption policies: a minimum run time, and a budget per LocalQueue."""

from __future__ import annotations

from kueuelib.scheduler import Asking, PreemptionPolicy, Refusal, Running


class MinimumRunTime(PreemptionPolicy):
    """An admitted workload runs for a while before it may be preempted.

    Args:
        seconds: for how long.
    """

    name = "example.com/minimum-run-time"

    def __init__(self, seconds: float) -> None:
        if not seconds > 0:
            raise ValueError(f"seconds is {seconds}, and must be more than 0")
        self.seconds = seconds

    def refuse(self, asking: Asking, running: Running, now: float) -> Refusal | None:
        """Refuses workloads that were admitted a short time ago."""
        if running.started_at is None:
            return None  # it waits for a check, and loses no work
        until = running.started_at + self.seconds
        if now < until:
            return Refusal(f"it ran for less than {self.seconds:g} s", until)
        return None


class PreemptionBudget(PreemptionPolicy):
    """The workloads of a LocalQueue are preempted a limited number of times in a period.

    Within the budget, the workloads that were preempted least often leave first.

    Args:
        preemptions: how many.
        seconds: the period.
    """

    name = "example.com/preemption-budget"

    def __init__(self, preemptions: int, seconds: float) -> None:
        if not preemptions > 0 or not seconds > 0:
            raise ValueError("preemptions and seconds must be more than 0")
        self.preemptions = preemptions
        self.remembers = seconds

    def refuse(self, asking: Asking, running: Running, now: float) -> Refusal | None:
        """Refuses workloads of a LocalQueue that has used up its budget."""
        recent = running.queue_preempted[-self.preemptions :]
        until = recent[0] + self.remembers if len(recent) == self.preemptions else now
        if now < until:
            why = f"{running.local_queue} lost {self.preemptions} workloads already"
            return Refusal(f"{why} in {self.remembers:g} s", until)
        return None

    def order(self, asking: Asking, running: Running) -> tuple[float, ...]:
        """Prefers low priorities as Kueue does, and then those that lost the least before."""
        return (running.priority, len(running.preempted))
