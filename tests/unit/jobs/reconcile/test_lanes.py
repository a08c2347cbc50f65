"""Commands about different pods may be done at once; everything else keeps its order."""

from __future__ import annotations

from kueuelib.api.kinds import PODS, WORKLOADS
from kueuelib.jobs.contract.commands import Change, Count, Delete, DropFinalizer, Emit
from kueuelib.jobs.reconcile.executor import stretches


def obj(name: str, kind: str = "Pod") -> dict:
    return {"kind": kind, "metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {}}


def test_each_pod_has_a_lane_in_which_the_order_stays() -> None:
    a, b = obj("a"), obj("b")
    plan = [
        Delete(PODS, a),
        DropFinalizer(PODS, a, "f"),
        Change(PODS, b, {**b, "spec": {"x": 1}}),
        Count("ungated", ("cq",)),
        Emit(a, "Deleted", "gone"),
    ]
    (lanes,) = stretches(plan)
    assert lanes == ((plan[0], plan[1], plan[4]), (plan[2], plan[3]))


def test_what_is_not_about_pods_separates_what_comes_before_from_what_comes_after() -> None:
    a, wl = obj("a"), obj("wl", "Workload")
    plan = [
        DropFinalizer(PODS, a, "f"),
        DropFinalizer(WORKLOADS, wl, "f"),
        Count("x", ()),
        Emit(wl, "R", "m"),
        Delete(PODS, a),
    ]
    assert [[list(lane) for lane in lanes] for lanes in stretches(plan)] == [
        [[command]] for command in plan
    ]


def test_nothing_to_do_is_no_stretch() -> None:
    assert stretches([]) == []
