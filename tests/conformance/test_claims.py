"""Claims, claim templates, and what else the examples of the documentation need."""

from __future__ import annotations

import pytest

CORE = "/api/v1/namespaces/default"
CLAIMS, SERVICES = f"{CORE}/persistentvolumeclaims", f"{CORE}/services"
SETS = "/apis/apps/v1/namespaces/default/statefulsets"
APPLY = "application/apply-patch+yaml"
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def stateful_set(templates=("www",), mounts=("www",), claim=CLAIM, **pod):
    mounted = [{"name": name, "mountPath": f"/{name}"} for name in mounts]
    container = {"name": "nginx", "image": "nginx", "volumeMounts": mounted}
    spec = {
        "selector": {"matchLabels": {"app": "nginx"}},
        "template": {
            "metadata": {"labels": {"app": "nginx"}},
            "spec": {"containers": [container], **pod},
        },
        "volumeClaimTemplates": [{"metadata": {"name": each}, "spec": claim} for each in templates],
    }
    return {"metadata": {"name": "web"}, "spec": spec}


async def test_a_mount_may_name_a_claim_template(api):
    made = await api.post(SETS, stateful_set())
    assert made.status == 201, made
    (template,) = made.body["spec"]["volumeClaimTemplates"]
    assert template["spec"]["volumeMode"] == "Filesystem"
    assert template["status"] == {"phase": "Pending"}
    assert (template["apiVersion"], template["kind"]) == ("v1", "PersistentVolumeClaim")


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (
            stateful_set(mounts=("other",)),
            ["spec.template.spec.containers[0].volumeMounts[0].name"],
        ),
        (
            stateful_set(claim={**CLAIM, "accessModes": []}),
            ["spec.volumeClaimTemplates[0].spec.accessModes"],
        ),
        (
            stateful_set(claim={**CLAIM, "resources": {}}),
            ["spec.volumeClaimTemplates[0].spec.resources[storage]"],
        ),
        (stateful_set(subdomain="NO", hostname="NO"), []),
        (stateful_set(volumes=[{"name": "www", "hostPath": {"path": "/"}}]), []),
        (stateful_set((), ("www",), volumes=[{"name": "www", "emptyDir": {}}]), []),
    ],
)
async def test_what_a_stateful_set_mounts_exists(api, body, fields):
    made = await api.post(SETS, body)
    told = (made.body.get("details") or {}).get("causes") or ()
    assert [each["field"] for each in told] == fields
    assert made.status == (422 if fields else 201)


async def test_a_claim_template_needs_a_name(api):
    body = stateful_set(mounts=())
    del body["spec"]["volumeClaimTemplates"][0]["metadata"]
    made = await api.post(SETS, body)
    told = {each["field"] for each in made.body["details"]["causes"]}
    volume = "spec.template.spec.volumes[0]"
    assert told == {f"{volume}.name", f"{volume}.persistentVolumeClaim.claimName"}


async def test_claim_templates_do_not_change(api):
    assert (await api.post(SETS, stateful_set())).status == 201
    claim = {"metadata": {"name": "more"}, "spec": CLAIM}
    changed = await api.patch(f"{SETS}/web", {"spec": {"volumeClaimTemplates": [claim]}})
    assert changed.status == 422
    assert "updates to statefulset spec for fields other than" in changed.body["message"]


async def test_a_claim_without_a_storage_class_does_not_grow(api):
    assert (await api.post(CLAIMS, {"metadata": {"name": "a"}, "spec": CLAIM})).status == 201
    more = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    assert (await api.patch(f"{CLAIMS}/a", more)).status == 422
    bound = {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
    assert (await api.patch(f"{CLAIMS}/a/status", bound)).status == 200
    assert (await api.patch(f"{CLAIMS}/a", more)).status in (403, 422)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"ipFamilies": ["IPv6"]}, "spec.ipFamilies[0]"),
        ({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6"]}, "spec.ipFamilies[0]"),
        ({"ipFamilyPolicy": "RequireDualStack"}, "spec.ipFamilyPolicy"),
    ],
)
async def test_a_cluster_has_addresses_of_one_family(api, spec, field):
    made = await api.post(
        SERVICES, {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}], **spec}}
    )
    assert made.status == 422, made
    assert [each["field"] for each in made.body["details"]["causes"]] == [field]


async def test_an_apply_without_fields_owns_nothing(api):
    path = f"{CORE}/serviceaccounts/a"
    body = '{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}'
    made = await api.call(
        "PATCH", path, body, headers={"Content-Type": APPLY}, params={"fieldManager": "me"}
    )
    assert made.status == 201, made
    assert "managedFields" not in made.body["metadata"]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({}, {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
        ({"type": "RollingUpdate"}, {"type": "RollingUpdate"}),
        (
            {"type": "RollingUpdate", "rollingUpdate": {}},
            {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        ),
        ({"type": "OnDelete"}, {"type": "OnDelete"}),
    ],
)
async def test_a_strategy_without_parameters_has_none(api, given, stored):
    body = stateful_set()
    body["spec"]["updateStrategy"] = given
    made = await api.post(SETS, body)
    assert made.body["spec"]["updateStrategy"] == stored
