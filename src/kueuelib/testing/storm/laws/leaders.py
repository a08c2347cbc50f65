"""Laws about leaders: who does not hold the Lease does not write."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.laws.memory import Memory, is_manager


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
