"""`matchConditions`: which requests a webhook is asked about."""

from __future__ import annotations

import pytest
from test_webhooks import HOOKS, MAPS, Hook, config_map, register, rule

from kueuelib.app.installation import Installation

LIST = "namespace('default').check('list').allowed()"
ACCOUNT = "system:serviceaccount:default:x"


@pytest.fixture
async def hook(tmp_path):
    async with Hook(tmp_path) as hook:
        yield hook


def conditions(*expressions):
    return [{"name": f"c{n}", "expression": text} for n, text in enumerate(expressions)]


async def asked(api, hook, *expressions, **fields):
    """Whether the hook is asked about a new ConfigMap."""
    hook.answers["/hook"] = lambda _: {"allowed": True}
    await register(api, hook, matchConditions=conditions(*expressions), **fields)
    assert (await api.post(MAPS, config_map())).status == 201
    return bool(hook.requests)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("object.metadata.name == 'a'", True),
        ("object.metadata.name == 'b'", False),
        ("oldObject == null", True),
        ("has(object.metadata.annotations)", False),
        ("(has(object.spec) ? object.spec : null) == null", True),
        ("type(object.data) == map && type(object.data.x) == string", True),
        ("request.operation == 'CREATE' && request.name == 'a'", True),
        ("request.namespace == 'default' && request.resource.resource == 'configmaps'", True),
        ("request.kind.group == '' && request.kind.version == 'v1'", True),
        ("request.requestKind.kind == 'ConfigMap'", True),
        ("has(request.subResource)", False),
        ("request.dryRun", False),
        ("request.userInfo.groups.exists(g, g == 'system:authenticated')", True),
        ("has(request.userInfo.extra) && 'nothing' in request.userInfo.extra", False),
        ("request.options.kind == 'CreateOptions'", True),
        ("authorizer.group('').resource('pods').check('list').allowed()", True),
        ("authorizer.requestResource.check('create').allowed()", True),
        ("authorizer.path('/healthz').check('get').allowed()", True),
        (
            f"authorizer.group('batch').resource('jobs').subresource('status').name('x').{LIST}",
            True,
        ),
        (f"authorizer.serviceAccount('default', 'x').group('').resource('pods').{LIST}", False),
        ("authorizer.group('').resource('pods').check('list').errored()", False),
    ],
)
@pytest.mark.server(authorization="rbac")
async def test_a_condition_sees_the_request(api, hook, expression, expected):
    assert await asked(api, hook, expression) is expected


@pytest.mark.parametrize(
    "expression", ["authorizer.path('').check('get').allowed()", "request.subResource == ''"]
)
async def test_a_condition_without_a_value_refuses(api, hook, expression):
    await register(api, hook, matchConditions=conditions(expression))
    made = await api.post(MAPS, config_map())
    assert made.status == 403
    assert f"expression '{expression}' resulted in error: " in made.body["message"]


async def test_one_user_is_spared(api, hook):
    await register(
        api, hook, matchConditions=conditions(f"request.userInfo.username != '{ACCOUNT}'")
    )
    hook.answers["/hook"] = lambda _: {"allowed": False}
    headers = {"Impersonate-User": ACCOUNT, "Impersonate-Group": "system:masters"}
    assert (await api.post(MAPS, config_map("a"), headers=dict(headers))).status == 201
    assert (await api.post(MAPS, config_map("b"))).status == 400


async def test_an_update_that_changes_nothing_of_interest_is_spared(api, hook):
    data = "has(object.data) ? object.data : null"
    expression = f"oldObject == null || ({data}) != ({data.replace('object', 'oldObject')})"
    await register(api, hook, matchConditions=conditions(expression))
    hook.answers["/hook"] = lambda _: {"allowed": True}
    await api.post(MAPS, config_map("a"))
    assert len(hook.requests) == 1
    assert (await api.patch(f"{MAPS}/a", {"metadata": {"labels": {"x": "y"}}})).status == 200
    assert len(hook.requests) == 1
    for number, body in enumerate(({"data": {"x": "2"}}, {"data": None}, {"data": {"x": "1"}})):
        assert (await api.patch(f"{MAPS}/a", body)).status == 200
        assert len(hook.requests) == 2 + number


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ([{"name": "", "expression": "true"}], "[0].name"),
        ([{"name": "-a", "expression": "true"}], "[0].name"),
        ([{"name": "a/b/c", "expression": "true"}], "[0].name"),
        ([{"name": "a", "expression": "true"}] * 2, "[1].name"),
        ([{"name": "a", "expression": ""}], "[0].expression"),
        ([{"name": "a", "expression": "request.nothing == ''"}], "[0].expression"),
        ([{"name": "a", "expression": "request.userInfo.username == 1"}], "[0].expression"),
        ([{"name": "a", "expression": "request.operation.size()"}], "[0].expression"),
        ([{"name": "a", "expression": "params.x == 1"}], "[0].expression"),
        ([{"name": "a", "expression": "authorizer.nothing()"}], "[0].expression"),
        (conditions(*["true"] * 65), ""),
    ],
)
async def test_a_broken_condition_is_invalid(api, hook, given, path):
    webhook = {
        "name": "a.example.com",
        "clientConfig": hook.client("/hook"),
        "rules": [rule()],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "matchConditions": given,
    }
    body = {"metadata": {"name": "a"}, "webhooks": [webhook]}
    made = await api.post(f"{HOOKS}/validatingwebhookconfigurations", body)
    assert (made.status, made.body["reason"]) == (422, "Invalid")
    causes = {each["field"] for each in made.body["details"]["causes"]}
    assert causes == {f"webhooks[0].matchConditions{path}"}


async def test_our_own_conditions_are_valid(api):
    plan = Installation("kueue-system", "https://127.0.0.1:9443")
    for configuration, kind in zip(plan.webhooks(), ("mutating", "validating"), strict=True):
        path = f"{HOOKS}/{kind}webhookconfigurations"
        made = await api.post(path, configuration, params={"dryRun": "All"})
        assert made.status == 201, made
        assert any("matchConditions" in each for each in made.body["webhooks"])
