"""Changes of a tree of cohorts: weights and parents."""

from __future__ import annotations

from decimal import Decimal

import attrs

from kueuelib.api.kueue import FairSharing
from kueuelib.api.quantity import Quantity
from kueuelib.api.struct import frozen
from kueuelib.scheduler.explain.changes import Whole
from kueuelib.scheduler.explain.places import Place
from kueuelib.scheduler.explain.world import World

MOST_WEIGHT = 2**20
"""The maximum number of steps by which a weight is raised."""
_ONE = Quantity.of(1).nanos


@frozen
class RaiseWeight:
    """A larger weight, in steps of the last decimal place of the present one.

    Attributes:
        place: the ClusterQueue or Cohort.
        before: its present weight, in units of 10^-9.
        steps: how many steps more, above zero.
    """

    place: Place
    before: int
    steps: int

    kind = "weight"

    @property
    def subject(self) -> str:
        """The ClusterQueue or Cohort."""
        return str(self.place)

    @property
    def text(self) -> str:
        """What to set."""
        return f"set spec.fairSharing.weight: {_decimal(self._to)} instead of " + (
            _decimal(Quantity(self.before))
        )

    @property
    def _to(self) -> Quantity:
        step = _ONE
        while self.before % step:
            step //= 10
        return Quantity(self.before + self.steps * step)

    def apply(self, world: World) -> World:
        """The world with that weight."""
        sharing = self.place.spec(world).fair_sharing or FairSharing()
        return self.place.changed(world, fair_sharing=attrs.evolve(sharing, weight=self._to))


def _decimal(weight: Quantity) -> str:
    return f"{Decimal(weight.nanos).scaleb(-9).normalize():f}"


@frozen
class SetParent(Whole):
    """Another cohort above a ClusterQueue or a Cohort.

    Attributes:
        place: the ClusterQueue or Cohort.
        before: the present cohort above, empty for none.
        to: the new one, empty for none.
    """

    place: Place
    before: str
    to: str

    kind = "parent"

    @property
    def subject(self) -> str:
        """The ClusterQueue or Cohort."""
        return str(self.place)

    @property
    def text(self) -> str:
        """What to set."""
        return self.said_of(self.choice)

    @property
    def choice(self) -> str:
        """The new cohort above."""
        return self.to

    def said_of(self, choice: str) -> str:
        """What to set if there is a choice."""
        field = f"spec.{self.place.parent_field}"
        if not choice:
            return f"remove {field}: {self.before}"
        return f"set {field}: {choice}" + (f" instead of {self.before}" if self.before else "")

    def apply(self, world: World) -> World:
        """The world with that parent."""
        return self.place.below(world, self.to)
