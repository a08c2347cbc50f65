"""What a run needs of its world and of its laws."""

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
    """How often each situation was reached that is counted, not judged."""

    def commit(self, commit: Commit) -> list[Violation]:
        """Return what the next commit breaks; called once for each, in the order of revisions."""
        ...

    def at_rest(
        self, objects: Callable[[str], list[dict[str, Any]]], now: float
    ) -> list[Violation]:
        """Return what is wrong in a state that no longer changes; may be called several times.

        Args:
            objects: Gives the stored objects of a resource.
            now: The virtual time in seconds.
        """
        ...


class Theatre(Stage, Protocol):
    """The world, as far as a run needs it."""

    trace: Callable[[str], None] | None
    listeners: list[Callable[[Commit], None]]
    endings: list[str]

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        ...

    @property
    def behind(self) -> bool:
        """Whether somebody may not know yet what happened."""
        ...

    @property
    def managers(self) -> Mapping[str, object]:
        """The managers that were started, dead ones too."""
        ...

    @property
    def problems(self) -> Sequence[str]:
        """What nobody caught."""
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
        """Hand the wire over, or heal it."""
        ...

    def user(self) -> Api:
        """Return clean calls."""
        ...

    def objects(self, resource: str) -> list[dict[str, Any]]:
        """Return the stored objects of a resource."""
        ...

    async def quiet(self, seconds: float, limit: float) -> bool:
        """Wait until nothing was committed for some time."""
        ...

    def mind(self, name: str) -> Mind | None:
        """Return what a manager believes; None if it does not run."""
        ...

    def inside(self) -> list[Violation]:
        """Return what is wrong in the memory of managers, at rest."""
        ...
