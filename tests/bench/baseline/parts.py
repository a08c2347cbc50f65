"""What a run needs of a load: objects to create, and how it is played."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import attrs

from kueuelib.api.meta import Obj, Resource

from .calls import CountedClient
from .recorder import Waits


@attrs.frozen
class Patience:
    """When a run is given up, in seconds.

    Attributes:
        quiet: without any progress.
        limit: altogether.
    """

    quiet: float = 45.0
    limit: float = 3600.0


@attrs.frozen
class Outcome:
    """What came of a load; the fields are those of `Result`."""

    objects: int
    finished: int
    wall: float
    use: float | None = None
    waits: dict[str, Waits] = attrs.field(factory=dict)
    creation: float | None = None
    said_use: float | None = None


class Load(Protocol):
    """What managers are compared with."""

    def queue_objects(self) -> Iterable[tuple[Resource, Obj]]:
        """Everything that exists before the time begins, in the order of its creation."""

    async def play(
        self, client: CountedClient, patience: Patience, sample: Callable[[], None]
    ) -> Outcome:
        """Play it to its end, or until nothing more happens.

        Args:
            client: makes the calls.
            patience: when to give up.
            sample: to be called several times a second.
        """

    async def remove(self, client: CountedClient) -> None:
        """Take everything away again."""
