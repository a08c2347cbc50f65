"""Who makes an object does not own what Go's types bring along."""

from __future__ import annotations

import pytest

CORE = "/api/v1/namespaces/default"
APPS = "/apis/apps/v1/namespaces/default"
POD = {"containers": [{"name": "c", "image": "i"}]}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
REPLICATED = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
JOB = {"template": {"spec": {**POD, "restartPolicy": "Never"}}}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
BACKEND = {"service": {"name": "x", "port": {"number": 80}}}
ITEM = 'k:{"name":"c"}'


def present(fields, path=""):
    """The paths at which an owner has made something that holds fields."""
    found = [path] if "." in fields else []
    for name, inner in fields.items():
        if name != ".":
            where = name.removeprefix("f:")
            found += present(inner, f"{path}/{where}" if path else where)
    return found


@pytest.mark.parametrize(
    ("path", "obj", "made"),
    [
        (f"{CORE}/services", {"spec": {"ports": [{"port": 80}]}},
         ["spec/ports", 'spec/ports/k:{"port":80,"protocol":"TCP"}']),
        (f"{CORE}/pods", {"spec": POD}, [f"spec/containers/{ITEM}"]),
        (f"{CORE}/podtemplates", {"template": TEMPLATE},
         ["template/metadata/labels", f"template/spec/containers/{ITEM}"]),
        (f"{CORE}/persistentvolumeclaims", {"spec": CLAIM}, ["spec/resources/requests"]),
        (f"{CORE}/serviceaccounts", {"secrets": [{"name": "c"}]}, ["secrets"]),
        (f"{APPS}/deployments", {"spec": REPLICATED},
         ["spec/strategy/rollingUpdate", "spec/template/metadata/labels",
          f"spec/template/spec/containers/{ITEM}"]),
        (f"{APPS}/statefulsets", {"spec": {**REPLICATED, "serviceName": "s"}},
         ["spec/persistentVolumeClaimRetentionPolicy", "spec/template/metadata/labels",
          f"spec/template/spec/containers/{ITEM}", "spec/updateStrategy/rollingUpdate"]),
        ("/apis/batch/v1/namespaces/default/cronjobs",
         {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": JOB}}},
         [f"spec/jobTemplate/spec/template/spec/containers/{ITEM}"]),
        ("/apis/networking.k8s.io/v1/namespaces/default/ingresses",
         {"spec": {"defaultBackend": BACKEND}},
         ["spec/defaultBackend", "spec/defaultBackend/service"]),
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases",
         {"spec": {"holderIdentity": "h"}}, []),
    ],
)  # fmt: skip
async def test_what_is_always_there_is_nobodys(api, path, obj, made):
    obj = {"metadata": {"name": "m"}, **obj}
    found = await api.post(path, obj, params={"dryRun": "All"})
    assert found.status == 201
    (entry,) = found.body["metadata"]["managedFields"]
    assert sorted(present(entry["fieldsV1"])) == sorted(made)


async def test_a_zero_is_nobodys(api):
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    obj = {"metadata": {"name": "m"}, "value": 0, "description": "d"}
    found = await api.post(path, obj, params={"dryRun": "All"})
    (entry,) = found.body["metadata"]["managedFields"]
    assert "f:value" not in entry["fieldsV1"]
    assert "f:description" in entry["fieldsV1"]
