"""Whether the law of the orders holds at run time: pure.

What the engine assumes has an order, or was stored and will be seen (`kueuelib.workload.orders`);
the same holds of the victims that it counts as leaving. A breach would keep quota forever, so it
is looked for every few seconds, at a cost that depends on nothing but how much is assumed. Between
a stored status and its being seen there is some time; only what stays unexplained for `GRACE`
seconds is suspected.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.events import EvictionFailed, Forgotten
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.workload.orders import OrderBook

GRACE = 15.0
"""Seconds for which something may be assumed without an order."""


@attrs.frozen
class Claim:
    """What the engine holds true although the API server does not say so yet.

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
        """What the engine must receive if it is not so."""
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
        """The claims that nothing has explained for `GRACE` seconds.

        Args:
            assumed: what the engine charges without having seen a reservation.
            leaving: what it counts as leaving without having seen an eviction.
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
        """A claim turned out to be true, or was withdrawn; if it stays its time begins again."""
        self._since.pop(claim, None)
