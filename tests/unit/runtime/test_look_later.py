"""Objects are reconciled later, unless they will be soon anyway."""

from __future__ import annotations

from kueuelib.api.meta import ObjectKey
from kueuelib.runtime.clock import SystemClock
from kueuelib.runtime.controller import Controller

A, B = ObjectKey("", "a"), ObjectKey("", "b")


class Hand(SystemClock):
    """Time that the test sets, and that never stands still."""

    now_at = 100.0

    def monotonic(self) -> float:
        self.now_at += 1e-6
        return self.now_at


class Silent:
    """An informer without deltas."""

    def add_handler(self, _: object) -> object:
        return lambda: None


def started(clock: Hand) -> Controller:
    controller = Controller("cohort", None, clock=clock)  # type: ignore[arg-type]  # none is run
    controller.watches(Silent(), lambda _: ())  # type: ignore[arg-type]
    controller.listen()
    return controller


def due(controller: Controller, clock: Hand) -> float:
    return round(controller.queue.core.next_deadline(clock.now_at) or 0.0, 3)


async def test_what_is_due_soon_is_not_asked_again() -> None:
    clock = Hand()
    controller = started(clock)
    core = controller.queue.core
    controller.look_later([A], 0.02, lambda _: 100.5)
    for _ in range(10):
        clock.now_at += 0.01
        controller.look_later([A, B], 0.02, lambda _: 100.5)
    assert due(controller, clock) == 100.5
    assert core.waiting == core.retries == 2


async def test_what_is_due_much_later_comes_sooner() -> None:
    clock = Hand()
    controller = started(clock)
    controller.enqueue(A, after=10.0)
    controller.look_later([A], 0.02)
    assert due(controller, clock) == 100.02


async def test_a_controller_that_does_not_listen_is_not_asked() -> None:
    controller = Controller("cohort", None)  # type: ignore[arg-type]
    controller.look_later([A], 0.02)
    assert not controller.queue.core.waiting
