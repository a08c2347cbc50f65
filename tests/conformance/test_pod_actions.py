"""What is posted to pods, and the parts of pods that have a subresource of their own."""

from __future__ import annotations

import pytest

PODS = "/api/v1/namespaces/default/pods"
STRATEGIC = "application/strategic-merge-patch+json"
AMOUNTS = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "1Gi"}}
NODE = {"kind": "Node", "name": "n"}


def pod(**container):
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", **container}]},
    }


@pytest.mark.parametrize("action", ["eviction", "binding"])
async def test_the_body_of_an_action_is_about_its_pod(api, action):
    await api.post(PODS, pod())
    wanted = action.capitalize()
    target = {"target": NODE} if action == "binding" else {}
    other = await api.post(f"{PODS}/p/{action}", {"metadata": {"name": "other"}, **target})
    assert (other.status, other.body["reason"]) == (400, "BadRequest")
    assert other.body["message"] == f"name in URL does not match name in {wanted} object"
    bare = await api.post(f"{PODS}/p/{action}", {"kind": "Pod", "apiVersion": "v1"})
    assert bare.status == 400
    assert f'Pod in version "v1" cannot be handled as a {wanted}: ' in bare.body["message"]
    elsewhere = {"metadata": {"name": "p", "namespace": "x"}, **target}
    assert (await api.post(f"{PODS}/p/{action}", elsewhere)).status == 400
    assert (await api.post(f"{PODS}/p/{action}", "[]")).status == 400
    found = (await api.get(f"{PODS}/p")).body
    assert "nodeName" not in found["spec"]
    assert "deletionTimestamp" not in found["metadata"]


async def test_an_eviction_deletes_its_pod(api):
    await api.post(PODS, pod())
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    tried = await api.post(f"{PODS}/p/eviction", {**body, "deleteOptions": {"dryRun": ["All"]}})
    assert tried.status == 201
    assert (await api.get(f"{PODS}/p")).status == 200
    gone = await api.post(f"{PODS}/p/eviction", body)
    assert (gone.status, gone.body["status"]) == (201, "Success")
    assert (await api.get(f"{PODS}/p")).status == 404
    assert (await api.post(f"{PODS}/p/eviction", body)).status == 404


async def test_an_evicted_pod_says_that_it_was_evicted(api):
    held = pod()
    held["metadata"]["finalizers"] = ["example.com/held"]
    await api.post(PODS, held)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    await api.post(f"{PODS}/p/eviction", body)
    found = (await api.get(f"{PODS}/p")).body
    assert found["metadata"]["deletionTimestamp"]
    (told,) = [each for each in found["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    del told["lastTransitionTime"]
    assert told == {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (None, "target.name: Required value"),
        ({"name": ""}, "target.name: Required value"),
        (
            {"kind": "Odd", "name": "n"},
            'target.kind: Unsupported value: "Odd": supported values: "Node", "<empty>"',
        ),
    ],
)
async def test_a_binding_needs_a_node(api, target, message):
    await api.post(PODS, pod())
    found = await api.post(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": target})
    assert (found.status, found.body["message"]) == (500, message)


async def test_containers_to_look_into_a_pod_are_added_and_stay(api):
    await api.post(PODS, pod())
    path = f"{PODS}/p/ephemeralcontainers"

    async def patched(*containers):
        body = {"spec": {"ephemeralContainers": list(containers)}}
        return await api.patch(path, body, "application/merge-patch+json")

    added = await patched({"name": "d", "image": "b"})
    assert added.status == 200, added
    assert [each["name"] for each in added.body["spec"]["ephemeralContainers"]] == ["d"]
    assert added.body["spec"]["ephemeralContainers"][0]["imagePullPolicy"] == "Always"
    for refused, text in (
        (await patched({"name": "d", "image": "other"}), '"d" may not be changed'),
        (await patched(), '"d" may not be removed'),
        (
            await patched(
                {"name": "d", "image": "b"},
                {"name": "e", "image": "b", "ports": [{"containerPort": 1}]},
            ),
            "cannot be set for an Ephemeral Container",
        ),
        (await patched({"name": "d", "image": "b"}, {"name": "c", "image": "b"}), "Duplicate"),
    ):
        assert refused.status == 422
        assert text in refused.body["message"]
    ignored = await api.patch(path, {"spec": {"activeDeadlineSeconds": 3}})
    assert ignored.status == 200
    assert "activeDeadlineSeconds" not in ignored.body["spec"]
    assert (await api.get(path)).body["spec"]["ephemeralContainers"][0]["name"] == "d"


async def test_a_new_pod_has_no_containers_to_look_into_it(api):
    body = pod()
    body["spec"]["ephemeralContainers"] = [{"name": "d", "image": "b"}]
    found = await api.post(PODS, body)
    assert found.status == 422
    assert "spec.ephemeralContainers: Forbidden: cannot be set on create" in found.body["message"]


async def test_a_pod_is_resized_within_its_class(api):
    await api.post(PODS, pod(resources=AMOUNTS))

    def sized(cpu, **more):
        resources = {key: {**AMOUNTS[key], "cpu": cpu} for key in AMOUNTS}
        return {"spec": {"containers": [{"name": "c", "resources": resources, **more}]}}

    done = await api.patch(f"{PODS}/p/resize", sized("1", image="other"), STRATEGIC)
    assert done.status == 200, done
    (container,) = done.body["spec"]["containers"]
    assert (container["resources"]["requests"]["cpu"], container["image"]) == ("1", "i")
    worse = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]}}
    refused = await api.patch(f"{PODS}/p/resize", worse, STRATEGIC)
    assert refused.status == 422
    assert "Pod QOS Class may not change" in refused.body["message"]


@pytest.mark.parametrize(
    ("query", "causes"),
    [
        ("tailLines=-1", ["tailLines: Invalid value: -1: must be greater than or equal to 0"]),
        ("limitBytes=0", ["limitBytes: Invalid value: 0: must be greater than 0"]),
        ("sinceSeconds=0", ["sinceSeconds: Invalid value: 0: must be greater than 0"]),
        (
            "sinceSeconds=0&sinceTime=2024-01-01T00:00:00Z",
            ["[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"],
        ),
        (
            "tailLines=-3&limitBytes=-1&stream=Stdout",
            [
                "tailLines: Invalid value: -3: must be greater than or equal to 0",
                "limitBytes: Invalid value: -1: must be greater than 0",
                "stream: Forbidden: may not be specified",
            ],
        ),
    ],
)
@pytest.mark.parametrize("name", ["p", "absent"])
async def test_what_part_of_a_log_there_is_not(api, query, causes, name):
    await api.post(PODS, pod())
    found = await api.get(f"{PODS}/{name}/log?{query}")
    told = [f"{each['field']}: {each['message']}" for each in found.body["details"]["causes"]]
    assert (found.status, told) == (422, causes)
    assert found.body["message"].startswith(f'PodLogOptions "{name}" is invalid: ')


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("tailLines=x", 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("limitBytes=", 'strconv.ParseInt: parsing "": invalid syntax'),
        (
            "sinceTime=yesterday",
            (
                'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": '
                'cannot parse "yesterday" as "2006"'
            ),
        ),
    ],
)
async def test_what_of_a_log_cannot_be_read(api, query, why):
    found = await api.get(f"{PODS}/absent/log?{query}")
    assert (found.status, found.body["message"]) == (400, why)


async def test_a_pod_without_a_node_has_no_log(api):
    await api.post(PODS, pod())
    for query in ("", "?tailLines=0", "?sinceTime=2024-01-01T00:00:00Z", "?sinceTime="):
        found = await api.get(f"{PODS}/p/log{query}")
        assert (found.status, found.text) == (204, "")
