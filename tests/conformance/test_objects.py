"""Objects are created, read, changed and deleted as Kubernetes does it."""

from __future__ import annotations

import re

import pytest

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


def config_map(name="a", **meta):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **meta},
        "data": {"x": "1"},
    }


def pod(name="p", **spec):
    container = {"name": "c", "image": "nginx"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }


async def test_a_new_object_gets_an_identity(api):
    made = await api.post(MAPS, config_map(uid="mine", creationTimestamp=None))
    assert made.status == 201
    meta = made.body["metadata"]
    assert re.fullmatch(r"[0-9a-f-]{36}", meta["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["creationTimestamp"])
    assert meta["namespace"] == "default"
    assert meta["resourceVersion"].isdigit()
    assert "generation" not in meta
    assert (await api.get(f"{MAPS}/a")).body == made.body


async def test_a_generated_name_starts_with_its_prefix(api):
    obj = config_map()
    obj["metadata"] = {"generateName": "web-"}
    first, second = await api.post(MAPS, obj), await api.post(MAPS, obj)
    names = {each.body["metadata"]["name"] for each in (first, second)}
    assert len(names) == 2
    assert all(re.fullmatch(r"web-[a-z0-9]{5}", name) for name in names)


async def test_an_object_without_any_name_is_invalid(api):
    obj = config_map()
    obj["metadata"] = {}
    made = await api.post(MAPS, obj)
    assert made.status == 422
    assert made.body["reason"] == "Invalid"
    assert made.body["message"] == (
        'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
    )
    assert made.body["details"]["causes"][0]["field"] == "metadata.name"


async def test_a_taken_name_is_refused(api):
    await api.post(MAPS, config_map())
    again = await api.post(MAPS, config_map())
    assert (again.status, again.body["reason"]) == (409, "AlreadyExists")
    assert again.body["message"] == 'configmaps "a" already exists'
    assert again.body["details"] == {"name": "a", "kind": "configmaps"}


async def test_an_absent_object_is_not_found(api):
    for answer in (
        await api.get(f"{MAPS}/none"),
        await api.put(f"{MAPS}/none", config_map("none")),
        await api.patch(f"{MAPS}/none", {}),
        await api.delete(f"{MAPS}/none"),
    ):
        assert (answer.status, answer.body["reason"]) == (404, "NotFound")
        assert answer.body["message"] == 'configmaps "none" not found'


async def test_an_object_needs_its_namespace(api):
    made = await api.post("/api/v1/namespaces/nowhere/configmaps", config_map())
    assert made.status == 404
    assert made.body["message"] == 'namespaces "nowhere" not found'


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"apiVersion": "v2"}, 'no kind "ConfigMap" is registered for version "v2" in scheme'),
        ({"kind": "Secret", "data": {}}, "(v1.Secret) to (core.ConfigMap): unknown conversion"),
        ({"metadata": {"name": "a", "namespace": "other"}}, "does not match the namespace"),
        ({"metadata": {"name": "a", "labels": {"a": 1}}}, "cannot unmarshal number"),
        ({"metadata": []}, "cannot unmarshal array"),
    ],
)
async def test_an_object_that_contradicts_its_url_is_a_bad_request(api, change, text):
    made = await api.post(MAPS, {**config_map(), **change})
    assert (made.status, made.body["reason"]) == (400, "BadRequest")
    assert text in made.body["message"]


async def test_a_new_object_has_no_version_yet(api):
    made = await api.post(MAPS, config_map(resourceVersion="1"))
    assert made.status == 500
    assert made.body["message"] == "resourceVersion should not be set on objects to be created"
    assert "reason" not in made.body


async def test_a_stale_replacement_is_a_conflict(api):
    first = (await api.post(MAPS, config_map())).body
    second = await api.put(f"{MAPS}/a", {**first, "data": {"x": "2"}})
    assert second.status == 200
    assert int(second.body["metadata"]["resourceVersion"]) > int(
        first["metadata"]["resourceVersion"]
    )
    stale = await api.put(f"{MAPS}/a", {**first, "data": {"x": "3"}})
    assert (stale.status, stale.body["reason"]) == (409, "Conflict")
    assert stale.body["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert (await api.get(f"{MAPS}/a")).body["data"] == {"x": "2"}


async def test_a_replacement_without_a_version_wins(api):
    await api.post(MAPS, config_map())
    changed = await api.put(f"{MAPS}/a", {**config_map(), "data": {"y": "2"}})
    assert changed.status == 200
    assert changed.body["data"] == {"y": "2"}


async def test_a_write_without_a_change_keeps_the_version(api):
    first = (await api.post(MAPS, config_map())).body
    same = await api.patch(f"{MAPS}/a", {"data": {"x": "1"}})
    assert same.body["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_wrong_uid_is_a_conflict(api):
    await api.post(MAPS, config_map())
    changed = await api.patch(f"{MAPS}/a", {"metadata": {"uid": "other"}, "data": {"x": "2"}})
    assert changed.status == 422
    assert changed.body["details"]["causes"][0]["field"] == "metadata.uid"
    replaced = await api.put(f"{MAPS}/a", config_map(uid="other"))
    assert replaced.status == 409
    assert "Precondition failed: UID in precondition: other" in replaced.body["message"]
    gone = await api.delete(f"{MAPS}/a", {"preconditions": {"uid": "other"}})
    assert gone.status == 409
    assert gone.body["message"].startswith(
        'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition (other) does '
    )
    gone = await api.delete(f"{MAPS}/a", {"preconditions": {"resourceVersion": "1"}})
    assert gone.status == 409


async def test_the_identity_cannot_be_changed(api):
    first = (await api.post(MAPS, config_map())).body["metadata"]
    meta = {"creationTimestamp": "2000-01-01T00:00:00Z"}
    changed = (await api.patch(f"{MAPS}/a", {"metadata": meta, "data": {"x": "2"}})).body[
        "metadata"
    ]
    assert changed["creationTimestamp"] == first["creationTimestamp"]
    for field, value in (
        ("deletionTimestamp", "2000-01-01T00:00:00Z"),
        ("deletionGracePeriodSeconds", 4),
    ):
        refused = await api.patch(f"{MAPS}/a", {"metadata": {field: value}})
        assert refused.status == 422
        assert refused.body["details"]["causes"][0]["field"] == f"metadata.{field}"
    renamed = await api.patch(f"{MAPS}/a", {"metadata": {"name": "b"}})
    assert renamed.status == 400


async def test_a_merge_patch_adds_changes_and_removes(api):
    await api.post(MAPS, config_map())
    changed = await api.patch(f"{MAPS}/a", {"data": {"x": None, "y": "2"}})
    assert changed.body["data"] == {"y": "2"}


async def test_a_json_patch_is_done_in_order_or_not_at_all(api):
    await api.post(MAPS, config_map())
    operations = [
        {"op": "test", "path": "/data/x", "value": "1"},
        {"op": "add", "path": "/data/y", "value": "2"},
        {"op": "remove", "path": "/data/x"},
    ]
    changed = await api.patch(f"{MAPS}/a", operations, JSON_PATCH)
    assert changed.body["data"] == {"y": "2"}
    again = await api.patch(f"{MAPS}/a", operations, JSON_PATCH)
    assert (again.status, again.body["reason"]) == (422, "Invalid")
    assert (await api.get(f"{MAPS}/a")).body["data"] == {"y": "2"}


@pytest.mark.parametrize("body", [{}, "nonsense", [1]])
async def test_a_malformed_json_patch_is_a_bad_request(api, body):
    await api.post(MAPS, config_map())
    changed = await api.patch(f"{MAPS}/a", body, JSON_PATCH)
    assert (changed.status, changed.body["reason"]) == (400, "BadRequest")


async def test_a_strategic_patch_merges_containers_by_name(api):
    await api.post(PODS, pod())
    patch = {"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}
    changed = await api.patch(f"{PODS}/p", patch, STRATEGIC)
    (container,) = changed.body["spec"]["containers"]
    assert container["image"] == "nginx:2"
    assert container["imagePullPolicy"] == "Always"


async def test_an_unknown_patch_type_is_refused(api):
    await api.post(MAPS, config_map())
    changed = await api.patch(f"{MAPS}/a", {}, "text/plain")
    assert (changed.status, changed.body["reason"]) == (415, "UnsupportedMediaType")
    assert changed.body["message"] == "415: Unsupported Media Type"


async def test_a_dry_run_stores_nothing(api):
    made = await api.post(MAPS, config_map(), params={"dryRun": "All"})
    assert made.status == 201
    assert "resourceVersion" not in made.body["metadata"]
    assert (await api.get(f"{MAPS}/a")).status == 404
    await api.post(MAPS, config_map())
    changed = await api.patch(f"{MAPS}/a", {"data": {"x": "2"}}, params={"dryRun": "All"})
    assert changed.body["data"] == {"x": "2"}
    gone = await api.delete(f"{MAPS}/a", params={"dryRun": "All"})
    assert gone.status == 200
    assert (await api.get(f"{MAPS}/a")).body["data"] == {"x": "1"}
    odd = await api.post(MAPS, config_map("b"), params={"dryRun": "Some"})
    assert odd.status == 422


async def test_duplicate_fields_are_refused_or_warned_of(api):
    body = '{"metadata":{"name":"a"},"data":{"x":"1","x":"2"}}'
    strict = await api.post(MAPS, body, params={"fieldValidation": "Strict"})
    assert strict.status == 400
    assert 'strict decoding error: duplicate field "data.x"' in strict.body["message"]
    warned = await api.post(MAPS, body)
    assert warned.status == 201
    assert warned.headers["warning"] == '299 - "duplicate field \\"data.x\\""'
    ignored = await api.put(f"{MAPS}/a", body, params={"fieldValidation": "Ignore"})
    assert ignored.status == 200
    assert "warning" not in ignored.headers
    assert (await api.put(f"{MAPS}/a", body, params={"fieldValidation": "Odd"})).status == 422


async def test_a_deleted_object_is_told_of_by_a_status(api):
    uid = (await api.post(MAPS, config_map())).body["metadata"]["uid"]
    gone = await api.delete(f"{MAPS}/a")
    assert gone.status == 200
    assert gone.body["status"] == "Success"
    assert gone.body["details"] == {"name": "a", "kind": "configmaps", "uid": uid}
    assert (await api.get(f"{MAPS}/a")).status == 404


async def test_a_finalizer_keeps_an_object_until_it_is_removed(api):
    await api.post(MAPS, config_map(finalizers=["example.com/keep"]))
    going = await api.delete(f"{MAPS}/a")
    assert going.status == 200
    assert going.body["kind"] == "ConfigMap"
    assert going.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert going.body["metadata"]["deletionTimestamp"]
    added = await api.patch(
        f"{MAPS}/a", {"metadata": {"finalizers": ["example.com/keep", "b.c/d"]}}
    )
    assert added.status == 422
    last = await api.patch(f"{MAPS}/a", {"metadata": {"finalizers": None}})
    assert last.status == 200
    assert (await api.get(f"{MAPS}/a")).status == 404


async def test_propagation_leaves_its_finalizer(api):
    for policy, finalizer in (("Orphan", "orphan"), ("Foreground", "foregroundDeletion")):
        await api.post(MAPS, config_map(policy.lower()))
        gone = await api.delete(f"{MAPS}/{policy.lower()}", {"propagationPolicy": policy})
        assert gone.body["metadata"]["finalizers"] == [finalizer]
    odd = await api.delete(f"{MAPS}/orphan", {"propagationPolicy": "Odd"})
    assert odd.status == 422


async def test_a_bound_pod_is_given_its_grace_period(api):
    await api.post(PODS, pod(terminationGracePeriodSeconds=7))
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    nameless = await api.post(f"{PODS}/p/binding", {"target": binding["target"]})
    assert nameless.status == 400
    assert (await api.post(f"{PODS}/p/binding", binding)).status == 201
    assert (await api.post(f"{PODS}/p/binding", binding)).status == 409
    going = await api.delete(f"{PODS}/p")
    assert going.body["metadata"]["deletionGracePeriodSeconds"] == 7
    assert going.body["spec"]["nodeName"] == "n"
    gone = await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert gone.status == 200
    assert (await api.get(f"{PODS}/p")).status == 404


async def test_a_pod_that_never_ran_goes_at_once(api):
    await api.post(PODS, pod())
    gone = await api.delete(f"{PODS}/p")
    assert gone.body["kind"] == "Pod"
    assert (await api.get(f"{PODS}/p")).status == 404


async def test_an_eviction_deletes_the_pod(api):
    await api.post(PODS, pod())
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    assert (await api.post(f"{PODS}/p/eviction", body)).status == 201
    assert (await api.get(f"{PODS}/p")).status == 404


async def test_status_and_spec_are_written_apart(api):
    await api.post(PODS, pod())
    by_main = await api.patch(f"{PODS}/p", {"status": {"phase": "Running"}})
    assert by_main.body["status"]["phase"] == "Pending"
    body = {
        "status": {"phase": "Running"},
        "spec": {"nodeName": "x"},
        "metadata": {"labels": {"a": "b"}},
    }
    by_status = await api.patch(f"{PODS}/p/status", body)
    assert by_status.body["status"]["phase"] == "Running"
    assert "nodeName" not in by_status.body["spec"]
    assert by_status.body["metadata"]["labels"] == {"a": "b"}


async def test_a_collection_is_deleted_by_its_labels(api):
    for name, color in (("a", "red"), ("b", "red"), ("c", "blue")):
        await api.post(MAPS, config_map(name, labels={"color": color}))
    gone = await api.delete(MAPS, params={"labelSelector": "color=red"})
    assert gone.status == 200
    assert [each["metadata"]["name"] for each in gone.body["items"]] == ["a", "b"]
    left = await api.get(MAPS)
    assert [each["metadata"]["name"] for each in left.body["items"]] == ["c"]


async def names_left(api):
    items = (await api.get(MAPS)).body["items"]
    return [name for each in items if (name := each["metadata"]["name"]) != "kube-root-ca.crt"]


async def test_a_collection_is_deleted_in_pages(api):
    for name in "abc":
        await api.post(MAPS, config_map(name))
    first = (
        await api.delete(MAPS, params={"limit": "1", "fieldSelector": "metadata.name!=x"})
    ).body
    assert [each["metadata"]["name"] for each in first["items"]] == ["a"]
    assert first["metadata"]["continue"]
    whole = (await api.delete(MAPS, params={"limit": "1"})).body["metadata"]
    assert whole["remainingItemCount"] >= 1
    rest = {"limit": "9", "continue": whole["continue"]}
    assert (await api.delete(MAPS, params=rest)).status == 200
    assert await names_left(api) == []


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"resourceVersion": "1"}, 200),
        ({"resourceVersion": "0"}, 409),
        ({"resourceVersion": "1", "resourceVersionMatch": "NotOlderThan"}, 409),
        ({"uid": "another"}, 409),
        ({"timeoutSeconds": "x"}, 400),
        ({"sendInitialEvents": "true"}, 422),
    ],
)
async def test_a_collection_at_another_version_is_not_deleted(api, params, status):
    await api.post(MAPS, config_map())
    assert (await api.delete(MAPS, params=params)).status == status
    assert await names_left(api) == ["a"]


@pytest.mark.parametrize("params", [{"resourceVersion": "1"}, {"uid": "another"}])
async def test_preconditions_of_a_deletion_may_be_in_the_url(api, params):
    await api.post(MAPS, config_map())
    refused = await api.delete(f"{MAPS}/a", params=params)
    assert (refused.status, refused.body["reason"]) == (409, "Conflict")
    assert await names_left(api) == ["a"]


async def test_options_in_the_body_replace_those_in_the_url(api):
    await api.post(MAPS, config_map())
    assert (await api.delete(f"{MAPS}/a", {"dryRun": ["All"]})).status == 200
    assert await names_left(api) == ["a"]
    assert (await api.delete(f"{MAPS}/a", {}, params={"dryRun": "All"})).status == 200
    assert await names_left(api) == []


async def test_a_namespace_in_its_end_takes_nothing_new(api):
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "brief"}}
    made = await api.post("/api/v1/namespaces", namespace)
    assert made.body["status"] == {"phase": "Active"}
    assert made.body["metadata"]["labels"] == {"kubernetes.io/metadata.name": "brief"}
    going = await api.delete("/api/v1/namespaces/brief")
    assert going.body["status"]["phase"] == "Terminating"
    refused = await api.post("/api/v1/namespaces/brief/configmaps", config_map())
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
    assert refused.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    body = {**going.body, "spec": {"finalizers": []}}
    assert (await api.put("/api/v1/namespaces/brief/finalize", body)).status == 200
    assert (await api.get("/api/v1/namespaces/brief")).status == 404


async def test_the_namespaces_of_the_system_stay(api):
    for name in ("default", "kube-system"):
        gone = await api.delete(f"/api/v1/namespaces/{name}")
        assert gone.status == 403
        assert gone.body["message"] == (
            f'namespaces "{name}" is forbidden: this namespace may not be deleted'
        )


async def test_jobs_warn_of_orphans_and_leave_them(api):
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    job = {"metadata": {"name": "j"}, "spec": {"template": template}}
    made = await api.post(jobs, job)
    assert made.body["metadata"]["generation"] == 1
    suspended = await api.patch(f"{jobs}/j", {"spec": {"suspend": True}})
    assert suspended.body["metadata"]["generation"] == 2
    labelled = await api.patch(f"{jobs}/j", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.body["metadata"]["generation"] == 2
    going = await api.delete(f"{jobs}/j")
    assert "child pods are preserved by default" in going.headers["warning"]
    assert going.body["metadata"]["finalizers"] == ["orphan"]


async def test_a_deployment_is_scaled_through_its_subresource(api):
    base = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    await api.post(base, {"metadata": {"name": "d"}, "spec": spec})
    scale = (await api.get(f"{base}/d/scale")).body
    assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 1})
    scale["spec"]["replicas"] = 3
    assert (await api.put(f"{base}/d/scale", scale)).body["spec"] == {"replicas": 3}
    merged = await api.patch(f"{base}/d/scale", {"spec": {"replicas": 4}})
    assert merged.body["spec"] == {"replicas": 4}
    assert (await api.get(f"{base}/d")).body["spec"]["replicas"] == 4


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/dota/x", "value": "1"},
        {"op": "move", "path": "/data/y", "from": "/data/no"},
        {"op": "copy", "path": "/no/y", "from": "/data/x"},
        {"op": "test", "path": "/data/x", "value": "guess"},
        {"op": "remove", "path": "/data/no"},
        {"op": "fly", "path": "/a"},
        {"op": "add"},
        {"op": "replace", "path": "", "value": 1},
    ],
)
async def test_a_json_patch_that_fails_tells_no_value(api, operation):
    secrets = "/api/v1/namespaces/default/secrets"
    await api.post(secrets, {"metadata": {"name": "s"}, "data": {"x": "aHVzaA=="}})
    found = await api.patch(f"{secrets}/s", [operation], type=JSON_PATCH)
    assert (found.status, found.body["reason"]) == (422, "Invalid")
    assert found.body["message"] == "the server rejected our request due to an error in our request"
    assert found.body["details"] == {}


@pytest.mark.parametrize("by", ["put", "patch"])
async def test_a_resource_version_that_is_no_number_is_a_failure(api, by):
    await api.post(MAPS, config_map())
    call = getattr(api, by)
    found = await call(f"{MAPS}/a", config_map(resourceVersion="abc"))
    assert found.status == 500
    assert found.body["message"] == 'strconv.ParseUint: parsing "abc": invalid syntax'
    assert "reason" not in found.body


async def test_a_broken_label_is_named_once(api):
    labels = {"a": "x" * 64, "b d": "x" * 64}
    found = await api.post(MAPS, config_map(labels=labels))
    assert found.status == 422
    value = "x" * 64
    text = f'metadata.labels: Invalid value: "{value}": must be no more than 63 bytes'
    assert found.body["message"].count(text) == 1
    assert found.body["message"].count('metadata.labels: Invalid value: "b d": name part') == 1
    assert len(found.body["details"]["causes"]) == 3


@pytest.mark.parametrize(
    "data",
    [
        r'{"x": "\"y\":", "x": "2"}',
        '{"x" : ": z", "x":"2"}',
        r'{"x": "1", "\u0078": "2"}',
    ],
)
async def test_duplicate_fields_are_seen_however_they_are_written(api, data):
    body = f'{{"metadata": {{"name": "m"}}, "data": {data}}}'
    strict = await api.post(MAPS, body, params={"fieldValidation": "Strict"})
    assert 'strict decoding error: duplicate field "data.x"' in strict.body["message"]


async def test_texts_that_look_like_fields_are_none(api):
    body = r'{"metadata": {"name": "m"}, "data": {"x": "\"x\":", "y": ": \"x\" :", "z": ":"}}'
    made = await api.post(MAPS, body, params={"fieldValidation": "Strict"})
    assert made.status == 201
