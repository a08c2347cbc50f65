"""The scheduler's orders for each Workload, until they are done or void; pure, with its audit.

The scheduler orders admissions, reasons to wait, evictions, and new places. At most one order of a
Workload is being written; of the others only the newest counts. An order never just vanishes: if
it ends without being written, the engine receives an event, unless the next order takes over its
role. The event is `Forgotten` for an admission, which undoes the assumption, `NotPlaced` for new
places, or `EvictionFailed` for an eviction, whose victim stays. New places are only found for a
Workload whose quota was seen; their order follows the table like a reason to wait, and the engine
learns of its end.

`A`, `W` and `E` are the three kinds. A dash in front means that the engine learns of the end of the
order. A line of the table is the waiting order, a column the submitted one:

```
 waits             | A'                    | W'       | E'
-------------------+-----------------------+----------+---------------------------------------------
 nothing           | A'                    | W'       | E'
 A                 | A'      (-A if other) | W'  -A   | nothing  -A -E'    (E'  -A if other)
 A, maybe stored   | A'      (-A if other) | W'  -A   | A, then E'         (E'  -A if other)
 A, then E         | A'      (-A if other) | W'  -A   | A, then E'         (E'  -A if other)
 W                 | A'                    | W'       | E'
 E                 | A'  -E                | W'  -E   | E'             (-E if other)
```

*Other* means another UID: the Workload was deleted and recreated. In the column of evictions it
also means that the victim is not only assumed: its reservation was seen, so `A` is done. The
reasons:

- An admission whose write has not begun needs no eviction: it is simply not written.
- One that may have been stored, because its answer was lost, is written again first. The answer
  shows its fate. Until then its quota is not free for others.
- A reason to wait, or a new admission, is only found for a Workload that the engine does not
  charge. So it has already dropped the assumption or seen the victim leave (the Workload was held
  back, deleted or released). The order is void and must no longer be written. A new admission of
  the same UID takes over the assumption.

While an order is being written, the table holds for the next order, except that an eviction of an
admission that is being written always comes next. When the write ends:

```
 what became of it | nothing waits      | N waits
-------------------+--------------------+----------------------------------------------------------
 stored            | nothing            | N
 void, gone,       | nothing  -X        | N  -X   (X = A, N = A' of the same UID: N, no report;
 refused for good  |                    |          X = A, N = E of the same UID: nothing  -A)
 again             | X waits            | as if N were submitted while X waits
 unknown           | X waits, maybe     | as if N were submitted while X waits, maybe stored
                   | stored             |
```

This implies the law that holds between any two inputs: *everything that the engine assumes has an
admission that waits or is being written, or its reservation is stored but was not seen yet*. The
same holds for victims and evictions.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.decide.cycle import Admit, Wait
from kueuelib.scheduler.decide.cycle_values import NewPlaces, NodeEviction
from kueuelib.scheduler.decide.preemption.victims import PendingPreemption, Victim
from kueuelib.scheduler.events import EvictionFailed, Forgotten, NotPlaced
from kueuelib.scheduler.quota.holders import Holder

REFUSALS = 5
"""The number of refusals by the server after which an order is given up."""


@attrs.frozen(eq=False)
class Eviction:
    """The order that evicts one victim.

    Attributes:
        victim: the victim.
        preemption: the preemption that it belongs to.
    """

    victim: Victim
    preemption: PendingPreemption

    @property
    def key(self) -> ObjectKey:
        """The victim."""
        return self.victim.key

    @property
    def uid(self) -> str:
        """The UID of the victim."""
        return self.victim.holder.uid


What = Admit | Wait | NewPlaces | Eviction | NodeEviction
Loss = Forgotten | NotPlaced | EvictionFailed
"""What the engine hears when an order will not be written."""
_NEEDED: Final[Mapping[type[Loss], tuple[type[What], ...]]] = {
    Forgotten: (Admit,),
    NotPlaced: (NewPlaces,),
    EvictionFailed: (Eviction, NodeEviction),
}
"""The orders on which the engine relies until then."""


@attrs.frozen(eq=False)
class Order:
    """One order; two orders are never equal, even if their content is.

    Attributes:
        number: counts the orders.
        what: the content to write.
    """

    number: int
    what: What

    @property
    def key(self) -> ObjectKey:
        """The Workload."""
        return self.what.key

    @property
    def uid(self) -> str:
        """The UID that the order is for."""
        return self.what.uid


class Outcome(enum.Enum):
    """The result of an attempt to write an order."""

    STORED = "stored"
    """The object has the ordered state now, or had it before."""
    VOID = "void"
    """The object is such that the order no longer makes sense."""
    GONE = "gone"
    """The object, or the one of that UID, no longer exists."""
    REFUSED = "refused"
    """The server refused it; `REFUSALS` of these end the order."""
    AGAIN = "again"
    """Nothing was written; try the same order again."""
    UNKNOWN = "unknown"
    """The answer was lost: it may be stored. Try the same order again."""


class OrderEnd(enum.Enum):
    """How an order ended."""

    STORED = "stored"
    VOID = "void"
    GONE = "gone"
    REFUSED = "refused"
    PREEMPTED = "preempted"
    """An admission that was not written, because it was to be evicted at once."""
    SUPERSEDED = "superseded"
    """A newer order took its place."""


@attrs.frozen
class Ended:
    """An order that is no longer worked on.

    Attributes:
        order: the order.
        how: the result.
    """

    order: Order
    how: OrderEnd


@attrs.frozen
class PendingWrites:
    """The orders of one Workload.

    Attributes:
        first: the order that is being written, or that is written next.
        under_way: whether it is being written now.
        then: the order after it, or None.
        refusals: how often the server refused the first order.
        doubtful: whether the first order may have been stored by an attempt without an answer.
    """

    first: Order
    under_way: bool = False
    then: Order | None = None
    refusals: int = 0
    doubtful: bool = False


@attrs.frozen
class Edge:
    """One transition.

    Attributes:
        line: the orders of the Workload afterwards, None when there are none.
        ended: the orders that ended.
        events: what the engine must receive, in this order.
    """

    line: PendingWrites | None
    ended: tuple[Ended, ...] = ()
    events: tuple[Loss, ...] = ()


def submitted(line: PendingWrites | None, new: Order) -> Edge:
    """Submit a new order."""
    if line is None:
        return Edge(PendingWrites(new))
    first = line.first
    if not line.under_way:
        if line.doubtful and _evicts(new, first):
            old = line.then
            over = () if old is None else (Ended(old, OrderEnd.SUPERSEDED),)
            return Edge(attrs.evolve(line, then=new), over)
        met = _meet(first, new)
        if line.then is not None:  # an eviction of a Workload that is no longer charged
            met = attrs.evolve(met, ended=(*met.ended, Ended(line.then, OrderEnd.SUPERSEDED)))
        if line.doubtful and met.line is not None and _takes_over(met.line.first, first):
            return attrs.evolve(met, line=attrs.evolve(met.line, doubtful=True))
        return met
    if line.then is None:
        return Edge(attrs.evolve(line, then=new))
    if _evicts(new, first):
        losses = () if line.then.uid == new.uid else _loss(line.then)
        return Edge(attrs.evolve(line, then=new), (Ended(line.then, OrderEnd.SUPERSEDED),), losses)
    met = _meet(line.then, new)
    left = None if met.line is None else met.line.first
    return attrs.evolve(met, line=attrs.evolve(line, then=left))


def begun(line: PendingWrites) -> PendingWrites:
    """Begin to write the first order."""
    assert not line.under_way
    return attrs.evolve(line, under_way=True)


def gives_up(line: PendingWrites) -> bool:
    """Whether one more refusal ends the first order."""
    return line.refusals + 1 >= REFUSALS


def ended(line: PendingWrites, outcome: Outcome, why: str = "") -> Edge:
    """End an attempt to write the first order.

    Args:
        line: the orders of the Workload.
        outcome: the result.
        why: the answer of a server that refused it.
    """
    assert line.under_way
    first, then = line.first, line.then
    rest = None if then is None else PendingWrites(then)
    match outcome:
        case Outcome.STORED:
            return Edge(rest, (Ended(first, OrderEnd.STORED),))
        case Outcome.VOID | Outcome.GONE:
            return _lost(line, OrderEnd(outcome.value))
        case Outcome.REFUSED if gives_up(line):
            return _lost(line, OrderEnd.REFUSED, why or "no reason given")
    stays = attrs.evolve(
        line,
        under_way=False,
        then=None,
        refusals=line.refusals + (outcome is Outcome.REFUSED),
        doubtful=line.doubtful or outcome is Outcome.UNKNOWN,
    )
    return Edge(stays) if then is None else submitted(stays, then)


def _lost(line: PendingWrites, how: OrderEnd, why: str = "") -> Edge:
    """The first order will not be written; an order behind an admission may depend on it."""
    first, then = line.first, line.then
    if then is not None and _evicts(then, first):
        over = (Ended(first, how), Ended(then, OrderEnd.VOID))
        return Edge(None, over, (*_loss(first), *_loss(then)))
    losses = () if then is not None and _takes_over(then, first) else _loss(first, why)
    return Edge(None if then is None else PendingWrites(then), (Ended(first, how),), losses)


def _meet(old: Order, new: Order) -> Edge:
    """A new order replaces or follows one whose write has not begun."""
    if _evicts(new, old):
        over = (Ended(old, OrderEnd.PREEMPTED), Ended(new, OrderEnd.VOID))
        return Edge(None, over, (*_loss(old), *_loss(new)))
    losses = () if _takes_over(new, old) else _loss(old)
    return Edge(PendingWrites(new), (Ended(old, OrderEnd.SUPERSEDED),), losses)


def _evicts(new: Order, old: Order) -> bool:
    """Whether one order evicts what the other one would admit."""
    if not isinstance(new.what, Eviction) or not isinstance(old.what, Admit):
        return False
    return new.what.victim.holder.assumed and new.uid == old.uid


def _takes_over(new: Order, old: Order) -> bool:
    """Whether one order has the same assumption or victim as the other."""
    return type(new.what) is type(old.what) and new.uid == old.uid


def _loss(order: Order, why: str = "") -> tuple[Loss, ...]:
    """The event for the engine when an order will not be written; `why` if it was refused."""
    match order.what:
        case Admit():
            return (Forgotten(order.key, order.uid),)
        case NewPlaces():
            return (NotPlaced(order.key, order.uid),)
        case Eviction() | NodeEviction():
            return (EvictionFailed(order.key, order.uid, why),)
        case Wait():
            return ()


def foregone(what: What, charge: Callable[[ObjectKey], Holder | None]) -> Outcome | None:
    """The outcome of an order that needs no write; None if it has to be written.

    An admission whose assumption the engine has dropped would use uncounted quota, and new places
    uncounted room. An eviction of a Workload that no longer holds quota, or for a preemptor that
    has got quota since, would be for nobody.

    Args:
        what: the order that would be written next.
        charge: what the engine charges a Workload, None for nothing.
    """
    holder = charge(what.key)
    is_charged = holder is not None and holder.uid == what.uid
    if isinstance(what, Eviction):
        return None if is_charged and _is_needed(what.preemption, charge) else Outcome.VOID
    if not isinstance(what, Admit | NewPlaces):
        return None
    if holder is None or not is_charged:
        return Outcome.GONE
    if holder.assumed or isinstance(what, NewPlaces):
        return None
    return Outcome.STORED  # by an attempt whose answer was lost: the reservation was seen since


def _is_needed(preemption: PendingPreemption, charge: Callable[[ObjectKey], Holder | None]) -> bool:
    holder = charge(preemption.key)
    return preemption.reserved or holder is None or holder.uid != preemption.uid


class OrderBook:
    """The orders of all Workloads, each with its place in the table."""

    def __init__(self) -> None:
        self._lines: dict[ObjectKey, PendingWrites] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(self._lines)

    def submit(self, what: What) -> Edge:
        """Takes an order of the scheduler."""
        self._count += 1
        return self._keep(what.key, submitted(self._lines.get(what.key), Order(self._count, what)))

    def begin(self, key: ObjectKey) -> Order | None:
        """Begin the next order and return it; None if there is none, or one is under way."""
        line = self._lines.get(key)
        if line is None or line.under_way:
            return None
        self._lines[key] = begun(line)
        return line.first

    def end(self, order: Order, outcome: Outcome, why: str = "") -> Edge:
        """End the attempt to write the order that is under way; `why` if it was refused."""
        line = self._lines[order.key]
        assert line.first is order
        return self._keep(order.key, ended(line, outcome, why))

    def gives_up(self, order: Order) -> bool:
        """Whether one more refusal ends the order that is under way."""
        line = self._lines[order.key]
        assert line.first is order
        return gives_up(line)

    def waits(self, key: ObjectKey) -> What | None:
        """The order of a Workload that is written next, or None."""
        line = self._lines.get(key)
        if line is None:
            return None
        order = line.then if line.under_way else line.first
        return None if order is None else order.what

    def explains(self, claim: Loss) -> bool:
        """Whether the order that a claim of the engine needs waits or is being written."""
        line = self._lines.get(claim.key)
        if line is None:
            return False
        orders = (line.first, line.then)
        return any(
            order is not None
            and order.uid == claim.uid
            and isinstance(order.what, _NEEDED[type(claim)])
            for order in orders
        )

    def _keep(self, key: ObjectKey, edge: Edge) -> Edge:
        if edge.line is None:
            self._lines.pop(key, None)
        else:
            self._lines[key] = edge.line
        return edge


# ---- checks at run time that the law of the orders holds. Pure -----------------------------------
# Everything that the engine assumes has an order, or was stored and will be seen
# (`kueuelib.workload.orders`). The same holds for the victims that it counts as leaving, and for
# new places. A claim is named by the event that withdraws it. A wrong one would hold quota forever,
# so they are searched for every few seconds, at a cost that depends only on the number of
# assumptions. A stored status is seen with a delay, so only claims that stay unexplained for
# `GRACE` seconds are suspected.

GRACE = 15.0
"""Seconds for which an assumption may exist without an order."""


class Audit:
    """Remembers since when claims have been unexplained."""

    def __init__(self) -> None:
        self._since: dict[Loss, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def look(
        self,
        assumed: Iterable[Holder],
        placed: Iterable[NewPlaces],
        leaving: Iterable[Holder],
        book: OrderBook,
        now: float,
    ) -> tuple[Loss, ...]:
        """The claims that have been unexplained for `GRACE` seconds.

        Args:
            assumed: Workloads that the engine charges without having seen a reservation.
            placed: new places that it charges without having seen them.
            leaving: Workloads that it counts as leaving without having seen an eviction.
            book: the orders.
            now: monotonic seconds.
        """
        claims: list[Loss] = [Forgotten(one.key, one.uid) for one in assumed]
        claims += [NotPlaced(one.key, one.uid) for one in placed]
        claims += [EvictionFailed(one.key, one.uid) for one in leaving]
        unexplained = [claim for claim in claims if not book.explains(claim)]
        self._since = {claim: self._since.get(claim, now) for claim in unexplained}
        return tuple(claim for claim, since in self._since.items() if now - since >= GRACE)

    def explained(self, claim: Loss) -> None:
        """A claim was confirmed or withdrawn; if it remains, its time begins again."""
        self._since.pop(claim, None)
