"""Many rounds on one snapshot decide what one round per snapshot decides."""

from __future__ import annotations

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from kueuelib.api.preemption_policies import RECLAIM_WITHIN_COHORT
from kueuelib.testing.scenarios import Rounds, run

QUEUES = ("a", "b", "c")
FLAVORS = ("one", "two")
Obj = dict[str, Any]


@st.composite
def quotas(draw: st.DrawFn) -> str:
    nominal = draw(st.integers(0, 6))
    borrowing = draw(st.sampled_from(["-", "0", "2"]))
    lending = draw(st.sampled_from(["-", "0", str(nominal // 2)]))
    return f"{nominal}/{borrowing}/{lending}"


@st.composite
def cluster_queues(draw: st.DrawFn, policies: bool) -> Obj:
    flavors = draw(st.sampled_from([("one",), ("one", "two"), ("two", "one")]))
    cohort = draw(st.sampled_from(["", "x", "x", "y"]))
    group = {name: {"cpu": draw(quotas())} for name in flavors}
    if not cohort:
        group = {name: {"cpu": quota["cpu"].split("/")[0]} for name, quota in group.items()}
    found: Obj = {
        "cohort": cohort,
        "strategy": draw(st.sampled_from(["StrictFIFO", "BestEffortFIFO"])),
        "groups": [group],
        "fung": {"borrow": draw(st.sampled_from(["Borrow", "TryNextFlavor"]))},
    }
    if policies and draw(st.booleans()):
        found["preemption"] = {
            "within": draw(st.sampled_from(["Never", "LowerPriority"])),
            "reclaim": draw(st.sampled_from(RECLAIM_WITHIN_COHORT)),
        }
    return found


@st.composite
def scenarios(draw: st.DrawFn) -> Obj:
    policies = draw(st.booleans())
    admitted = [
        {
            "name": f"h{number}",
            "cq": draw(st.sampled_from(QUEUES)),
            "prio": draw(st.integers(0, 2)),
            "req": {"cpu": draw(st.integers(1, 3))},
            "flv": {"cpu": draw(st.sampled_from(FLAVORS))},
        }
        for number in range(draw(st.integers(0, 3)))
    ]
    pending = []
    for number in range(draw(st.integers(1, 9))):
        one: Obj = {
            "name": f"w{number}",
            "cq": draw(st.sampled_from(QUEUES)),
            "prio": draw(st.integers(0, 2)),
            "created": draw(st.integers(0, 5)),
            "podsets": [
                {
                    "req": {"cpu": draw(st.integers(1, 3))},
                    "count": 3,
                    "min": draw(st.sampled_from([1, 3])),
                }
            ],
        }
        if not draw(st.integers(0, 4)):
            one["arrive"] = draw(st.integers(1, 3))
        pending.append(one)
    return {
        "id": "random",
        "cycles": draw(st.integers(2, 8)),
        "cqs": {name: draw(cluster_queues(policies)) for name in QUEUES},
        "admitted": admitted,
        "pending": pending,
        "finish": {str(draw(st.integers(1, 4))): [one["name"] for one in admitted[:1]]},
    }


@settings(max_examples=120, deadline=None)
@given(scenario=scenarios())
def test_many_rounds_decide_as_single_rounds_do(scenario: Obj) -> None:
    rounds = Rounds()
    assert run(scenario, rounds=rounds) == run(scenario)
    event(f"{min(3, scenario['cycles'] - rounds.snapshots)} snapshots saved")


def test_one_snapshot_is_enough_while_nothing_happens() -> None:
    scenario = {
        "cycles": 4,
        "cqs": {"a": {"groups": [{"one": {"cpu": 3}}]}},
        "pending": [
            {"name": f"w{number}", "cq": "a", "req": {"cpu": 1}, "created": number}
            for number in range(4)
        ],
    }
    rounds = Rounds()
    result = run(scenario, rounds=rounds)
    admitted = [list(cycle["admitted"]) for cycle in result["cycles"]]
    assert admitted == [["w0"], ["w1"], ["w2"], []]
    assert rounds.snapshots == 1
