"""Draws a whole scenario."""

from __future__ import annotations

import attrs

from kueuelib.testing.storm.users import acts
from kueuelib.testing.storm.users.acts import Act, Family, LabelledDraws, Scenario
from kueuelib.testing.storm.users.hostility import draw_edits, draw_hostility
from kueuelib.testing.storm.users.queues import (
    CHECK,
    CHECKED,
    CHECKS,
    COHORTS,
    POOL,
    InitialCluster,
    draw_cluster,
)
from kueuelib.testing.storm.users.waits import with_limit, with_waits
from kueuelib.testing.storm.users.work import draw_crowd, draw_work

SECONDS = 180.0
"""Virtual seconds within which users act."""
APPROVAL_SECONDS = 15.0
"""Seconds between two looks at Workloads that wait for approval."""
READY = {"state": "Ready"}
ASKS = {"state": "Pending", "reason": "PreemptionRequired"}
"""An answer that is about one reservation (KEP-993)."""
ENDLESS = 0.4
"""The share of jobs that still run at rest, so that statuses along a tree have usage."""
OFTEN = 0.7
"""In place of `CHECKED`, and the share of these checks that preemption waits for, with edits."""
TRICKS = (3, 10)
CROWD = (24, 40)
"""The least and the largest number of jobs in a crowd."""


def scenario(draws: LabelledDraws, profile: Family) -> Scenario:
    """Draws queues, jobs and hostile acts.

    Args:
        draws: decisions by label; the same labels give the same scenario.
        profile: the number of jobs, and whether users interfere.
    """
    crowded = draws.chance("crowd", profile.crowds)
    cluster = draw_cluster(draws, crowded=crowded, checked=OFTEN if profile.edits else CHECKED)
    if profile.edits:
        cluster = _with_labels_and_late_checks(draws, cluster)
        if draws.chance("terminal", 0.5):
            cluster.settings["quotaReleaseStrategy"] = "OnTerminal"
    if profile.waits:
        cluster = with_waits(draws, cluster)
    queues = tuple(one["metadata"]["name"] for one in cluster.local_queues)
    if crowded:
        works = draw_crowd(draws, draws.integer("works", *CROWD), queues)
    else:
        count = draws.integer("works", *profile.jobs)
        lasting = cluster.cohorts or cluster.strategies or profile.edits or profile.waits
        remembers = "admissionFairSharing" in cluster.settings
        endless = ENDLESS if lasting and not remembers else 0.0
        works = draw_work(draws, count, queues, SECONDS * 0.7, endless=endless)
    if profile.waits:
        works = [with_limit(draws, work) for work in works]
    planned = [act for work in works for act in work.submit(work.at)]
    if profile.users and works:
        count = draws.integer("tricks", *TRICKS)
        planned += draw_hostility(draws, works, cluster, count, SECONDS)
    if profile.edits:
        planned += draw_edits(draws, works, SECONDS)
    if cluster.check is not None:
        planned += _approvals()
    planned.sort(key=lambda act: (act.at, act.label))
    return Scenario(
        cluster.setup(),
        tuple(planned),
        cluster.calm(),
        cluster.rest,
        meddling=profile.users,
        settings=cluster.settings,
        resources=(COHORTS,) if cluster.cohorts else (),
    )


def _with_labels_and_late_checks(draws: LabelledDraws, cluster: InitialCluster) -> InitialCluster:
    """A cluster whose flavors all add something, and whose check preemption may wait for."""
    labelled = [
        {**one, "spec": {"nodeLabels": {POOL: one["metadata"]["name"]}}} for one in cluster.flavors
    ]
    check = cluster.check
    if check is not None and draws.chance("late", OFTEN):
        late = {**check["spec"], "preemptionPolicy": "AfterCheckPassedOrOnDemand"}
        check = {**check, "spec": late}
    return attrs.evolve(cluster, flavors=tuple(labelled), check=check)


def _approvals() -> list[Act]:
    """What the check says, again and again: it asks for preemption twice, and then passes."""
    count = int(SECONDS / APPROVAL_SECONDS)
    answers = (ASKS, ASKS, READY)
    return [
        Act(
            APPROVAL_SECONDS * (number + 1),
            f"approval-{number}",
            acts.ANSWER,
            CHECKS,
            "",
            CHECK,
            answers[number % 3],
        )
        for number in range(count)
    ]
