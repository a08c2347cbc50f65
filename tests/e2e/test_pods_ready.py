"""PodsReady after a takeover from the Go manager, which writes it by default.

`$KUBEBUILDER_ASSETS` may also have the Go manager's binary, and the manifests of its release.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import go_manager
import pytest
from place import DOMAIN, TIME, Place, name_of
from real_plane import lacking, real_cluster, real_plane
from rest import Obj, Rest, condition, eventually
from test_doctor_alive import embedded_cluster
from test_migration import Managers

MISSING = lacking(go_manager.PROGRAM, go_manager.MANIFESTS)
REAL = pytest.param(
    real_cluster,
    marks=[pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())],
    id="real",
)
WAITS = """
waitForPodsReady: {enable: true, timeout: 5m, blockAdmission: false}
"""


def ready(place: Place, job: Obj) -> tuple[str, str] | None:
    """Status and reason of PodsReady; None without it."""
    found = condition(place.workload(job), "PodsReady")
    return (found["status"], found["reason"]) if found else None


def leave(place: Place, job: Obj, status: str, reason: str) -> None:
    """What the Go manager has written: its job controller, and its scheduler with the admission."""
    workload = place.workload(job)
    head = {"apiVersion": f"{DOMAIN}/v1beta2", "kind": "Workload"}
    head["metadata"] = {"name": name_of(workload), "namespace": place.ns}
    left = {"type": "PodsReady", "status": status, "reason": reason, "message": "by Go"}
    left["lastTransitionTime"] = TIME
    place.rest.apply(
        f"{place.path(workload)}/status",
        {**head, "status": {"conditions": [left]}},
        "kueue-job-controller-PodsReady",
    )
    admission = workload["status"].get("admission")
    others = [each for each in workload["status"]["conditions"] if each["type"] != "PodsReady"]
    status_ = {"conditions": [*others, left]} | ({"admission": admission} if admission else {})
    place.rest.apply(
        f"{place.path(workload)}/status", {**head, "status": status_}, "kueue-admission"
    )


def with_priorities(rest: Rest) -> tuple[Place, dict[str, str]]:
    place = Place(rest)
    place.queue(2, **place.preempting())
    values = {"low": 1, "high": 2}
    return place, {base: place.priority(value, base) for base, value in values.items()}


def job_of(place: Place, name: str, priority: str) -> Obj:
    return place.job(name, labels={f"{DOMAIN}/priority-class": priority})


@pytest.mark.parametrize("settings", ["", WAITS], ids=["unset", "waits"])
@pytest.mark.parametrize("made", [pytest.param(embedded_cluster, id="embedded"), REAL])
def test_what_go_has_left_becomes_true(made: Any, settings: str, tmp_path: Path) -> None:
    with made(tmp_path) as cluster, Rest(cluster.kubeconfig) as rest:
        cluster.install()
        cluster.start_manager()
        cluster.wait_for_manager()
        place, classes = with_priorities(rest)
        runs, leaves = (job_of(place, name, classes["low"]) for name in ("runs", "leaves"))
        place.runs(runs, leaves)
        place.evict(leaves)
        place.suspended(leaves)
        place.when(leaves, "QuotaReserved", "False")
        cluster.processes.stop("manager")
        leave(place, runs, "False", "WaitForStart")
        leave(place, leaves, "True", "Started")
        cluster.settings = settings
        cluster.start_manager()
        cluster.wait_for_manager()
        eventually(lambda: ready(place, runs) == ("True", "Started"))
        eventually(lambda: ready(place, leaves) == ("False", "WaitForStart"))
        place.evict(leaves, back=True)
        eventually(lambda: ready(place, leaves) == ("True", "Started"))
        new = job_of(place, "new", classes["high"])
        place.runs(new)
        eventually(lambda: {ready(place, each) for each in (runs, leaves)} == AFTER)
        if settings:
            eventually(lambda: ready(place, new) == ("True", "Started"))
        else:
            place.quiet(lambda: ready(place, new) is None)


AFTER = {("True", "Started"), ("False", "WaitForStart")}
"""Of two jobs of which one was preempted."""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_a_takeover_in_the_middle_of_everything(tmp_path: Path) -> None:
    with real_plane(tmp_path) as plane, Rest(plane.kubeconfig) as rest:
        managers = Managers(plane, rest, tmp_path)
        managers.install_go()
        with managers.go():
            place, classes = with_priorities(rest)
            low = [job_of(place, f"low-{number}", classes["low"]) for number in range(2)]
            place.runs(*low)
            eventually(lambda: {ready(place, each) for each in low} == {("True", "Started")})
            waits = job_of(place, "waits", classes["low"])
            eventually(lambda: ready(place, waits) == ("False", "WaitForStart"))
        managers.install_ours()
        with managers.ours():
            high = job_of(place, "high", classes["high"])
            place.runs(high)
            eventually(lambda: {ready(place, each) for each in low} == AFTER)
            place.finish(high)
            place.runs(*low)
            eventually(lambda: {ready(place, each) for each in low} == {("True", "Started")})
            place.finish(low.pop())
            place.runs(waits)
            eventually(lambda: ready(place, waits) == ("True", "Started"))
        managers.install_go()
        with managers.go():
            place.finish(*low, waits)
            for each in (*low, waits):
                place.finished(each)
