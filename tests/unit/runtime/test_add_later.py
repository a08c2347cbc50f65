"""A key is added later, unless it will be ready soon anyway."""

from __future__ import annotations

from kueuelib.runtime.clock import SystemClock
from kueuelib.runtime.controller import WorkQueue


class Hand(SystemClock):
    """Time that the test sets, and that never stands still."""

    now_at = 100.0

    def monotonic(self) -> float:
        self.now_at += 1e-6
        return self.now_at


def due(queue: WorkQueue[str], clock: Hand) -> float:
    return round(queue.core.next_deadline(clock.now_at) or 0.0, 3)


async def test_what_is_due_soon_is_not_added_again() -> None:
    clock = Hand()
    queue = WorkQueue[str]("test", clock=clock)
    queue.add_later(["a"], 0.02, lambda _: 100.5)
    for _ in range(10):
        clock.now_at += 0.01
        queue.add_later(["a", "b"], 0.02, lambda _: 100.5)
    assert due(queue, clock) == 100.5
    assert queue.core.waiting == queue.core.retries == 2


async def test_what_is_due_much_later_comes_sooner() -> None:
    clock = Hand()
    queue = WorkQueue[str]("test", clock=clock)
    queue.add("a", after=10.0)
    queue.add_later(["a"], 0.02)
    assert due(queue, clock) == 100.02
