"""The interfaces of a run to its world and its laws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from .disasters import Stage
from .faults import Adversary
from .history import Commit
from .laws import Violation
from .laws.charges import Mind
from .users import Api
from .wire import Witness

__all__ = ["LawBook", "Theatre"]


class LawBook(Protocol):
    """Judges one storm."""

    sometimes: Counter[str]
    """How often each counted situation was reached."""

    def commit(self, commit: Commit) -> list[Violation]:
        """Return the violations of the next commit; called once for each, in the order of
        revisions.
        """
        ...

    def at_rest(
        self, objects: Callable[[str], list[dict[str, Any]]], now: float
    ) -> list[Violation]:
        """Return the violations of a state at rest; may be called several times.

        Args:
            objects: Returns the stored objects of a resource.
            now: The virtual time in seconds.
        """
        ...


class Theatre(Stage, Protocol):
    """The part of the world that a run needs."""

    trace: Callable[[str], None] | None
    listeners: list[Callable[[Commit], None]]
    endings: list[str]

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        ...

    @property
    def behind(self) -> bool:
        """Whether some process may not know of all events yet."""
        ...

    @property
    def managers(self) -> Mapping[str, object]:
        """The managers that were started, including dead ones."""
        ...

    @property
    def problems(self) -> Sequence[str]:
        """Uncaught exceptions."""
        ...

    def tell(self, line: str) -> None:
        """Write a line into the trace."""
        ...

    async def ready(self, name: str, limit: float) -> None:
        """Wait until a manager is ready."""
        ...

    def set_witness(self, witness: Witness | None) -> None:
        """Choose the observer of calls and answers."""
        ...

    def set_adversary(self, adversary: Adversary | None) -> None:
        """Give the wire to an adversary, or heal it."""
        ...

    def user(self) -> Api:
        """Return calls without faults."""
        ...

    def objects(self, resource: str) -> list[dict[str, Any]]:
        """Return the stored objects of a resource."""
        ...

    async def quiet(self, seconds: float, limit: float) -> bool:
        """Wait until nothing was committed for some time."""
        ...

    def mind(self, name: str) -> Mind | None:
        """Return the mind of a manager; None if it does not run."""
        ...

    def inside(self) -> list[Violation]:
        """Return the violations in the memory of managers, at rest."""
        ...
