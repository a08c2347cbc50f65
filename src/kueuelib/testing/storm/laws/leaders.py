"""Laws about leaders: only the holder of the Lease writes."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.laws.memory import Memory, is_manager
from kueuelib.testing.storm.laws.reading import spec

RATIO = 1.5
"""The largest rate of a candidate's clock relative to that of a leader."""


def only_the_leader_writes(memory: Memory, commit: Commit) -> Iterator[str]:
    """A manager writes only while no other one holds the Lease.

    Requests that were under way when the Lease changed hands may be committed within the lag.
    """
    if not is_manager(commit.actor):
        return
    for lease, term in memory.terms.items():
        if term.actor != commit.actor:
            late = commit.at - term.since
            if late > memory.tolerance.lag:
                where = "/".join(lease)
                yield (
                    f"{commit.actor} wrote it {late:g} s after {term.actor} had taken the Lease"
                    f" {where}"
                )
    for lease, since in memory.leaderless.items():
        late = commit.at - since
        if late > memory.tolerance.lag:
            where = "/".join(lease)
            yield f"{commit.actor} wrote it {late:g} s after the Lease {where} was given up"


def lease_is_taken_when_free(memory: Memory, commit: Commit) -> Iterator[str]:
    """No process takes a Lease that another one holds and renewed a moment ago."""
    old, new = spec(commit.old or {}), spec(commit.new or {})
    before, after = old.get("holderIdentity"), new.get("holderIdentity")
    renewed = memory.renewed.get((commit.namespace, commit.name))
    if not before or not after or before == after or renewed is None:
        return
    lasts = float(old.get("leaseDurationSeconds") or 0.0)
    passed = commit.at - renewed
    if passed < lasts / RATIO:
        yield f"{after} took it {passed:g} s after {before} had renewed it for {lasts:g} s"
