"""Who may do what: roles, tokens, reviews, acting as somebody else."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from kueuelib.embedded.server import ApiServer

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"
CLUSTER_ROLES = f"{RBAC}/clusterroles"
CLUSTER_BINDINGS = f"{RBAC}/clusterrolebindings"
APPLY = "application/apply-patch+yaml"
GROUP = "rbac.authorization.k8s.io"


pytestmark = pytest.mark.server(authorization="rbac")


@pytest.fixture
async def bob(server, open_api):
    """A user without any rights of his own."""
    async with open_api(server, server.add_user("bob", "devs")) as found:
        yield found


def rule(resources, verbs, groups=("",), **more):
    return {"apiGroups": list(groups), "resources": resources, "verbs": verbs, **more}


def user(name="bob"):
    return {"kind": "User", "apiGroup": GROUP, "name": name}


def bound(role, *subjects, kind="Role", name="b"):
    ref = {"apiGroup": GROUP, "kind": kind, "name": role}
    return {"metadata": {"name": name}, "roleRef": ref, "subjects": list(subjects)}


BOB = user()


async def grant(api, *rules, subjects=(BOB,), cluster=False):
    roles, bindings = (CLUSTER_ROLES, CLUSTER_BINDINGS) if cluster else (ROLES, BINDINGS)
    kind = "ClusterRole" if cluster else "Role"
    made = await api.post(roles, {"metadata": {"name": "r"}, "rules": list(rules)})
    assert made.status == 201, made
    made = await api.post(bindings, bound("r", *subjects, kind=kind))
    assert made.status == 201, made


async def test_nothing_is_allowed_without_a_role(bob):
    found = await bob.get(PODS)
    assert (found.status, found.body["reason"]) == (403, "Forbidden")
    assert found.body["message"] == (
        'pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the '
        'namespace "default"'
    )
    assert found.body["details"] == {"kind": "pods"}
    found = await bob.delete(f"{PODS}/p")
    assert found.body["message"] == (
        'pods "p" is forbidden: User "bob" cannot delete resource "pods" in API group "" in the '
        'namespace "default"'
    )
    found = await bob.get("/apis/batch/v1/jobs")
    assert found.body["message"] == (
        'jobs.batch is forbidden: User "bob" cannot list resource "jobs" in API group "batch" at '
        "the cluster scope"
    )
    found = await bob.get("/metrics")
    assert found.body["message"] == 'forbidden: User "bob" cannot get path "/metrics"'


VERBS = [
    ("get", "GET", f"{MAPS}/m", None),
    ("list", "GET", MAPS, None),
    ("watch", "GET", f"{MAPS}?watch=true&timeoutSeconds=1", None),
    ("create", "POST", MAPS, {"metadata": {"name": "n"}}),
    ("update", "PUT", f"{MAPS}/m", {"metadata": {"name": "m"}}),
    ("patch", "PATCH", f"{MAPS}/m", {"data": {"x": "1"}}),
    ("delete", "DELETE", f"{MAPS}/m", None),
    ("deletecollection", "DELETE", MAPS, None),
]


@pytest.mark.parametrize(("verb", "method", "path", "body"), VERBS, ids=[v for v, *_ in VERBS])
async def test_a_role_grants_just_its_verbs(api, bob, verb, method, path, body):
    await api.post(MAPS, {"metadata": {"name": "m"}})
    headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
    refused = await bob.call(method, path, body, headers=dict(headers))
    assert f'cannot {verb} resource "configmaps"' in refused.body["message"]
    await grant(api, rule(["configmaps"], [verb]))
    allowed = await bob.call(method, path, body, headers=dict(headers))
    assert allowed.status < 300
    others = [each for each in VERBS if each[0] != verb]
    for other, method_, path_, body_ in others:
        headers = {"Content-Type": "application/merge-patch+json"} if method_ == "PATCH" else {}
        refused = await bob.call(method_, path_, body_, headers=headers)
        assert refused.status == 403, other


async def test_a_binding_holds_in_its_namespace_only(api, bob):
    await grant(api, rule(["configmaps"], ["list"]))
    assert (await bob.get(MAPS)).status == 200
    assert (await bob.get("/api/v1/namespaces/kube-system/configmaps")).status == 403
    assert (await bob.get("/api/v1/configmaps")).status == 403


async def test_a_cluster_binding_holds_everywhere(api, bob):
    await grant(api, rule(["configmaps"], ["list"]), cluster=True)
    assert (await bob.get("/api/v1/namespaces/kube-system/configmaps")).status == 200
    assert (await bob.get("/api/v1/configmaps")).status == 200


async def test_a_cluster_role_may_be_bound_in_a_namespace(api, bob):
    role = {"metadata": {"name": "r"}, "rules": [rule(["configmaps"], ["*"])]}
    await api.post(CLUSTER_ROLES, role)
    await api.post(BINDINGS, bound("r", user(), kind="ClusterRole"))
    assert (await bob.get(MAPS)).status == 200
    assert (await bob.get("/api/v1/configmaps")).status == 403


async def test_groups_and_wildcards_are_subjects_and_rules(api, bob):
    devs = {"kind": "Group", "apiGroup": GROUP, "name": "devs"}
    await grant(api, rule(["*"], ["*"], groups=["*"]), subjects=(devs,))
    assert (await bob.post(PODS, {"metadata": {"name": "p"}, "spec": {}})).status == 422
    assert (await bob.get("/apis/batch/v1/namespaces/default/jobs")).status == 200


async def test_names_limit_a_rule(api, bob):
    await api.post(MAPS, {"metadata": {"name": "mine"}})
    await api.post(MAPS, {"metadata": {"name": "other"}})
    await grant(api, rule(["configmaps"], ["get", "list", "create"], resourceNames=["mine"]))
    assert (await bob.get(f"{MAPS}/mine")).status == 200
    assert (await bob.get(f"{MAPS}/other")).status == 403
    assert (await bob.get(MAPS)).status == 403
    by_name = await bob.get(MAPS, params={"fieldSelector": "metadata.name=mine"})
    assert [each["metadata"]["name"] for each in by_name.body["items"]] == ["mine"]
    assert (await bob.post(MAPS, {"metadata": {"name": "mine"}})).status == 403


@pytest.mark.parametrize(
    ("resource", "allowed"), [("pods", False), ("pods/status", True), ("*/status", True)]
)
async def test_subresources_are_granted_apart(api, bob, resource, allowed):
    spec = {"containers": [{"name": "c", "image": "i"}]}
    await api.post(PODS, {"metadata": {"name": "p"}, "spec": spec})
    await grant(api, rule([resource], ["get"]))
    assert ((await bob.get(f"{PODS}/p/status")).status == 200) is allowed


async def test_paths_are_granted_by_cluster_roles(api, bob):
    assert (await bob.get("/apis")).status == 200
    assert (await bob.get("/openid/v1/jwks")).status == 403
    role = {
        "metadata": {"name": "r"},
        "rules": [{"nonResourceURLs": ["/openid/*"], "verbs": ["get"]}],
    }
    await api.post(CLUSTER_ROLES, role)
    await api.post(CLUSTER_BINDINGS, bound("r", user(), kind="ClusterRole"))
    assert (await bob.get("/openid/v1/jwks")).status == 200


async def test_an_apply_that_creates_needs_both_permissions(api, bob):
    await grant(api, rule(["configmaps"], ["patch"]))
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
    params = {"fieldManager": "bob"}
    refused = await bob.patch(f"{MAPS}/m", body, APPLY, params=params)
    assert 'cannot create resource "configmaps"' in refused.body["message"]
    await api.post(MAPS, {"metadata": {"name": "m"}})
    assert (await bob.patch(f"{MAPS}/m", body, APPLY, params=params)).status == 200


async def test_a_revoked_role_is_forgotten_at_once(api, bob):
    await grant(api, rule(["configmaps"], ["list"]))
    assert (await bob.get(MAPS)).status == 200
    await api.delete(f"{BINDINGS}/b")
    assert (await bob.get(MAPS)).status == 403


@pytest.mark.embedded
async def test_aggregated_roles_follow_their_parts(api, bob):
    selector = {"matchLabels": {"into": "all"}}
    whole = {"metadata": {"name": "r"}, "aggregationRule": {"clusterRoleSelectors": [selector]}}
    await api.post(CLUSTER_ROLES, whole)
    await api.post(CLUSTER_BINDINGS, bound("r", user(), kind="ClusterRole"))
    part = {"metadata": {"name": "p", "labels": {"into": "all"}}}
    made = await api.post(CLUSTER_ROLES, {**part, "rules": [rule(["configmaps"], ["list"])]})
    assert made.status == 201
    assert (await api.get(f"{CLUSTER_ROLES}/r")).body["rules"] == [rule(["configmaps"], ["list"])]
    assert (await bob.get(MAPS)).status == 200
    await api.delete(f"{CLUSTER_ROLES}/p")
    assert (await bob.get(MAPS)).status == 403
    view = (await api.get(f"{CLUSTER_ROLES}/view")).body["rules"]
    assert any("pods" in each["resources"] for each in view)
    admin = (await api.get(f"{CLUSTER_ROLES}/admin")).body["rules"]
    assert any("rolebindings" in each["resources"] for each in admin)


async def test_nobody_grants_what_he_does_not_have(api, bob):
    held = rule(["configmaps"], ["get"])
    await grant(api, rule(["roles", "rolebindings"], ["create"], groups=[GROUP]), held)
    refused = await bob.post(ROLES, {"metadata": {"name": "x"}, "rules": [rule(["pods"], ["get"])]})
    assert refused.status == 403
    assert "attempting to grant RBAC permissions not currently held:" in refused.body["message"]
    assert '{APIGroups:[""], Resources:["pods"], Verbs:["get"]}' in refused.body["message"]
    assert (await bob.post(ROLES, {"metadata": {"name": "x"}, "rules": [held]})).status == 201
    admin = await bob.post(BINDINGS, bound("cluster-admin", user(), kind="ClusterRole", name="up"))
    assert admin.status == 403


AGGREGATED = {"clusterRoleSelectors": [{"matchLabels": {"into": "all"}}]}


async def test_only_who_may_do_everything_aggregates(api, bob):
    verbs = ["create", "get", "patch"]
    await grant(api, rule(["clusterroles"], verbs, groups=[GROUP]), cluster=True)
    why = "must have cluster-admin privileges to use the aggregationRule"
    mine = await bob.patch(f"{CLUSTER_ROLES}/r", {"aggregationRule": AGGREGATED})
    assert mine.status == 403
    assert mine.body["message"] == f'clusterroles.{GROUP} "r" is forbidden: {why}'
    made = {"metadata": {"name": "x"}, "aggregationRule": AGGREGATED}
    assert why in (await bob.post(CLUSTER_ROLES, made)).body["message"]
    assert (await api.post(CLUSTER_ROLES, made)).status == 201
    undone = await bob.patch(f"{CLUSTER_ROLES}/x", {"aggregationRule": None})
    assert why in undone.body["message"]
    assert (await bob.get("/api/v1/secrets")).status == 403


async def test_a_label_lends_rules_to_others(api, bob):
    kinds = ["clusterroles", "clusterrolebindings"]
    await grant(api, rule(kinds, ["patch"], groups=[GROUP]), cluster=True)
    label = {"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}}
    why = "attempting to grant RBAC permissions not currently held"
    for path in (CLUSTER_ROLES, CLUSTER_BINDINGS):
        await api.post(path, {"metadata": {"name": "strong"}, **STRONG[path]})
        refused = await bob.patch(f"{path}/strong", label)
        assert (refused.status, why in refused.body["message"]) == (403, True)
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
        collected = {"metadata": {"ownerReferences": [owner], "finalizers": ["example.com/a"]}}
        assert (await bob.patch(f"{path}/strong", collected)).status == 200
    assert (await bob.patch(f"{CLUSTER_ROLES}/r", label)).status == 200


STRONG = {
    CLUSTER_ROLES: {"rules": [rule(["secrets"], ["get"])]},
    CLUSTER_BINDINGS: {"roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "strong"}},
}


async def test_the_permission_to_escalate_by_name_is_not_one_to_create(api, bob):
    named = rule(["clusterroles"], ["escalate"], groups=[GROUP], resourceNames=["x"])
    writing = rule(["clusterroles"], ["create", "patch"], groups=[GROUP])
    await grant(api, named, writing, cluster=True)
    made = {"metadata": {"name": "x"}, "rules": [rule(["secrets"], ["get"])]}
    assert (await bob.post(CLUSTER_ROLES, made)).status == 403
    assert (await api.post(CLUSTER_ROLES, {"metadata": {"name": "x"}})).status == 201
    assert (await bob.patch(f"{CLUSTER_ROLES}/x", made)).status == 200
    assert (await bob.patch(f"{CLUSTER_ROLES}/x", {"aggregationRule": AGGREGATED})).status == 200


async def test_a_role_that_does_not_exist_yet_is_not_bound(api, bob):
    kinds = ["clusterrolebindings", "rolebindings"]
    await grant(api, rule(kinds, ["create"], groups=[GROUP]), cluster=True)
    for path, kind in ((CLUSTER_BINDINGS, "ClusterRole"), (BINDINGS, "Role")):
        future = bound("future", user(), kind=kind, name="x")
        refused = await bob.post(path, future)
        assert refused.status == 404
        plural = path.rpartition("/")[2]
        assert refused.body["message"] == f'{plural}.{GROUP} "future" not found'
        assert refused.body["details"]["kind"] == plural
        assert (await api.post(path, future)).status == 201


async def test_a_field_selector_names_what_is_listed_not_what_is_deleted(api, bob):
    secrets = "/api/v1/namespaces/default/secrets"
    for name in ("mine", "other"):
        await api.post(secrets, {"metadata": {"name": name}})
    await grant(api, rule(["secrets"], ["list", "deletecollection"], resourceNames=["mine"]))

    def named(name):
        return {"params": {"fieldSelector": f"metadata.name={name}"}}

    assert (await bob.get(secrets, **named("mine"))).status == 200
    assert (await bob.get(secrets, **named("mine "))).status == 403
    assert (await api.get(secrets, **named("mine "))).body["items"] == []
    assert (await bob.delete(secrets, **named("mine"))).status == 403
    assert (await api.get(f"{secrets}/mine")).status == 200


def claims(token):
    body = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))


async def token_of(api, name="worker", **spec):
    made = await api.post(f"{ACCOUNTS}/{name}/token", {"spec": spec})
    assert made.status == 201, made
    return made.body["status"]["token"]


@pytest.fixture
async def account(api):
    return (await api.post(ACCOUNTS, {"metadata": {"name": "worker"}})).body


def bearer(token):
    return {"headers": {"Authorization": f"Bearer {token}"}}


async def test_an_account_gets_a_token_that_lets_it_in(api, account):
    token = await token_of(api)
    found = claims(token)
    assert found["sub"] == "system:serviceaccount:default:worker"
    assert found["kubernetes.io"]["serviceaccount"]["uid"] == account["metadata"]["uid"]
    refused = await api.get(PODS, **bearer(token))
    assert 'User "system:serviceaccount:default:worker" cannot list' in refused.body["message"]
    subject = {"kind": "ServiceAccount", "name": "worker", "namespace": "default"}
    await grant(api, rule(["pods"], ["list"]), subjects=(subject,))
    assert (await api.get(PODS, **bearer(token))).status == 200


async def test_a_token_dies_with_its_account(api, account):
    token = await token_of(api)
    assert (await api.get(PODS, **bearer(token))).status == 403
    await api.delete(f"{ACCOUNTS}/worker")
    assert await api.becomes(401, PODS, **bearer(token))
    await api.post(ACCOUNTS, {"metadata": {"name": "worker"}})
    assert (await api.get(PODS, **bearer(token))).status == 401


async def test_a_token_may_be_bound_to_a_pod(api, account):
    spec = {"containers": [{"name": "c", "image": "i"}]}
    await api.post(PODS, {"metadata": {"name": "other"}, "spec": spec})
    spec["serviceAccountName"] = "worker"
    await api.post(PODS, {"metadata": {"name": "p"}, "spec": spec})
    ref = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    token = await token_of(api, boundObjectRef=ref)
    assert claims(token)["kubernetes.io"]["pod"]["name"] == "p"
    assert (await api.get(PODS, **bearer(token))).status == 403
    await api.delete(f"{PODS}/p", params={"gracePeriodSeconds": "0"})
    assert await api.becomes(401, PODS, **bearer(token))
    foreign = {"spec": {"boundObjectRef": {**ref, "name": "other"}}}
    refused = await api.post(f"{ACCOUNTS}/worker/token", foreign)
    assert refused.status == 400
    assert "pod running with different serviceaccount name" in refused.body["message"]
    absent = await api.post(f"{ACCOUNTS}/worker/token", {"spec": {"boundObjectRef": ref}})
    assert absent.status == 404


@pytest.mark.parametrize("seconds", [1, 599, 2**33])
async def test_a_token_lives_neither_too_short_nor_too_long(api, account, seconds):
    found = await api.post(f"{ACCOUNTS}/worker/token", {"spec": {"expirationSeconds": seconds}})
    assert found.status == 422
    assert "may not specify a duration" in found.body["message"]


async def test_a_token_of_an_unknown_account_is_not_made(api):
    found = await api.post(f"{ACCOUNTS}/none/token", {})
    assert (found.status, found.body["message"]) == (404, 'serviceaccounts "none" not found')
    assert (await api.get(f"{ACCOUNTS}/none/token")).status == 405


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"spec": {"boundObjectRef": {}}}, 400),
        ({"metadata": {"name": "other"}}, 422),
        ({"metadata": {"namespace": "kube-system"}}, 400),
        ({"spec": {"boundObjectRef": {"kind": "Secret", "name": "s", "uid": "u"}}}, 409),
    ],
)
async def test_a_token_is_only_made_for_what_the_path_names(api, account, body, status):
    await api.post("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})
    bound = body.get("spec", {}).get("boundObjectRef")
    if bound:
        bound["apiVersion"] = "v1"
    assert (await api.post(f"{ACCOUNTS}/worker/token", body)).status == status


async def test_a_token_of_a_user_is_for_the_server_alone(api):
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    token = api.server.token
    mine = await api.post(path, {"spec": {"token": token}})
    assert mine.body["status"]["authenticated"] is True
    other = await api.post(path, {"spec": {"token": token, "audiences": ["x"]}})
    assert "authenticated" not in other.body["status"]


@pytest.mark.parametrize(
    ("user", "group", "groups"),
    [
        ("eve", "system:unauthenticated", ["system:unauthenticated"]),
        ("system:serviceaccount:default", "", ["system:authenticated"]),
        ("system:anonymous", "", ["system:unauthenticated"]),
        ("system:anonymous", "devs", ["devs", "system:unauthenticated"]),
    ],
)
async def test_an_impersonated_user_has_the_groups_of_his_state(api, user, group, groups):
    nobody = {"kind": "Group", "apiGroup": GROUP, "name": "system:unauthenticated"}
    asking = rule(["selfsubjectreviews"], ["create"], groups=["authentication.k8s.io"])
    await grant(api, asking, subjects=[nobody], cluster=True)
    headers = {"Impersonate-User": user} | ({"Impersonate-Group": group} if group else {})
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    about = (await api.post(path, {}, headers=headers)).body["status"]["userInfo"]
    assert about["groups"] == groups


async def test_an_access_review_has_no_name(api):
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    named = await api.post(path, {"metadata": {"name": "x"}, "spec": review()})
    assert (named.status, named.body["details"]["causes"][0]["field"]) == (422, "metadata")
    plain = {"metadata": {"creationTimestamp": None}, "spec": review()}
    assert (await api.post(path, plain)).status == 201


@pytest.mark.parametrize("change", ["", "x", "signature", "head", "padding"])
async def test_a_forged_token_lets_nobody_in(api, account, change):
    head, body, signature = (await token_of(api)).split(".")
    forged = {
        "": "..",
        "x": "x",
        "padding": f"{head}.{body}.{signature}==",
        "signature": f"{head}.{body}.{signature[:-4]}AAAA",
        "head": f"{base64.urlsafe_b64encode(b'{}').decode()}.{body}.{signature}",
    }[change]
    assert (await api.get(PODS, **bearer(forged))).status == 401


async def test_a_token_for_others_is_not_for_the_server(api, account):
    token = await token_of(api, audiences=["vault"])
    assert (await api.get(PODS, **bearer(token))).status == 401
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    asked = await api.post(path, {"spec": {"token": token, "audiences": ["vault", "x"]}})
    assert asked.body["status"]["authenticated"] is True
    assert asked.body["status"]["audiences"] == ["vault"]
    wrong = await api.post(path, {"spec": {"token": token}})
    assert "authenticated" not in wrong.body["status"]


async def test_a_token_review_tells_whose_a_token_is(api, account):
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    found = await api.post(path, {"spec": {"token": await token_of(api)}})
    about = found.body["status"]["user"]
    assert about["username"] == "system:serviceaccount:default:worker"
    assert about["uid"] == account["metadata"]["uid"]
    assert "system:serviceaccounts:default" in about["groups"]
    nobody = await api.post(path, {"spec": {"token": "nobody's"}})
    assert nobody.body["status"]["error"]
    assert "authenticated" not in nobody.body["status"]


def review(verb="list", resource="pods", group="", **more):
    about = {"verb": verb, "resource": resource, "group": group, "namespace": "default", **more}
    return {"resourceAttributes": about}


async def ask(api, plural, spec):
    path = f"/apis/authorization.k8s.io/v1/{plural}"
    found = await api.post(path, {"spec": spec})
    assert found.status == 201, found
    return found.body["status"]


async def test_access_reviews_know_the_roles(api, bob):
    assert not (await ask(bob, "selfsubjectaccessreviews", review()))["allowed"]
    await grant(api, rule(["pods"], ["list"]))
    status = await ask(bob, "selfsubjectaccessreviews", review())
    assert status["allowed"]
    assert status["reason"] == 'RBAC: allowed by RoleBinding "b/default" of Role "r" to User "bob"'
    assert not (await ask(bob, "selfsubjectaccessreviews", review("get")))["allowed"]
    about = {**review(), "user": "bob"}
    assert (await ask(api, "subjectaccessreviews", about))["allowed"]
    assert not (await ask(api, "subjectaccessreviews", {**about, "user": "eve"}))["allowed"]
    path = {"nonResourceAttributes": {"verb": "get", "path": "/version"}, "user": "bob"}
    path["groups"] = ["system:authenticated"]
    assert (await ask(api, "subjectaccessreviews", path))["allowed"]
    refused = await bob.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": about})
    assert refused.status == 403
    local = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
    assert (await api.post(local, {"spec": about})).body["status"]["allowed"]
    other = {**review(namespace="x"), "user": "bob"}
    assert (await api.post(local, {"spec": other})).status == 422


async def test_a_rules_review_lists_what_one_may(api, bob):
    await grant(api, rule(["pods"], ["list"], resourceNames=["a"]))
    status = await ask(bob, "selfsubjectrulesreviews", {"namespace": "default"})
    assert rule(["pods"], ["list"], resourceNames=["a"]) in status["resourceRules"]
    assert any("/version" in each["nonResourceURLs"] for each in status["nonResourceRules"])
    assert (
        await bob.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {})
    ).status == 400


async def test_an_administrator_acts_as_somebody_else(api, bob):
    headers = {
        "Impersonate-User": "eve",
        "Impersonate-Group": "devs",
        "Impersonate-Extra-Team": "a",
    }
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    about = (await api.post(path, {}, headers=headers)).body["status"]["userInfo"]
    assert about["username"] == "eve"
    assert about["groups"] == ["devs", "system:authenticated"]
    assert about["extra"] == {"team": ["a"]}
    assert (await api.get(PODS, headers=headers)).status == 403
    account = {"Impersonate-User": "system:serviceaccount:default:x"}
    about = (await api.post(path, {}, headers=account)).body["status"]["userInfo"]
    assert "system:serviceaccounts:default" in about["groups"]
    nobody = await api.get(PODS, headers={"Impersonate-Group": "devs"})
    assert nobody.status == 400
    assert nobody.body["message"] == (
        'requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"devs"}, '
        "Extra:map[string][]string(nil)} without impersonating a user name"
    )
    refused = await bob.get(PODS, headers={"Impersonate-User": "eve"})
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
    assert 'User "bob" cannot impersonate' in refused.body["message"]


async def test_an_impersonator_needs_the_permission_for_each_part(api, bob):
    await grant(api, rule(["users"], ["impersonate"], resourceNames=["eve"]), cluster=True)
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    assert (await bob.post(path, {}, headers={"Impersonate-User": "eve"})).status == 201
    assert (await bob.post(path, {}, headers={"Impersonate-User": "max"})).status == 403
    both = {"Impersonate-User": "eve", "Impersonate-Group": "system:masters"}
    assert (await bob.post(path, {}, headers=both)).status == 403


async def test_the_keys_of_tokens_are_published(api):
    found = (await api.get("/.well-known/openid-configuration")).body
    assert found["jwks_uri"].endswith("/openid/v1/jwks")
    assert (await api.get("/openid/v1/jwks")).body["keys"][0]["alg"] == "ES256"


async def test_every_namespace_of_a_cluster_has_its_default_account(open_api):
    async with ApiServer(simulate=True) as server, open_api(server) as api:
        await api.post("/api/v1/namespaces", {"metadata": {"name": "lab"}})
        for namespace in ("default", "lab"):
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
            first = await appearing(api, path)
            await api.delete(path)
            assert (await appearing(api, path))["uid"] != first["uid"]


async def appearing(api, path):
    async with asyncio.timeout(60):
        while (found := await api.get(path)).status == 404:
            await asyncio.sleep(0.01)
    return found.body["metadata"]
