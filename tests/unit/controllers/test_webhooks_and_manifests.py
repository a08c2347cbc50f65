"""What `install` writes, and what the webhook server answers."""

from __future__ import annotations

import pytest

from kueuelib.api.crd import all_crds, crd
from kueuelib.api.validation import RULES
from kueuelib.app.installation import Installation
from kueuelib.controllers.manifests import manager_manifests, manager_rules
from kueuelib.controllers.webhooks import (
    _validator,
    by_service,
    by_url,
    queueing_entries,
    serve,
    sparing,
    webhook_configurations,
    with_conversion,
)
from kueuelib.runtime.webhook.admission import parse_request, validating
from kueuelib.runtime.webhook.server import WebhookServer


def test_every_configured_path_is_served_and_nothing_else_but_conversion() -> None:
    server = WebhookServer("127.0.0.1", 0, None)
    serve(server)
    configured = {entry.path for entry in queueing_entries()}
    assert {*server.paths} - configured == {"/convert"}
    assert configured < {*server.paths}
    assert "/mutate-kueue-x-k8s-io-v1beta1-clusterqueue" in configured
    assert "/validate-kueue-x-k8s-io-v1beta1-admissioncheck" in configured


def test_a_check_for_a_flavor_that_the_queue_does_not_offer_is_warned_about() -> None:
    checks = [{"name": "nodes", "onFlavors": ["spot", "sopt"]}, {"name": "budget"}]
    resources = [{"name": "cpu", "nominalQuota": "1"}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "spot", "resources": resources}]}
    spec = {
        "resourceGroups": [group],
        "admissionChecksStrategy": {"admissionChecks": checks},
    }
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "cq"},
        "spec": spec,
    }
    request = parse_request({"uid": "u", "operation": "CREATE", "object": queue})
    answer = validating(_validator(RULES["ClusterQueue"]))(request)
    assert answer["allowed"]
    (warning,) = answer["warnings"]
    assert 'check "nodes" is for flavor "sopt", which no resource group offers' in warning


def test_a_cohort_that_is_its_own_parent_is_warned_about() -> None:
    def warnings(parent: str) -> list[str]:
        cohort = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Cohort",
            "metadata": {"name": "a"},
            "spec": {"parentName": parent},
        }
        request = parse_request({"uid": "u", "operation": "UPDATE", "object": cohort})
        answer = validating(_validator(RULES["Cohort"]))(request)
        assert answer["allowed"]
        found: list[str] = answer.get("warnings", [])
        return found

    (warning,) = warnings("a")
    assert 'Cohort "a" is its own parent' in warning
    assert warnings("b") == []


def test_configurations_keep_the_names_of_upstream_and_both_versions() -> None:
    mutating, validating = webhook_configurations(
        queueing_entries(), by_url("https://127.0.0.1:9443/")
    )
    assert mutating["metadata"]["name"] == "kueue-mutating-webhook-configuration"
    assert [entry["name"] for entry in mutating["webhooks"]] == [
        "mclusterqueue.kb.io",
        "mresourceflavor.kb.io",
        "mworkload.kb.io",
    ]
    assert len(validating["webhooks"]) == 6
    for entry in (*mutating["webhooks"], *validating["webhooks"]):
        (rule,) = entry["rules"]
        assert rule["apiVersions"] == ["v1beta1", "v1beta2"]
        assert (entry["failurePolicy"], entry["sideEffects"]) == ("Fail", "None")
        assert entry["clientConfig"]["url"].startswith("https://127.0.0.1:9443/")
        assert "//" not in entry["clientConfig"]["url"].removeprefix("https://")
    by_name = {entry["name"]: entry for entry in validating["webhooks"]}
    assert by_name["vcohort.kb.io"]["rules"][0]["scope"] == "Cluster"
    assert by_name["vworkload.kb.io"]["rules"][0]["resources"] == ["workloads", "workloads/status"]


def test_only_validation_spares_a_user_whatever_else_is_spared() -> None:
    for plain, spared in zip(queueing_entries(), sparing(queueing_entries(), "me"), strict=True):
        assert (spared.mutating, spared.path) == (plain.mutating, plain.path)
        if plain.mutating:
            assert spared.entry == plain.entry
            continue
        user, *others = spared.entry["matchConditions"]
        assert user["expression"] == "request.userInfo.username != 'me'"
        assert others == plain.entry["matchConditions"]


def test_installed_webhooks_spare_the_account_that_is_installed() -> None:
    _, validating = Installation("queues").webhooks()
    for entry in validating["webhooks"]:
        names = {each["name"] for each in entry["matchConditions"]}
        assert {"of-others", "new-or-changed"} <= names
        assert "system:serviceaccount:queues:kueue-controller-manager'" in str(entry)


def test_a_service_is_an_alternative_to_an_address() -> None:
    config = by_service("kueue-system", "kueue-webhook-service")("/convert")
    assert config["service"] == {
        "namespace": "kueue-system",
        "name": "kueue-webhook-service",
        "path": "/convert",
        "port": 443,
    }


def test_the_conversion_webhook_of_a_crd_is_reached_the_same_way() -> None:
    made = with_conversion(crd("ClusterQueue"), by_url("https://127.0.0.1:1"))
    webhook = made["spec"]["conversion"]["webhook"]
    assert webhook["clientConfig"] == {"url": "https://127.0.0.1:1/convert"}
    for plain in all_crds():
        if plain["spec"]["conversion"]["strategy"] == "None":
            assert with_conversion(plain, by_url("https://127.0.0.1:1")) is plain


def test_manifests_have_unique_names_and_live_in_the_given_namespace() -> None:
    found = manager_manifests("queues")
    keys = [(obj["kind"], obj["metadata"]["name"]) for obj in found]
    assert len(keys) == len({*keys})
    assert keys[0] == ("Namespace", "queues")
    for obj in found:
        assert obj["metadata"].get("namespace", "queues") == "queues"
        for subject in obj.get("subjects", ()):
            assert subject.get("namespace") == "queues" or subject["kind"] == "Group"


@pytest.mark.parametrize(
    ("group", "resource", "verb"),
    [
        ("kueue.x-k8s.io", "workloads/status", "patch"),
        ("kueue.x-k8s.io", "resourceflavors", "patch"),
        ("kueue.x-k8s.io", "cohorts", "watch"),
        ("kueue.x-k8s.io", "cohorts/status", "patch"),
        ("", "events", "create"),
        ("apiextensions.k8s.io", "customresourcedefinitions", "update"),
        ("node.k8s.io", "runtimeclasses", "watch"),
    ],
)
def test_the_manager_may_do_what_it_does(group: str, resource: str, verb: str) -> None:
    assert any(
        group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"]
        for rule in manager_rules()
    )
