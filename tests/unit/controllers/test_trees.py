"""Objects are reconciled later, unless they will be soon anyway."""

from __future__ import annotations

from kueuelib.api.meta import ObjectKey
from kueuelib.controllers.trees import DELAY, look_later
from kueuelib.runtime.clock import SystemClock
from kueuelib.runtime.controller import Controller


class Hand(SystemClock):
    """Time that the test sets."""

    now_at = 100.0

    def monotonic(self) -> float:
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


async def test_what_is_due_soon_is_not_asked_again() -> None:
    clock = Hand()
    controller = started(clock)

    def not_before(key: ObjectKey) -> float:
        return 100.5

    core = controller.queue.core
    look_later(controller, ["a"], 0.02, not_before)
    clock.now_at += 0.1
    look_later(controller, ["a", ObjectKey("", "b")], 0.02, not_before)
    assert core.next_deadline(clock.now_at) == 100.5
    assert core.waiting == core.retries == 2


async def test_what_is_due_much_later_comes_sooner() -> None:
    clock = Hand()
    controller = started(clock)
    controller.enqueue(ObjectKey("", "a"), after=10 * DELAY)
    look_later(controller, ["a"], 0.02)
    assert controller.queue.core.next_deadline(clock.now_at) == 100.02


async def test_a_controller_that_does_not_listen_is_not_asked() -> None:
    controller = Controller("cohort", None)  # type: ignore[arg-type]
    look_later(controller, ["a"], 0.02)
    assert not controller.queue.core.waiting
