"""Checks at run time that the law of the orders holds. Pure.

Everything that the engine assumes has an order, or was stored and will be seen
(`kueuelib.workload.orders`). The same holds for the victims that it counts as leaving. A violation
would hold quota forever, so it is searched for every few seconds, at a cost that depends only on
the number of assumptions. A stored status is seen with a delay, so only claims that stay
unexplained for `GRACE` seconds are suspected.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.events import EvictionFailed, Forgotten
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.workload.orders import OrderBook

GRACE = 15.0
"""Seconds for which an assumption may exist without an order."""


@attrs.frozen
class Claim:
    """An assumption of the engine that the API server does not confirm yet.

    Attributes:
        key: the Workload.
        uid: its UID.
        leaving: True: it is leaving; False: it holds quota.
    """

    key: ObjectKey
    uid: str
    leaving: bool

    @property
    def withdrawal(self) -> Forgotten | EvictionFailed:
        """The event for the engine if the claim is wrong."""
        told = EvictionFailed if self.leaving else Forgotten
        return told(self.key, self.uid)


class Audit:
    """Remembers since when claims have been unexplained."""

    def __init__(self) -> None:
        self._since: dict[Claim, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def look(
        self, assumed: Iterable[Holder], leaving: Iterable[Holder], book: OrderBook, now: float
    ) -> tuple[Claim, ...]:
        """The claims that have been unexplained for `GRACE` seconds.

        Args:
            assumed: Workloads that the engine charges without having seen a reservation.
            leaving: Workloads that it counts as leaving without having seen an eviction.
            book: the orders.
            now: monotonic seconds.
        """
        claims = [
            Claim(holder.key, holder.uid, leaving=False)
            for holder in assumed
            if not book.admits(holder.key, holder.uid)
        ]
        claims += [
            Claim(holder.key, holder.uid, leaving=True)
            for holder in leaving
            if not book.evicts(holder.key, holder.uid)
        ]
        self._since = {claim: self._since.get(claim, now) for claim in claims}
        return tuple(claim for claim, since in self._since.items() if now - since >= GRACE)

    def explained(self, claim: Claim) -> None:
        """A claim was confirmed or withdrawn; if it remains, its time begins again."""
        self._since.pop(claim, None)
