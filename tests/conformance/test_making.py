"""Replacements and applies of what is not there, and numbers and methods that are none."""

from __future__ import annotations

import pytest

CORE = "/api/v1/namespaces/default"
RBAC = "rbac.authorization.k8s.io/v1"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
APPLY = "application/apply-patch+yaml"
ROLE_REF = {"kind": "ClusterRole", "name": "x", "apiGroup": "rbac.authorization.k8s.io"}


def named(api_version, kind, **fields):
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "m"}, **fields}


LEASE = named("coordination.k8s.io/v1", "Lease")
MADE = [
    (f"{CORE}/limitranges", named("v1", "LimitRange")),
    (f"{CORE}/services", named("v1", "Service", spec={"ports": [{"port": 80}]})),
    (f"{CORE}/endpoints", named("v1", "Endpoints")),
    (f"{CORE}/events", named("v1", "Event", involvedObject={"namespace": "default"})),
    (LEASES, LEASE),
    ("/apis/node.k8s.io/v1/runtimeclasses", named("node.k8s.io/v1", "RuntimeClass", handler="h")),
    (f"/apis/{RBAC}/clusterroles", named(RBAC, "ClusterRole")),
    (f"/apis/{RBAC}/clusterrolebindings", named(RBAC, "ClusterRoleBinding", roleRef=ROLE_REF)),
    (f"/apis/{RBAC}/namespaces/default/roles", named(RBAC, "Role")),
    (f"/apis/{RBAC}/namespaces/default/rolebindings", named(RBAC, "RoleBinding", roleRef=ROLE_REF)),
]
CONDITIONAL = "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"
NOT_MADE = [
    (f"{CORE}/configmaps", named("v1", "ConfigMap")),
    (f"{CORE}/secrets", named("v1", "Secret")),
    (f"{CORE}/serviceaccounts", named("v1", "ServiceAccount")),
    (f"/apis/{CONDITIONAL[0]}/validatingwebhookconfigurations", named(*CONDITIONAL)),
]


@pytest.mark.parametrize(("path", "obj"), MADE, ids=[each["kind"] for _, each in MADE])
async def test_a_replacement_makes_some_kinds(api, path, obj):
    params = {"dryRun": "All"} if obj["kind"] == "Endpoints" else {}
    found = await api.put(f"{path}/m", obj, params=params)
    assert (found.status, found.body["kind"]) == (201, obj["kind"])
    assert (await api.get(f"{path}/m")).status == (404 if params else 200)


@pytest.mark.parametrize(("path", "obj"), NOT_MADE, ids=[each["kind"] for _, each in NOT_MADE])
async def test_a_replacement_does_not_make_others(api, path, obj):
    found = await api.put(f"{path}/m", obj)
    assert (found.status, found.body["reason"]) == (404, "NotFound")


async def test_what_a_replacement_makes_is_whole(api):
    obj = {**LEASE, "metadata": {"name": "m", "resourceVersion": "7"}, "spec": {}}
    obj["spec"] = {"holderIdentity": "h"}
    found = await api.put(f"{LEASES}/m", obj, params={"fieldManager": "f"})
    meta = found.body["metadata"]
    assert (found.status, meta["namespace"], found.body["spec"]) == (201, "default", obj["spec"])
    assert [(each["manager"], each["operation"]) for each in meta["managedFields"]] == [
        ("f", "Update")
    ]
    again = await api.put(f"{LEASES}/m", LEASE)
    assert (again.status, again.body["details"]["causes"][0]["field"]) == (
        422,
        "metadata.resourceVersion",
    )


@pytest.mark.parametrize(
    ("meta", "spec", "status"),
    [
        ({"name": "m", "uid": "u"}, {}, 409),
        ({"name": "m", "resourceVersion": "x"}, {}, 500),
        ({"name": "m"}, {"leaseDurationSeconds": -1}, 422),
        ({"name": "other"}, {}, 400),
        ({}, {}, 400),
    ],
)
async def test_a_bad_replacement_makes_nothing(api, meta, spec, status):
    found = await api.put(f"{LEASES}/m", {**LEASE, "metadata": meta, "spec": spec})
    assert found.status == status
    assert (await api.get(f"{LEASES}/m")).status == 404


async def test_a_replacement_makes_nothing_where_nothing_can_be(api):
    assert (await api.put(f"{LEASES.replace('default', 'none')}/m", LEASE)).status == 404
    assert (await api.put(f"{LEASES}/m/status", LEASE)).status == 404


@pytest.mark.server(authorization="rbac")
async def test_to_make_by_a_replacement_one_must_be_allowed_to_make(api, open_api):
    async with open_api(api.server, api.server.add_user("bob", "devs")) as bob:
        assert (await bob.put(f"{LEASES}/m", LEASE)).status == 403
        role = named(RBAC, "Role")
        role["rules"] = [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update"]}
        ]
        binding = named(RBAC, "RoleBinding", roleRef={**ROLE_REF, "kind": "Role", "name": "m"})
        binding["subjects"] = [{"kind": "User", "name": "bob"}]
        root = f"/apis/{RBAC}/namespaces/default"
        assert (await api.put(f"{root}/roles/m", role)).status == 201
        assert (await api.put(f"{root}/rolebindings/m", binding)).status == 201
        found = await bob.put(f"{LEASES}/m", LEASE)
        assert found.status == 403
        assert 'cannot create resource "leases"' in found.body["message"]


@pytest.mark.parametrize("version", ["5", "0"])
async def test_an_apply_of_what_is_not_there_ignores_the_version(api, version):
    obj = named("v1", "ConfigMap")
    obj["metadata"] = {"name": "m", "resourceVersion": version}
    found = await api.patch(f"{CORE}/configmaps/m", obj, APPLY, params={"fieldManager": "f"})
    assert found.status == 201


@pytest.mark.parametrize(
    ("meta", "status", "said"),
    [
        ({"resourceVersion": "x"}, 500, 'strconv.ParseUint: parsing "x": invalid syntax'),
        ({"uid": "u"}, 409, "uid u, and no existing object was found"),
    ],
)
async def test_an_apply_that_insists_in_vain_makes_nothing(api, meta, status, said):
    obj = named("v1", "ConfigMap")
    obj["metadata"] |= meta
    found = await api.patch(f"{CORE}/configmaps/m", obj, APPLY, params={"fieldManager": "f"})
    assert found.status == status
    assert said in found.body["message"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("9" * 19, "value out of range"),
        ("9" * 6000, "value out of range"),
        ("-" + "9" * 40, "value out of range"),
        ("9223372036854775808", "value out of range"),
        ("1_0", "invalid syntax"),
        (" 1", "invalid syntax"),
        ("\u0661", "invalid syntax"),
    ],
)
@pytest.mark.parametrize("name", ["limit", "timeoutSeconds"])
async def test_a_number_has_64_bits(api, name, text, why):
    found = await api.get(f"{CORE}/configmaps", params={name: text})
    assert found.status == 400
    assert found.body["message"] == f'strconv.ParseInt: parsing "{text}": {why}'


@pytest.mark.parametrize("text", ["9223372036854775807", "+1", "-1", "0"])
async def test_any_other_number_is_a_limit(api, text):
    assert (await api.get(f"{CORE}/configmaps", params={"limit": text})).status == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{CORE}/configmaps", 405),
        (f"{CORE}/configmaps/m", 405),
        (f"{CORE}/configmaps/m/status", 404),
        (f"{CORE}/pods/m/log", 405),
        ("/apis/apps/v1/namespaces/default/deployments/m/scale", 405),
        ("/api/v1/watch/configmaps", 405),
        ("/api", 405),
        ("/api/v1", 405),
        ("/apis/batch/v1", 405),
        ("/version", 405),
        ("/openid/v1/jwks", 405),
        ("/", 200),
        ("/apis", 200),
        ("/apis/batch", 200),
        ("/apis/none", 404),
        ("/healthz", 200),
        ("/openapi/v3", 200),
    ],
)
async def test_the_head_of_some_documents_is_given(api, path, status):
    assert (await api.call("HEAD", path)).status == status
