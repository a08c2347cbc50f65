"""The states of a live page, one after the other. Pure: `now` is an argument."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.app.explaining.waiting import Waiting, ahead
from kueuelib.app.overview.gathering import ListedFacts, explained, overview_of
from kueuelib.app.overview.values import Overview
from kueuelib.cli.report.page import VerifiedChange, View
from kueuelib.cli.report.parts import PageChange, Shown, change, shown
from kueuelib.scheduler.explain.answer import Explanation, smallest_of

FRESH = 60.0
"""Seconds for which a verified change stays valid while its Workload waits as before."""
NOTHING = Shown({}, {}, {})


@attrs.frozen(eq=False)
class PageState:
    """One state of the page.

    Attributes:
        version: its name, unique among all servers.
        facts: the facts of the cluster.
        overview: the content of the page.
        verified: the changes that were found.
        shown: the parts, for comparison with another state.
    """

    version: str
    facts: ListedFacts
    overview: Overview
    verified: Mapping[ObjectKey, VerifiedChange]
    shown: Shown

    @property
    def view(self) -> View:
        """The content of the page."""
        return View(self.overview, self.verified, on_demand=self.overview.decided)

    def since(self, before: PageState | None) -> PageChange:
        """The change from another state to this one; from an empty page if that one is not
        known.
        """
        return change(NOTHING if before is None else before.shown, self.shown)


def state_of(version: str, facts: ListedFacts, before: PageState | None = None) -> PageState:
    """The state of the page for some facts.

    Args:
        version: of the state.
        facts: of the cluster.
        before: the previous state; its changes stay valid for Workloads that still wait as they
            did.
    """
    overview = overview_of(facts)
    verified = {} if before is None else _kept(before, before.verified, overview)
    return _state(version, facts, overview, verified)


def with_change(
    version: str, state: PageState, asked: PageState, key: ObjectKey, verified: VerifiedChange
) -> PageState:
    """The same state with the result of a search.

    Args:
        version: of the result.
        state: the newest one.
        asked: the state that was searched; the change is used if the Workload waits as it did then.
        key: the Workload.
        verified: the change.
    """
    verified_now = {**state.verified, **_kept(asked, {key: verified}, state.overview)}
    return _state(version, state.facts, state.overview, verified_now)


def _state(
    version: str,
    facts: ListedFacts,
    overview: Overview,
    verified: Mapping[ObjectKey, VerifiedChange],
) -> PageState:
    view = View(overview, verified, on_demand=overview.decided)
    return PageState(version, facts, overview, verified, shown(view.containers(None)))


def _kept(
    before: PageState, verified: Mapping[ObjectKey, VerifiedChange], overview: Overview
) -> dict[ObjectKey, VerifiedChange]:
    """The changes that are still valid, because their Workloads wait as they did."""
    rows = {row.key: row for row in before.overview.waiting if row.key in verified}
    return {
        row.key: verified[row.key]
        for row in overview.waiting
        if row.key in rows
        and _signature(row) == _signature(rows[row.key])
        and overview.now - verified[row.key].at < FRESH
    }


def _signature(row: Waiting) -> tuple[object, ...]:
    return row.place, row.verdict, row.message, row.victims, row.workload.spec


def next_to_explain(state: PageState, most: int) -> ObjectKey | None:
    """The next Workload for which to search for a change.

    Args:
        state: of the page.
        most: for how many of them to search, starting with the first of each queue.
    """
    if not state.overview.decided:
        return None
    first = ahead(state.overview.waiting, state.facts.world, most)
    return next((row.key for row in first if row.key not in state.verified), None)


def answer(facts: ListedFacts, key: ObjectKey) -> tuple[Explanation, VerifiedChange] | None:
    """The whole answer about a Workload, and its smallest change; None when it does not wait."""
    explanation = explained(facts, key)
    return (
        None
        if explanation is None
        else (explanation, VerifiedChange(smallest_of(explanation.changes), facts.now))
    )
