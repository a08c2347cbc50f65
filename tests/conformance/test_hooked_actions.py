"""What admission webhooks see of the subresources."""

from __future__ import annotations

import pytest
from test_webhooks import Hook, patch, register, rule

N = "/api/v1/namespaces/default"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": POD["spec"]}
DEPLOYMENT = {
    "metadata": {"name": "d"},
    "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE},
}
APPLY = "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture
async def hook(tmp_path):
    async with Hook(tmp_path) as hook:
        hook.answers["/hook"] = lambda _: {"allowed": True}
        yield hook


def seen(hook):
    def kind(obj):
        return obj and obj.get("kind")

    return [
        (
            r["operation"],
            "/".join((r["resource"]["resource"], r.get("subResource", ""))),
            r["kind"]["kind"],
            kind(r["object"]),
            kind(r["oldObject"]),
            r.get("name"),
            kind(r["options"]),
        )
        for _, r in hook.requests
    ]


async def call(api, method, path, body, type_):
    """One call; a patch says of which type it is."""
    headers = {"Content-Type": type_} if type_ else {}
    return await api.call(method, path, body, headers=headers)


MERGE = "application/merge-patch+json"
BIND = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
EVICT = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 5}}
LATER = {"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}}
KEPT = {"metadata": {"name": "x"}, "spec": {"finalizers": ["kubernetes"]}}
D, P = f"{DEPLOYMENTS}/d", f"{N}/pods/p"
ACTIONS = {
    "scale": ("PATCH", f"{D}/scale", {"spec": {"replicas": 3}}, MERGE),
    "scale-put": ("PUT", f"{D}/scale", {**SCALE, "metadata": {"name": "d"}}, ""),
    "scale-apply": ("PATCH", f"{D}/scale?fieldManager=x&force=true", SCALE, APPLY),
    "status": ("PATCH", f"{D}/status", {"status": {"replicas": 1}}, MERGE),
    "ephemeral": ("PATCH", f"{P}/ephemeralcontainers", LATER, STRATEGIC),
    "finalize": ("PUT", "/api/v1/namespaces/x/finalize", KEPT, ""),
    "binding": ("POST", f"{P}/binding", BIND, ""),
    "eviction": ("POST", f"{P}/eviction", EVICT, ""),
    "token": ("POST", f"{N}/serviceaccounts/sa/token", {"spec": {}}, ""),
    "exec": ("POST", f"{P}/exec?command=a&command=b&stdout=1", {}, ""),
    "attach": ("GET", f"{P}/attach?stdin=true&container=c", None, ""),
    "portforward": ("GET", f"{P}/portforward?ports=80&ports=90", None, ""),
    "proxy": ("GET", f"{P}/proxy/a/b?c=d", None, ""),
}
SCALED = ("UPDATE", "deployments/scale", "Scale", "Scale", "Scale", "d", "UpdateOptions")
SEEN = {
    "scale": SCALED,
    "scale-put": SCALED,
    "scale-apply": SCALED,
    "status": ("UPDATE", "deployments/status", *3 * ("Deployment",), "d", "UpdateOptions"),
    "ephemeral": ("UPDATE", "pods/ephemeralcontainers", *3 * ("Pod",), "p", "UpdateOptions"),
    "finalize": ("UPDATE", "namespaces/finalize", *3 * ("Namespace",), "x", "UpdateOptions"),
    "binding": ("CREATE", "pods/binding", *2 * ("Binding",), None, "p", "CreateOptions"),
    "eviction": ("CREATE", "pods/eviction", *2 * ("Eviction",), None, "p", "CreateOptions"),
    "token": (
        *("CREATE", "serviceaccounts/token", *2 * ("TokenRequest",), None, "sa", "CreateOptions"),
    ),
    "exec": ("CONNECT", "pods/exec", *2 * ("PodExecOptions",), None, "p", None),
    "attach": ("CONNECT", "pods/attach", *2 * ("PodAttachOptions",), None, "p", None),
    "portforward": (
        *("CONNECT", "pods/portforward", *2 * ("PodPortForwardOptions",), None, "p", None),
    ),
    "proxy": ("CONNECT", "pods/proxy", *2 * ("PodProxyOptions",), None, "p", None),
}
FOUND = {
    "scale": ("spec", {"replicas": 3}),
    "binding": ("target", BIND["target"]),
    "exec": ("command", ["a", "b"]),
    "attach": ("container", "c"),
    "portforward": ("ports", [80, 90]),
    "proxy": ("path", "/a/b"),
}


@pytest.mark.parametrize("action", ACTIONS)
async def test_an_action_is_seen_as_itself(api, hook, action):
    await api.post(DEPLOYMENTS, DEPLOYMENT)
    await api.post(f"{N}/pods", POD)
    await api.post(f"{N}/serviceaccounts", {"metadata": {"name": "sa"}})
    await api.post("/api/v1/namespaces", {"metadata": {"name": "x", "labels": {"a": "b"}}})
    for kind in ("mutating", "validating"):
        rules = [rule(("*",), ("*/*",), groups=("", "apps"), versions=("*",))]  # not Leases
        await register(api, hook, kind, rules=rules)
    done = await call(api, *ACTIONS[action])
    assert done.status in ((400,) if SEEN[action][0] == "CONNECT" else (200, 201)), done
    assert seen(hook) == 2 * [SEEN[action]]
    name, value = FOUND.get(action, ("kind", SEEN[action][3]))
    assert hook.requests[0][1]["object"][name] == value
    hook.answers["/hook"] = lambda _: {"allowed": False, "status": {"code": 418}}
    assert (await call(api, *ACTIONS[action])).status == 418


async def test_a_namespace_is_selected_by_its_own_labels(api, hook):
    await api.post("/api/v1/namespaces", {"metadata": {"name": "x", "labels": {"a": "b"}}})
    rules = [rule(("*",), ("namespaces/*",))]
    await register(api, hook, rules=rules, namespaceSelector={"matchLabels": {"a": "b"}})
    assert (await call(api, *ACTIONS["finalize"])).status == 200
    assert seen(hook) == [SEEN["finalize"]]


async def test_a_hook_changes_a_scale(api, hook):
    await api.post(DEPLOYMENTS, DEPLOYMENT)
    more = patch({"op": "replace", "path": "/spec/replicas", "value": 9})
    hook.answers["/hook"] = lambda _: more
    await register(api, hook, "mutating", rules=[rule(("*",), ("*/scale",), groups=("*",))])
    done = await call(api, *ACTIONS["scale"])
    assert (done.status, done.body["spec"]) == (200, {"replicas": 9})
    assert (await api.get(D)).body["spec"]["replicas"] == 9


async def test_a_deleted_collection_has_no_name(api, hook):
    await api.post(f"{N}/configmaps", {"metadata": {"name": "a"}})
    await register(api, hook, rules=[rule(("*",))])
    await api.delete(f"{N}/configmaps")
    assert seen(hook) == [
        ("DELETE", "configmaps/", "ConfigMap", None, "ConfigMap", None, "DeleteOptions")
    ]


MAPS = f"{N}/configmaps"
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}


def replaced(path, value):
    return patch({"op": "add", "path": path, "value": value})


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        (replaced("/metadata/name", "b"), 201, ""),
        (replaced("/metadata/namespace", "kube-system"), 400, "does not match the namespace"),
        (replaced("/metadata/resourceVersion", "1"), 500, "resourceVersion should not be set"),
        (replaced("/apiVersion", "v9"), 500, "Internal error occurred"),
        (replaced("/kind", "Secret"), 500, "Internal error occurred"),
        ({"allowed": "true"}, 500, 'failed calling webhook "hook.example.com"'),
        (patch({"op": "remove", "path": "/metadata/absent"}), 500, "absent"),
    ],
)
async def test_an_answer_to_a_creation_has_its_effect(api, hook, answer, status, text):
    hook.answers["/hook"] = lambda _: answer
    await register(api, hook, "mutating")
    made = await api.post(MAPS, MAP)
    assert made.status == status, made
    if status == 201:
        assert (await api.get(f"{MAPS}/b")).body["metadata"]["name"] == "b"
    else:
        assert text in made.body["message"]


async def test_a_hook_names_an_object_that_has_only_a_prefix(api, hook):
    hook.answers["/hook"] = lambda _: replaced("/metadata/name", "b")
    await register(api, hook, "mutating")
    made = await api.post(MAPS, {"metadata": {"generateName": "a-"}})
    assert (made.status, made.body["metadata"]["name"]) == (201, "b")


async def test_a_hook_does_not_rename_what_exists(api, hook):
    await api.post(MAPS, MAP)
    hook.answers["/hook"] = lambda _: replaced("/metadata/name", "b")
    await register(api, hook, "mutating", rules=[rule(("UPDATE",))])
    refused = await api.put(f"{MAPS}/a", {**MAP, "data": {}})
    assert refused.status == 422
    assert refused.body["details"]["causes"][0]["field"] == "metadata.name"


async def test_a_hook_does_not_change_what_is_deleted(api, hook):
    await api.post(MAPS, MAP)
    hook.answers["/hook"] = lambda _: replaced("/metadata/labels", {})
    await register(api, hook, "mutating", rules=[rule(("DELETE",))])
    refused = await api.delete(f"{MAPS}/a")
    assert refused.status == 500
    assert refused.body["message"] == (
        'Internal error occurred: admission webhook "hook.example.com" attempted to modify the '
        "object, which is not supported for this operation"
    )
