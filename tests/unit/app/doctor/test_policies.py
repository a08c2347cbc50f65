"""Policies of ClusterQueues in a cohort that can never act."""

from __future__ import annotations

import copy
from typing import Any

import attrs
import pytest

from kueuelib.app.configuration import Configuration
from kueuelib.app.decision_blocks import FairSharingConfiguration


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"reclaimWithinCohort": "Any"}, "nothing on its side of the tree owns quota"),
        ({"borrowWithinCohort": {"policy": "LowerPriority"}}, "every borrowingLimit is 0"),
    ],
)
def test_policies_in_a_cohort_may_be_idle_too(
    patient: Any, spec: dict[str, Any], words: str
) -> None:
    queue = patient.get("ClusterQueue")
    queue["spec"] |= {"cohortName": "c", "preemption": spec}
    quota = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
    quota |= {"nominalQuota": "0", "borrowingLimit": "0"}
    other = patient.add("ClusterQueue", "other", spec={"cohortName": "c", "namespaceSelector": {}})
    other["status"] = {"conditions": queue["status"]["conditions"]}
    problems = [found.problem for name, found in patient.found() if name == "policy-idle"]
    assert len(problems) == 1
    assert words in problems[0]


SIDES = {
    "the ClusterQueue": "queue",
    "a Cohort above it": "left",
    "a member of that": "beside",
    "the root": "root",
    "the other side": "right",
}


@pytest.mark.parametrize("owner", SIDES.values(), ids=SIDES)
@pytest.mark.parametrize("fair", [False, True], ids=["by quota", "by share"])
def test_who_owns_nothing_reclaims_for_its_side_of_the_tree(
    patient: Any, owner: str, *, fair: bool
) -> None:
    mine = patient.get("ClusterQueue")
    rest = {"namespaceSelector": {}, "resourceGroups": mine["spec"]["resourceGroups"]}
    mine["spec"] |= {"cohortName": "left", "preemption": {"reclaimWithinCohort": "Any"}}
    found = {"queue": mine}
    for name, parent in (("root", ""), ("left", "root"), ("right", "root")):
        groups = copy.deepcopy(rest["resourceGroups"])
        spec = {"parentName": parent, "resourceGroups": groups}
        found[name] = patient.add("Cohort", name, spec=spec)
    for name, cohort in (("beside", "left"), ("other", "right")):
        spec = {**copy.deepcopy(rest), "cohortName": cohort}
        found[name] = patient.add("ClusterQueue", name, spec=spec, status=mine["status"])
    for name, obj in found.items():
        quota = obj["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
        quota["nominalQuota"] = "4" if name == owner else "0"
    if fair:
        patient.configuration = attrs.evolve(
            Configuration(), fair_sharing=FairSharingConfiguration(enable=True)
        )
    problems = [one.problem for name, one in patient.found() if name == "policy-idle"]
    idle = not fair and owner in ("root", "right")
    assert [("nothing on its side" in one) for one in problems] == [True] * idle
