"""The scenario runner: input that means nothing, and workloads that come back."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import orjson
import pytest

from kueuelib.errors import InvalidObject
from kueuelib.testing.scenarios import run

QUEUE = {"groups": [{"f": {"cpu": 2}}]}
WAITS = {"name": "p", "cq": "a", "req": {"cpu": 1}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cqs": []}, "cqs: must be an object: the ClusterQueues by their names"),
        ({"cycles": 0}, "cycles: must be a number of at least 1, not 0"),
        ({"cqs": {"a": {}}}, "cqs.a: must be an object with groups"),
        (
            {"cqs": {"a": {**QUEUE, "strategy": "Fair"}}},
            "cqs.a.strategy: must be one of BestEffortFIFO, StrictFIFO, not 'Fair'",
        ),
        (
            {"cqs": {"a": {**QUEUE, "preemption": {"within": "Sometimes"}}}},
            "cqs.a.preemption.within: must be one of Never, LowerPriority",
        ),
        (
            {"cqs": {"a": {**QUEUE, "preemption": {"without": "Never"}}}},
            "cqs.a.preemption.without: must be one of within, reclaim",
        ),
        (
            {"cqs": {"a": {"groups": [{"f": {"cpu": "1/x"}}]}}},
            "cqs.a.groups[0].f.cpu: must be nominal/borrowing/lending in whole units, not '1/x'",
        ),
        ({"cqs": {"a": {"groups": [1]}}}, "cqs.a.groups[0]: must be an object: flavors"),
        ({"cqs": {"a": {"groups": [{"f": 1}]}}}, "cqs.a.groups[0].f: must be an object: quotas"),
        (
            {"pending": [{"name": "p", "cq": "a", "podsets": [1]}]},
            "pending[0].podsets[0].req: must be an object: amounts by resource",
        ),
        ({"pending": [{**WAITS, "cq": "b"}]}, "pending[0].cq: must be one of a, not 'b'"),
        ({"pending": [WAITS, WAITS]}, "pending[1].name: must be unique, but p is there already"),
        ({"pending": [{"cq": "a"}]}, "pending[0]: must be an object with a name"),
        ({"pending": [{"name": "p", "cq": "a"}]}, "pending[0].req: must be an object"),
        (
            {"pending": [{"name": "p", "cq": "a", "podsets": [{"req": {"cpu": -1}}]}]},
            "pending[0].podsets[0].req.cpu: must be a whole number of at least 0, not -1",
        ),
        ({"cohort": []}, "cohort: unknown key; did you mean cohorts?"),
        ({"cqs": {"a": {**QUEUE, "quota": 1}}}, "cqs.a.quota: unknown key; known keys: cohort, "),
        (
            {"cqs": {"a": {**QUEUE, "preemption": {"bwc": {"limit": 1}}}}},
            "cqs.a.preemption.bwc.limit: unknown key; known keys: max",
        ),
        (
            {"cqs": {"a": {**QUEUE, "fung": {"bwc": {}}}}},
            "cqs.a.fung.bwc: must be one of borrow, preempt, preference",
        ),
        (
            {"pending": [{**WAITS, "evicted": True}]},
            "pending[0].evicted: unknown key; known keys: name, cq, ",
        ),
        (
            {"pending": [{"name": "p", "cq": "a", "podsets": [{"req": {}, "cnt": 1}]}]},
            "pending[0].podsets[0].cnt: unknown key; did you mean count?",
        ),
        (
            {"exceedQuotaUntilVictimsLeave": "yes"},
            "exceedQuotaUntilVictimsLeave: must be true or false, not 'yes'",
        ),
        ({"gates": {"AFS": True}}, "gates.AFS: unknown key; known keys: FlavorFungibility, "),
        ({"flavors": {"f": {"taint": []}}}, "flavors.f.taint: unknown key; did you mean taints?"),
        ({"flavors": {"f": 1}}, "flavors.f: must be an object with any of labels, taints, tol"),
        ({"flavors": ["f"]}, "flavors: must be an object: the flavors by their names"),
        (
            {"flavors": {"f": {"taints": [{"name": "gpu"}]}}},
            "flavors.f.taints[0].name: unknown key; known keys: key, value, effect",
        ),
        (
            {"pending": [{**WAITS, "podsets": [{"req": {}, "tol": [{"keys": "gpu"}]}]}]},
            "pending[0].podsets[0].tol[0].keys: unknown key; did you mean key?",
        ),
        (
            {"cohorts": [{"name": "c", "groups": {}}]},
            "cohorts[0].groups: must be a list of objects",
        ),
        ({"cohorts": {}}, "cohorts: must be a list of objects with a name"),
        ({"cohorts": [{}]}, "cohorts[0]: must be an object with a name"),
        ({"cohorts": [{"name": "c"}] * 2}, "cohorts[1].name: must be unique, but c is there"),
        (
            {"cohorts": [{"name": "c", "parentName": "d"}]},
            "cohorts[0].parentName: unknown key; did you mean parent?",
        ),
        (
            {"cohorts": [{"name": "c", "groups": [{"f": {"cpu": "x"}}]}]},
            "cohorts[0].groups[0].f.cpu: must be nominal/borrowing/lending in whole units",
        ),
        (
            {"cohorts": [{"name": "c", "fairSharing": {"weight": "heavy"}}]},
            "cohorts[0].fairSharing.weight: must be a number or the text of a quantity of at",
        ),
        (
            {"cqs": {"a": {**QUEUE, "fairSharing": {"weight": -1}}}},
            "cqs.a.fairSharing.weight: must be a number or the text of a quantity of at",
        ),
        (
            {"cqs": {"a": {**QUEUE, "fairSharing": {"share": 1}}}},
            "cqs.a.fairSharing.share: unknown key; known keys: weight",
        ),
        ({"fairSharing": {}}, "fairSharing.enable: must be true or false, not None"),
        (
            {"fairSharing": {"enable": True, "strategies": []}},
            "fairSharing.strategies: unknown key; did you mean preemptionStrategies?",
        ),
        (
            {"fairSharing": {"enable": True, "preemptionStrategies": []}},
            "fairSharing.preemptionStrategies: must be [LessThanOrEqualToFinalShare] or ",
        ),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], says: str) -> None:
    scenario = {"id": "S1", "cqs": {"a": QUEUE}, "pending": [WAITS], **change}
    with pytest.raises(InvalidObject) as caught:
        run(scenario)
    assert str(caught.value).startswith('Scenario "S1" is invalid: ')
    assert says in str(caught.value)


def test_a_list_is_no_scenario() -> None:
    with pytest.raises(InvalidObject, match="must be an object with cqs"):
        run([])  # type: ignore[arg-type]


def test_a_bad_line_loses_no_other_one() -> None:
    good = {"id": "S1", "cqs": {"a": QUEUE}, "pending": [WAITS]}
    lines = [orjson.dumps(good), b"{", b"", b"{}", orjson.dumps(good)]
    command = [sys.executable, "-m", "kueuelib.testing.scenarios"]
    done = subprocess.run(command, input=b"\n".join(lines), capture_output=True, check=False)
    assert done.returncode == 1
    found = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert [sorted(one["final"]["holding"]) for one in (found[0], found[3])] == [["p"], ["p"]]
    assert found[1]["error"].startswith("line 2: ")
    assert found[2]["error"].startswith('line 4: Scenario "without id" is invalid: cqs: ')
    assert [line[:6] for line in done.stderr.decode().splitlines()] == ["line 2", "line 4"]


def test_who_was_preempted_and_runs_again_is_no_victim_before_others() -> None:
    """`low` is younger than `old`, so it would be the first victim only if it were leaving."""
    scenario = {
        "cycles": 6,
        "cqs": {"a": {**QUEUE, "preemption": {"within": "LowerPriority"}}},
        "admitted": [
            {"name": "low", "cq": "a", "prio": -1, "req": {"cpu": 1}, "flv": "f", "t": 1},
            {"name": "lowest", "cq": "a", "prio": -2, "req": {"cpu": 1}, "flv": "f", "t": 2},
        ],
        "pending": [
            {"name": "both", "cq": "a", "prio": 1, "req": {"cpu": 2}},
            {"name": "one", "cq": "a", "prio": 1, "req": {"cpu": 1}, "arrive": 5},
        ],
        "finish": {"2": ["both"]},
    }
    cycles = run(scenario)["cycles"]
    assert sorted(cycles[0]["preempted"]) == ["low", "lowest"]
    again = [name for cycle in cycles[2:5] for name in cycle["admitted"]]
    assert sorted(again) == ["low", "lowest"]
    assert list(cycles[5]["preempted"]) == ["lowest"]
