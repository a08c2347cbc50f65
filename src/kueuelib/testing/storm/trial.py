"""The trial of a storm: a program, its users, and its laws."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from .bundled import BundledManager
from .draws import Draws
from .history import Obj
from .laws import Laws, Tolerance
from .profiles import RESOURCES, Profile
from .program import Program
from .run import LIMIT, WATCHES
from .settings import CONFIGURATION
from .theatre import LawBook
from .users import Scenario, scenario
from .warm import warm_up

if TYPE_CHECKING:
    from .world import World

__all__ = ["BUNDLED", "Objects", "Trial"]

Objects = Callable[[str], list[Obj]]
"""Returns all stored objects of a resource, for example of `jobs.batch`."""


@attrs.frozen(eq=False)
class Trial:
    """Everything that storms need to know about a program.

    Attributes:
        program: The program of the managers; the adversary owns their connections.
        laws: Makes the laws of one storm; the objects are those of the store at any moment.
        scenario: Draws the acts of users in one storm.
        companions: Further programs, by the names of their processes; without faults.
        resources: Resources on which faults may focus; `None` means those that the program reads.
        limit: Seconds of calm within which all laws have to hold.
        replicas: The largest number of managers.
        conduct: Whether the calls of managers have to keep the laws of the bundled manager.
        variant: Returns the program with further settings of a scenario.
        prepare: Called once in the booted world, of which each storm gets a copy.
    """

    program: Program
    laws: Callable[[Objects, Tolerance], LawBook]
    scenario: Callable[[Draws, Profile], Scenario]
    companions: Mapping[str, Program] = attrs.field(factory=dict)
    resources: tuple[str, ...] | None = None
    limit: float = WATCHES
    replicas: int = 2
    conduct: bool = False
    variant: Callable[[Mapping[str, Any]], Program] | None = None
    prepare: Callable[[World], Coroutine[Any, Any, None]] | None = None


def _with(settings: Mapping[str, Any]) -> Program:
    return BundledManager({**CONFIGURATION, **settings})


def _laws(objects: Objects, tolerance: Tolerance) -> LawBook:
    del objects
    return Laws(tolerance)


BUNDLED: Final = Trial(
    program=BundledManager(),
    laws=_laws,
    scenario=scenario,
    resources=RESOURCES,
    limit=LIMIT,
    conduct=True,
    variant=_with,
    prepare=warm_up,
)
"""The bundled manager, hostile users of queues, and the laws of queueing."""
