"""Every cause of a refusal is told at once, what may not change after what is wrong."""

from __future__ import annotations

import pytest

CORE = "/api/v1/namespaces/default"
MAPS = f"{CORE}/configmaps"
APPS = "/apis/apps/v1/namespaces/default"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
POD = {"containers": [{"name": "c", "image": "i"}]}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
REPLICATED = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}


def fields(found):
    assert found.status == 422, found
    return [each["field"] for each in found.body["details"]["causes"]]


@pytest.mark.parametrize(
    ("path", "obj", "change", "causes"),
    [
        (
            "/apis/node.k8s.io/v1/runtimeclasses",
            {"handler": "h"},
            {"handler": "X Y"},
            ["handler", "handler"],
        ),
        *(
            (
                f"{APPS}/{plural}",
                {"spec": REPLICATED},
                {"spec": {"replicas": -1, "selector": {"matchLabels": {"x": "y"}}}},
                ["spec.replicas", "spec.template.metadata.labels", "spec.selector"],
            )
            for plural in ("deployments", "replicasets")
        ),
    ],
)
async def test_what_stays_is_told_after_what_is_wrong(api, path, obj, change, causes):
    assert (await api.post(path, {"metadata": {"name": "m"}, **obj})).status == 201
    found = await api.patch(f"{path}/m", change)
    assert fields(found) == causes
    assert "field is immutable" in found.body["details"]["causes"][-1]["message"]


async def test_metadata_that_stays_hides_nothing(api):
    path = f"{CORE}/resourcequotas"
    await api.post(path, {"metadata": {"name": "m"}})
    meta = {
        "labels": {"a b": "c"},
        "uid": "x",
        "deletionTimestamp": "2020-01-01T00:00:00Z",
        "finalizers": ["q"],
        "ownerReferences": [{"name": "a"}],
    }
    found = await api.patch(f"{path}/m", {"metadata": meta, "spec": {"hard": {"pods": "-1"}}})
    once = list(dict.fromkeys(fields(found)))  # kube-apiserver repeats those of metadata
    assert once == [
        "metadata.labels",
        "metadata.ownerReferences.apiVersion",
        "metadata.ownerReferences.kind",
        "metadata.ownerReferences.uid",
        "metadata.uid",
        "metadata.deletionTimestamp",
        "metadata.finalizers[0]",
        "spec.hard[pods]",
    ]


OPTIONS = {"dryRun": "x", "fieldValidation": "odd"}


@pytest.mark.parametrize(
    ("method", "type_", "more", "causes"),
    [
        ("POST", "application/json", {"fieldManager": "\x01"}, ["fieldManager"]),
        ("PUT", "application/json", {"fieldManager": "a" * 130}, ["fieldManager"]),
        ("PATCH", MERGE, {"force": "true"}, ["force"]),
        ("PATCH", APPLY, {}, ["fieldManager"]),
    ],
)
async def test_all_bad_options_are_told(api, method, type_, more, causes):
    path = MAPS if method == "POST" else f"{MAPS}/m"
    headers = {"Content-Type": type_}
    found = await api.call(method, path, "{}", headers=headers, params={**OPTIONS, **more})
    assert fields(found) == [*causes, "dryRun", "fieldValidation"]
    assert [each["message"] for each in found.body["details"]["causes"][-2:]] == [
        'Unsupported value: ["x"]: supported values: "All"',
        'Unsupported value: "odd": supported values: "", "Ignore", "Strict", "Warn"',
    ]


async def test_all_bad_options_of_a_deletion_are_told(api):
    body = {"propagationPolicy": "Odd", "dryRun": ["x"], "orphanDependents": True}
    found = await api.delete(f"{MAPS}/m", body)
    assert fields(found) == ["propagationPolicy", "propagationPolicy", "dryRun"]
    supported = '"Foreground", "Background", "Orphan", "nil"'
    assert supported in found.body["details"]["causes"][1]["message"]


@pytest.mark.parametrize(
    ("template", "causes"),
    [
        ({}, ["template.spec.containers"]),
        (
            {"spec": {"containers": [{"name": "A_b", "image": ""}]}},
            ["template.spec.containers[0].name", "template.spec.containers[0].image"],
        ),
        ({"metadata": {"labels": {"a b": "c"}}, "spec": POD}, ["template.labels"]),
        ({"spec": {**POD, "restartPolicy": "Odd"}}, ["template.spec.restartPolicy"]),
    ],
)
async def test_a_pod_template_is_checked(api, template, causes):
    found = await api.post(
        f"{CORE}/podtemplates", {"metadata": {"name": "m"}, "template": template}
    )
    assert fields(found) == causes


async def test_a_pod_template_has_the_defaults_of_pods(api):
    made = await api.post(f"{CORE}/podtemplates", {"metadata": {"name": "m"}, "template": TEMPLATE})
    spec = made.body["template"]["spec"]
    assert (made.status, spec["restartPolicy"], spec["dnsPolicy"]) == (
        201,
        "Always",
        "ClusterFirst",
    )
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    bad = {"template": {"spec": {"restartPolicy": "Odd"}}}
    assert fields(await api.patch(f"{CORE}/podtemplates/m", bad)) == ["template.spec.restartPolicy"]
