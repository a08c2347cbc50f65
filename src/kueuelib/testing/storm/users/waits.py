"""Settings that let managers wait and remember: ready pods, past usage, and limits of time."""

from __future__ import annotations

import attrs

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.users.acts import LabelledDraws
from kueuelib.testing.storm.users.queues import WEIGHTS, InitialCluster
from kueuelib.testing.storm.users.work import Work

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
