from __future__ import annotations

from pathlib import Path

import pytest

from kueuelib.api.crd import KINDS, all_crds, crd, write_crds
from kueuelib.api.yaml_text import to_yaml

COMMITTED = Path(__file__).parents[3] / "manifests" / "crds"

KEYWORDS = {
    *("type", "format", "description", "properties", "required", "items", "additionalProperties"),
    *("default", "enum", "pattern", "minimum", "minLength", "maxLength", "minItems", "maxItems"),
    *("maxProperties", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
    *("x-kubernetes-map-type", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"),
}


def schema(kind, version="v1beta2"):
    (found,) = (one for one in crd(kind)["spec"]["versions"] if one["name"] == version)
    return found["schema"]["openAPIV3Schema"]


def at(kind, path, version="v1beta2"):
    """The schema of a field; `[]` goes to the items of a list."""
    found = schema(kind, version)
    for step in path.replace("[]", ".[]").split("."):
        found = found["items"] if step == "[]" else found["properties"][step]
    return found


def nodes(found, path=""):
    """Every schema with its path."""
    yield path, found
    for name, inner in found.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict):
            yield from nodes(found[key], f"{path}[]")


def test_what_is_committed_is_what_is_generated(tmp_path):
    written = {path.name: path.read_text() for path in write_crds(tmp_path)}
    committed = {path.name: path.read_text() for path in COMMITTED.glob("*.yaml")}
    assert committed == written, "run `kueuelib crds --output manifests/crds`"


def test_there_is_one_definition_per_kind_and_each_can_be_written():
    assert [one["spec"]["names"]["kind"] for one in all_crds()] == list(KINDS)
    assert len(KINDS) == 9
    for one in all_crds():
        assert "&id" not in to_yaml(one)


def test_parts_that_occur_twice_are_written_twice():
    shared = ["a"]
    assert to_yaml({"one": shared, "two": shared}) == "one:\n- a\ntwo:\n- a\n"


def test_an_unknown_kind_has_no_definition():
    with pytest.raises(KeyError):
        crd("Job")


@pytest.mark.parametrize("kind", KINDS)
def test_both_versions_are_served_and_the_newer_one_is_stored(kind):
    versions = {one["name"]: one for one in crd(kind)["spec"]["versions"]}
    assert {name: (one["served"], one["storage"]) for name, one in versions.items()} == {
        "v1beta1": (True, False),
        "v1beta2": (True, True),
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_schemas_are_structural(kind, version):
    for path, found in nodes(schema(kind, version)):
        if "x-kubernetes-int-or-string" in found:
            assert "type" not in found, path
            continue
        assert "type" in found, path
        assert found.keys() <= KEYWORDS, path
        if found["type"] == "array":
            assert "items" in found, path
        assert set(found.get("required", ())) <= set(found.get("properties", ())), path
        if found.get("x-kubernetes-list-type") == "map":
            items = found["items"]
            for key in found["x-kubernetes-list-map-keys"]:
                known = key in items.get("required", ()) or "default" in items["properties"][key]
                assert known, f"{path}: the key {key} is neither required nor defaulted"
        if "default" in found and "enum" in found:
            assert found["default"] in found["enum"], path


@pytest.mark.parametrize(
    ("kind", "short_names", "namespaced", "status", "conversion"),
    [
        ("ClusterQueue", {"cq"}, False, True, "Webhook"),
        ("Cohort", {"co"}, False, True, "None"),
        ("LocalQueue", {"lq", "queue", "queues"}, True, True, "Webhook"),
        ("ResourceFlavor", {"rf", "flavor", "flavors"}, False, False, "None"),
        ("Workload", {"wl", "kwl", "kueueworkload", "kueueworkloads"}, True, True, "Webhook"),
        ("AdmissionCheck", {"ac"}, False, True, "None"),
        ("WorkloadPriorityClass", {"wpc"}, False, False, "None"),
        ("ProvisioningRequestConfig", {"prc"}, False, False, "None"),
        ("Topology", {"topo"}, False, False, "None"),
    ],
)
def test_names_scope_status_and_conversion(kind, short_names, namespaced, status, conversion):
    spec = crd(kind)["spec"]
    assert set(spec["names"]["shortNames"]) == short_names
    assert spec["scope"] == ("Namespaced" if namespaced else "Cluster")
    assert spec["conversion"]["strategy"] == conversion
    assert [("subresources" in one) for one in spec["versions"]] == [status, status]


@pytest.mark.parametrize(
    ("kind", "version", "columns"),
    [
        (
            "ClusterQueue",
            "v1beta1",
            {
                "Cohort": ".spec.cohort",
                "Strategy": ".spec.queueingStrategy",
                "Pending Workloads": ".status.pendingWorkloads",
                "Admitted Workloads": ".status.admittedWorkloads",
            },
        ),
        (
            "Workload",
            "v1beta2",
            {
                "Queue": ".spec.queueName",
                "Reserved in": ".status.admission.clusterQueue",
                "Admitted": ".status.conditions[?(@.type=='Admitted')].status",
                "Finished": ".status.conditions[?(@.type=='Finished')].status",
                "Age": ".metadata.creationTimestamp",
            },
        ),
        ("WorkloadPriorityClass", "v1beta2", {"Value": ".value"}),
    ],
)
def test_printer_columns(kind, version, columns):
    (found,) = (one for one in crd(kind)["spec"]["versions"] if one["name"] == version)
    printed = {one["name"]: one["jsonPath"] for one in found["additionalPrinterColumns"]}
    assert printed == columns


@pytest.mark.parametrize(
    ("kind", "path", "keyword", "value"),
    [
        ("ClusterQueue", "spec.resourceGroups", "maxItems", 16),
        ("ClusterQueue", "spec.resourceGroups[].flavors", "maxItems", 64),
        ("ClusterQueue", "spec.resourceGroups[].flavors", "x-kubernetes-list-map-keys", ["name"]),
        ("ClusterQueue", "spec.resourceGroups[].coveredResources", "minItems", 1),
        ("ClusterQueue", "spec.queueingStrategy", "enum", ["StrictFIFO", "BestEffortFIFO"]),
        ("ClusterQueue", "spec.queueingStrategy", "default", "BestEffortFIFO"),
        ("ClusterQueue", "spec.stopPolicy", "enum", ["None", "Hold", "HoldAndDrain"]),
        ("ClusterQueue", "spec.preemption", "default", {}),
        ("ClusterQueue", "spec.preemption.withinClusterQueue", "default", "Never"),
        ("ClusterQueue", "spec.preemption.reclaimWithinCohort", "default", "Never"),
        ("ClusterQueue", "spec.namespaceSelector", "x-kubernetes-map-type", "atomic"),
        (
            "ClusterQueue",
            "spec.flavorFungibility.preference",
            "enum",
            ["BorrowingOverPreemption", "PreemptionOverBorrowing"],
        ),
        ("ClusterQueue", "spec.fairSharing.weight", "default", 1),
        ("ClusterQueue", "spec.admissionScope", "required", ["admissionMode"]),
        ("ClusterQueue", "status.fairSharing.weightedShare", "format", "int64"),
        ("Cohort", "spec.parentName", "maxLength", 253),
        ("Cohort", "spec.resourceGroups", "maxItems", 16),
        ("Cohort", "spec.resourceGroups[].coveredResources", "maxItems", 64),
        ("Cohort", "spec.resourceGroups[].flavors", "maxItems", 64),
        ("Cohort", "spec.fairSharing.weight", "x-kubernetes-int-or-string", True),
        ("Cohort", "status.fairSharing", "required", ["weightedShare"]),
        ("LocalQueue", "spec.fairSharing.weight", "default", 1),
        ("LocalQueue", "status.fairSharing", "required", ["weightedShare"]),
        (
            "LocalQueue",
            "status.fairSharing.admissionFairSharingStatus",
            "required",
            ["consumedResources", "lastUpdate"],
        ),
        ("ClusterQueue", "status.conditions", "x-kubernetes-list-map-keys", ["type"]),
        ("ResourceFlavor", "spec.nodeLabels", "maxProperties", 8),
        ("ResourceFlavor", "spec.nodeTaints", "maxItems", 8),
        ("Workload", "spec.podSets", "minItems", 1),
        ("Workload", "spec.podSets", "maxItems", 18),
        ("Workload", "spec.podSets[].name", "default", "main"),
        ("Workload", "spec.podSets[].count", "minimum", 0),
        ("Workload", "spec.active", "default", True),
        (
            "Workload",
            "status.admissionChecks[].state",
            "enum",
            ["Pending", "Ready", "Retry", "Rejected"],
        ),
        ("Workload", "status.admissionChecks", "x-kubernetes-list-map-keys", ["name"]),
        ("AdmissionCheck", "spec.retryDelayMinutes", "default", 15),
        ("AdmissionCheck", "spec.preemptionPolicy", "default", "Anytime"),
        (
            "AdmissionCheck",
            "spec.preemptionPolicy",
            "enum",
            ["Anytime", "AfterCheckPassedOrOnDemand"],
        ),
        ("ProvisioningRequestConfig", "spec.managedResources", "x-kubernetes-list-type", "set"),
    ],
)
def test_limits_defaults_and_list_kinds(kind, path, keyword, value):
    assert at(kind, path)[keyword] == value
    assert at(kind, path, "v1beta1")[keyword] == value


def test_fields_have_the_names_of_their_version():
    assert "cohort" in at("ClusterQueue", "spec", "v1beta1")["properties"]
    assert "cohortName" in at("ClusterQueue", "spec")["properties"]
    assert "admissionChecks" not in at("ClusterQueue", "spec")["properties"]
    assert "flavorUsage" in at("LocalQueue", "status", "v1beta1")["properties"]
    assert "priorityClassRef" not in at("Workload", "spec", "v1beta1")["properties"]
    assert (
        at("ClusterQueue", "spec.flavorFungibility.whenCanBorrow", "v1beta1")["default"] == "Borrow"
    )


def test_quotas_are_quantities_with_a_pattern():
    quota = at("ClusterQueue", "spec.resourceGroups[].flavors[].resources[].nominalQuota")
    assert quota["x-kubernetes-int-or-string"] is True
    assert quota["pattern"].startswith("^")


def test_nothing_of_a_pod_template_is_lost():
    template = at("Workload", "spec.podSets[].template")
    for path, found in nodes(template):
        if "properties" in found:
            assert found["x-kubernetes-preserve-unknown-fields"] is True, path
    assert template["properties"]["spec"]["required"] == ["containers"]
    assert "creationTimestamp" not in template["properties"]["metadata"]["properties"]


def test_fields_are_described_for_kubectl_explain():
    assert at("Workload", "spec.podSets[].minCount")["description"].startswith("The fewest")
    assert schema("ClusterQueue")["description"].startswith("Quota")
