"""Draws a whole scenario."""

from __future__ import annotations

import attrs

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.users import acts
from kueuelib.testing.storm.users.acts import Act, Family, LabelledDraws, Scenario
from kueuelib.testing.storm.users.hostility import draw_edits, draw_hostility
from kueuelib.testing.storm.users.queues import (
    CHECK,
    CHECKED,
    CHECKS,
    COHORTS,
    POOL,
    WEIGHTS,
    InitialCluster,
    draw_cluster,
)
from kueuelib.testing.storm.users.work import Work, draw_crowd, draw_work

# ---- settings that let managers wait and remember: ready pods, past usage, limits of time --------

LIMIT = "kueue.x-k8s.io/max-exec-time-seconds"
LIMITED = 0.4
"""The share of jobs with a limit of time."""


def with_limit(draws: LabelledDraws, work: Work) -> Work:
    """The same work; some of it may only run for a few seconds."""
    if not draws.chance(f"{work.name}/limited", LIMITED):
        return work
    seconds = str(draws.integer(f"{work.name}/limit", 2, 40))
    return attrs.evolve(work, objects=tuple(_labelled(one, seconds) for one in work.objects))


def _labelled(obj: Obj, seconds: str) -> Obj:
    meta = obj["metadata"]
    return {**obj, "metadata": {**meta, "labels": {**meta["labels"], LIMIT: seconds}}}


def with_waits(draws: LabelledDraws, cluster: InitialCluster) -> InitialCluster:
    """The same cluster, whose manager waits for ready pods, or shares by past usage, or both."""
    settings = dict(cluster.settings)
    if draws.chance("ready", 0.7):
        settings["waitForPodsReady"] = _ready(draws)
    if draws.chance("past", 0.7):
        settings["admissionFairSharing"] = {
            # A queue with past usage is written at each sample, so usage has to end before rest.
            "usageHalfLifeTime": draws.choice("half-life", ("2s", "20s")),
            "usageSamplingInterval": draws.choice("sampling", ("5s", "20s")),
        }
        scope = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
        return attrs.evolve(
            cluster,
            settings=settings,
            queues=tuple(_with(one, scope) for one in cluster.queues),
            local_queues=tuple(
                _with(one, {"fairSharing": {"weight": draws.choice(f"{number}/weight", WEIGHTS)}})
                for number, one in enumerate(cluster.local_queues)
            ),
        )
    return attrs.evolve(cluster, settings=settings)


def _ready(draws: LabelledDraws) -> Obj:
    block: Obj = {
        "enable": True,
        "timeout": draws.choice("timeout", ("5s", "20s", "60s")),
        "blockAdmission": draws.chance("block", 0.5),
        "requeuingStrategy": {
            "timestamp": draws.choice("timestamp", ("Eviction", "Creation")),
            "backoffBaseSeconds": draws.integer("base", 1, 10),
            "backoffMaxSeconds": 30,
        },
    }
    if draws.chance("recovers", 0.6):
        block["recoveryTimeout"] = draws.choice("recovery", ("5s", "30s"))
    if draws.chance("limited", 0.5):
        block["requeuingStrategy"]["backoffLimitCount"] = draws.integer("most", 1, 5)
    return block


def _with(obj: Obj, fields: Obj) -> Obj:
    return {**obj, "spec": {**obj["spec"], **fields}}


# ---- a whole scenario ----------------------------------------------------------------------------

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
