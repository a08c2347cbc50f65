"""The rules of the smaller built-in kinds, and of JSON patches."""

from __future__ import annotations

import pytest

JSON_PATCH = "application/json-patch+json"
CORE = "/api/v1/namespaces/default"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
HERE = f"{RBAC}/namespaces/default"
GROUP = "rbac.authorization.k8s.io"
RULE = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
REF = {"kind": "ClusterRole", "name": "a"}


async def refusals(api, path, body):
    """Field and message of each cause."""
    given = {"metadata": {"name": "x"}, **body}
    found = await api.post(path, given, params={"dryRun": "All"})
    assert found.status == 422, found
    return [(each["field"], each["message"]) for each in found.body["details"]["causes"]]


@pytest.mark.parametrize(
    ("plural", "body", "field", "text"),
    [
        (
            "clusterroles",
            {"aggregationRule": {}},
            "aggregationRule.clusterRoleSelectors",
            (
                "Required value: at least one clusterRoleSelector required if aggregationRule is "
                "non-nil"
            ),
        ),
        (
            "clusterroles",
            {"rules": [{**RULE, "verbs": []}]},
            "rules[0].verbs",
            "Required value: verbs must contain at least one value",
        ),
        (
            "clusterrolebindings",
            {"roleRef": {**REF, "kind": "Role"}},
            "roleRef.kind",
            'Unsupported value: "Role": supported values: "ClusterRole"',
        ),
        (
            "clusterrolebindings",
            {"roleRef": {**REF, "name": "a/b"}},
            "roleRef.name",
            "Invalid value: \"a/b\": may not contain '/'",
        ),
        (
            "clusterrolebindings",
            {"roleRef": {**REF, "apiGroup": "x"}},
            "roleRef.apiGroup",
            f'Unsupported value: "x": supported values: "{GROUP}"',
        ),
        (
            "clusterrolebindings",
            {"roleRef": REF, "subjects": [{"kind": "Foo", "name": "a"}]},
            "subjects[0].kind",
            'Unsupported value: "Foo": supported values: "ServiceAccount", "User", "Group"',
        ),
        (
            "clusterrolebindings",
            {"roleRef": REF, "subjects": [{"kind": "ServiceAccount", "name": "a"}]},
            "subjects[0].namespace",
            "Required value",
        ),
        (
            "clusterrolebindings",
            {"roleRef": REF, "subjects": [{"kind": "User"}]},
            "subjects[0].name",
            "Required value",
        ),
    ],
)
async def test_roles_and_bindings_are_checked(api, plural, body, field, text):
    assert await refusals(api, f"{RBAC}/{plural}", body) == [(field, text)]


async def test_a_binding_names_a_role(api):
    found = await refusals(api, f"{HERE}/rolebindings", {})
    assert found == [
        ("roleRef.kind", 'Unsupported value: "": supported values: "Role", "ClusterRole"'),
        ("roleRef.name", "Required value"),
    ]


async def test_the_role_of_a_binding_stays(api):
    subjects = [{"kind": "User", "name": "u"}]
    body = {"metadata": {"name": "b"}, "roleRef": REF, "subjects": subjects}
    made = await api.post(f"{HERE}/rolebindings", body)
    assert made.status == 201
    assert made.body["roleRef"] == {**REF, "apiGroup": GROUP}
    assert made.body["subjects"] == [{**subjects[0], "apiGroup": GROUP}]
    path = f"{HERE}/rolebindings/b"
    refused = await api.patch(path, {"roleRef": {"name": "b"}})
    assert refused.status == 422
    shown = f'{{"APIGroup":"{GROUP}","Kind":"ClusterRole","Name":"b"}}'
    (cause,) = refused.body["details"]["causes"]
    assert cause["field"] == "roleRef"
    assert cause["message"] == f"Invalid value: {shown}: cannot change roleRef"
    assert (await api.patch(path, {"subjects": None})).status == 200


@pytest.mark.parametrize(
    ("item", "field", "text"),
    [
        (
            {"type": "Foo"},
            "type",
            'Invalid value: "Foo": must be a standard limit type or fully qualified',
        ),
        (
            {"type": "PersistentVolumeClaim"},
            "limits",
            (
                "Required value: either minimum or maximum storage value is required, but neither "
                "was provided"
            ),
        ),
        (
            {"type": "Pod", "max": {"pods": "1"}},
            "max[pods]",
            'Invalid value: "pods": must be a standard resource for containers',
        ),
        (
            {"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}},
            "min[cpu]",
            'Invalid value: "2": min value 2 is greater than max value 1',
        ),
        (
            {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}},
            "defaultRequest[cpu]",
            'Invalid value: "2": default request value 2 is greater than default limit value 1',
        ),
        (
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}},
            "maxLimitRequestRatio[cpu]",
            'Invalid value: "500m": ratio 500m is less than 1',
        ),
        (
            {
                "type": "Container",
                "min": {"cpu": "1"},
                "max": {"cpu": "2"},
                "maxLimitRequestRatio": {"cpu": "5"},
            },
            "maxLimitRequestRatio[cpu]",
            'Invalid value: "5": ratio 5 is greater than max/min = 2.000000',
        ),
    ],
)
async def test_limits_are_checked(api, item, field, text):
    found = await refusals(api, f"{CORE}/limitranges", {"spec": {"limits": [item]}})
    assert found == [(f"spec.limits[0].{field}", text)]


QUOTA = "must be a standard resource for quota"
STANDARD = "must be a standard resource type or fully qualified"


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        (
            {"hard": {"foo": "1"}},
            [
                ("hard[foo]", f'Invalid value: "foo": {STANDARD}'),
                ("hard[foo]", f'Invalid value: "foo": {QUOTA}'),
            ],
        ),
        ({"hard": {"storage": "1"}}, [("hard[storage]", f'Invalid value: "storage": {QUOTA}')]),
        ({"hard": {"pods": "1.5"}}, [("hard[pods]", 'Invalid value: "1500m": must be an integer')]),
        (
            {"hard": {"pods": "-1"}},
            [("hard[pods]", 'Invalid value: "-1": must be greater than or equal to 0')],
        ),
        ({"scopes": ["Foo"]}, [("scopes", 'Invalid value: ["Foo"]: unsupported scope')]),
        (
            {"hard": {"cpu": "1"}, "scopes": ["BestEffort"]},
            [("scopes", 'Invalid value: ["BestEffort"]: unsupported scope applied to resource')],
        ),
        (
            {"scopes": ["Terminating", "NotTerminating"]},
            [("scopes", 'Invalid value: ["Terminating","NotTerminating"]: conflicting scopes')],
        ),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "Foo"}]
                }
            },
            [
                (
                    "scopeSelector.matchExpressions.operator",
                    'Invalid value: "Foo": not a valid selector operator',
                )
            ],
        ),
    ],
)
async def test_quotas_are_checked(api, spec, problems):
    found = await refusals(api, f"{CORE}/resourcequotas", {"spec": spec})
    assert found == [(f"spec.{field}", text) for field, text in problems]


async def test_a_good_quota_is_taken_and_keeps_its_scopes(api):
    hard = {"cpu": "500m", "count/jobs.batch": "1", "requests.nvidia.com/gpu": "4", "pods": "2"}
    made = await api.post(
        f"{CORE}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}}
    )
    assert (made.status, made.body["spec"]["hard"]) == (201, hard)
    changed = await api.patch(f"{CORE}/resourcequotas/q", {"spec": {"scopes": ["Terminating"]}})
    assert changed.status == 422
    assert "spec.scopes: Invalid value" in changed.body["message"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"leaseDurationSeconds": 0},
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            {"leaseTransitions": -1},
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
        ),
    ],
)
async def test_leases_are_checked(api, spec, text):
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    ((field, message),) = await refusals(api, path, {"spec": spec})
    assert f"{field}: {message}" == text


async def test_the_handler_of_a_runtime_class_is_a_label_and_stays(api):
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    for handler, text in (
        ("FOO BAR", "a lowercase RFC 1123 label must consist of"),
        ("a.b", "must not contain dots"),
        ("", "Required value"),
    ):
        ((field, message),) = await refusals(api, path, {"handler": handler})
        assert field == "handler"
        assert text in message
    assert (await api.post(path, {"metadata": {"name": "x"}, "handler": "a"})).status == 201
    changed = await api.patch(f"{path}/x", {"handler": "b"})
    assert changed.status == 422
    assert "field is immutable" in changed.body["message"]


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"a": 1}, 400, "cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
        ([5], 400, "cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
        (
            [{"op": 5, "path": "/data/x"}],
            400,
            "cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
        ),
        (
            [{"op": "foo", "path": "/data/x"}],
            422,
            "the server rejected our request due to an error in our request",
        ),
    ],
)
async def test_a_patch_of_operations_that_is_none_is_refused(api, body, status, text):
    made = {"metadata": {"name": "m"}, "data": {"x": "1"}}
    assert (await api.post(f"{CORE}/configmaps", made)).status == 201
    found = await api.patch(f"{CORE}/configmaps/m", body, JSON_PATCH)
    assert found.status == status
    assert text in found.text
