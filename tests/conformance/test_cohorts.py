"""The definition of Cohorts, as API servers understand it."""

from __future__ import annotations

import pytest

from kueuelib.api.crd import crd

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
COHORTS = "/apis/kueue.x-k8s.io/v1beta2/cohorts"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
LARGEST = 2**63 - 1


def group(resources=("cpu",), flavors=("f",), **limits):
    rows = [{"name": name, "nominalQuota": "1", **limits} for name in resources]
    return {
        "coveredResources": list(resources),
        "flavors": [{"name": name, "resources": rows} for name in flavors],
    }


def cohort(name="team", version="v1beta2", **spec):
    head = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": "Cohort"}
    return {**head, "metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def cohorts(api):
    assert (await api.post(CRDS, crd("Cohort"))).status == 201
    assert await api.becomes(200, COHORTS)
    assert await api.becomes(200, COHORTS.replace("v1beta2", "v1beta1"))


async def test_nothing_of_a_cohort_is_lost_in_either_version(api, cohorts):
    spec = {
        "parentName": "top",
        "resourceGroups": [
            group(("cpu", "memory"), ("a", "b"), borrowingLimit=1, lendingLimit="500m")
        ],
        "fairSharing": {"weight": "0.25"},
    }
    old = COHORTS.replace("v1beta2", "v1beta1")
    assert (await api.post(old, cohort(version="v1beta1", **spec))).status == 201
    for path in (old, COHORTS):
        assert (await api.get(f"{path}/team")).body["spec"] == spec


async def test_a_weight_is_one_unless_it_is_set(api, cohorts):
    assert (await api.post(COHORTS, cohort(fairSharing={}))).body["spec"] == {
        "fairSharing": {"weight": 1}
    }
    assert (await api.post(COHORTS, cohort("other"))).body["spec"] == {}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"parentName": "a" * 254}, "spec.parentName"),
        ({"fairSharing": {"weight": "many"}}, "spec.fairSharing.weight"),
        (
            {"resourceGroups": [group((f"r{n}",), (f"f{n}",)) for n in range(17)]},
            "spec.resourceGroups",
        ),
        (
            {"resourceGroups": [group(flavors=[f"f{n}" for n in range(65)])]},
            "spec.resourceGroups[0].flavors",
        ),
        (
            {"resourceGroups": [group(resources=[f"r{n}" for n in range(65)])]},
            "spec.resourceGroups[0].coveredResources",
        ),
        ({"resourceGroups": [group(flavors=("f", "f"))]}, "spec.resourceGroups[0].flavors[1]"),
        (
            {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": []}]},
            "spec.resourceGroups[0].flavors",
        ),
    ],
)
async def test_the_schema_refuses_what_is_too_much_or_no_quantity(api, cohorts, spec, field):
    found = await api.post(COHORTS, cohort(**spec))
    assert found.status == 422
    assert field in {cause["field"] for cause in found.body["details"]["causes"]}


async def test_the_status_is_written_apart_and_holds_the_largest_share(api, cohorts):
    await api.post(COHORTS, cohort())
    status = {"fairSharing": {"weightedShare": LARGEST}}
    assert "status" not in (await api.patch(f"{COHORTS}/team", {"status": status})).body
    written = await api.patch(f"{COHORTS}/team/status", {"status": status})
    assert written.body["status"] == status
    body = {"status": {"fairSharing": None}}
    assert "fairSharing" not in (await api.patch(f"{COHORTS}/team/status", body)).body["status"]


async def test_cohorts_have_a_short_name_and_no_columns_of_their_own(api, cohorts):
    found = (await api.get("/apis/kueue.x-k8s.io/v1beta2")).body["resources"]
    (kind,) = (each for each in found if each["name"] == "cohorts")
    assert (kind["kind"], kind["shortNames"], kind["namespaced"]) == ("Cohort", ["co"], False)
    await api.post(COHORTS, cohort())
    table = (await api.get(COHORTS, headers={"Accept": TABLE})).body
    assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Age"]
