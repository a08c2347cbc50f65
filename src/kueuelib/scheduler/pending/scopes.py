"""All scopes, and which of them are due (spec/scheduling 9.3).

A scope gets a cycle when something happened in it since its last one. When nobody in it is left to
be tried, it gets one more for those whose verdict may not hold.
"""

from __future__ import annotations

from collections.abc import Iterable

from kueuelib.scheduler.pending.queue import PendingQueue
from kueuelib.scheduler.pending.waking import Scope, ScopeState, scope_of
from kueuelib.scheduler.quota.amounts import FlavorResource

__all__ = ["Scope", "ScopeState", "Scopes", "scope_of"]


class Scopes:
    """All scopes, and which of them are due.

    Attributes:
        now: the present instant: it counts what happens, and the cycles.
    """

    def __init__(self) -> None:
        self.now = 0
        self._states: dict[Scope, ScopeState] = {}
        self._due: dict[Scope, None] = {}
        self._stale: dict[Scope, None] = {}

    def put(self, queue: PendingQueue, scope: Scope) -> None:
        """A ClusterQueue belongs to a scope from now on."""
        if queue.scope.scope != scope:
            self.remove(queue)
            queue.scope = self._states.setdefault(scope, ScopeState(scope))
            queue.scope.members[queue.name] = queue
            if queue.items:
                queue.scope.waiting[queue.name] = queue

    def remove(self, queue: PendingQueue) -> None:
        """A ClusterQueue belongs to no scope any more."""
        state = queue.scope
        state.members.pop(queue.name, None)
        state.waiting.pop(queue.name, None)
        if not state.members:
            for table in (self._states, self._due, self._stale):
                table.pop(state.scope, None)

    # --- what happens

    def touch(self, scope: Scope) -> ScopeState | None:
        """Something happened in the scope that a head may notice; None when it does not exist."""
        state = self._states.get(scope)
        if state is not None:
            self.now += 1
            state.touched = self.now
            self._due[scope] = None
        return state

    def touch_all(self) -> None:
        """Something happened that matters everywhere."""
        for scope in self._states:
            self.touch(scope)

    def wake(
        self, scope: Scope, freed: Iterable[FlavorResource] | None, *, from_outside: bool = True
    ) -> None:
        """Something moved that may help parked workloads of the scope.

        Args:
            scope: where.
            freed: what became free; None when something else happened, which may help everybody.
            from_outside: whether it happened for another cause than a preemption.
        """
        state = self.touch(scope)
        if state is not None:
            state.free(freed, self.now)
            if from_outside:
                state.preempted.clear()

    def charged(
        self, scope: Scope, borrower: str, borrowed: Iterable[FlavorResource | None], lowest: int
    ) -> None:
        """A ClusterQueue of the scope uses more than before; see `ScopeState.charge`."""
        state = self.touch(scope)
        if state is not None:
            state.charge(borrower, borrowed, lowest, self.now)
            self._stale[scope] = None

    def may_be_stale(self, state: ScopeState) -> None:
        """A verdict was given in the scope, so it is worth a look when it comes to rest."""
        self._stale[state.scope] = None

    def leaves_open(self, state: ScopeState) -> None:
        """A head went back to its heap, and not all that it may get was tried."""
        state.unsure = True
        self.may_be_stale(state)

    # --- cycles

    def any_due(self) -> bool:
        """Whether any scope is due."""
        for scope in [found for found in self._stale if found not in self._due]:
            del self._stale[scope]
            self.now += 1
            if self._states[scope].wake_at_rest(self.now):
                self._due[scope] = None
        return bool(self._due)

    def is_due_again(self, state: ScopeState) -> None:
        """The scope gets a further cycle, although nothing happened in it."""
        self._due[state.scope] = None

    def begin_cycle(self) -> tuple[ScopeState, ...]:
        """The scopes that take part in the cycle that begins."""
        self.any_due()
        due = tuple(self._due)
        self._due.clear()
        self.now += 1
        return tuple(self._states[scope] for scope in due)
