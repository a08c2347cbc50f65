"""Fields of built-in kinds: unknown ones, doubled ones, and those of another type."""

from __future__ import annotations

import pytest

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
APPLY = "application/apply-patch+yaml"
STRICT = {"fieldValidation": "Strict"}
CONTAINER = {"name": "c", "image": "i"}


def pod(**spec):
    return {"metadata": {"name": "p"}, "spec": {"containers": [CONTAINER], **spec}}


def job(**spec):
    template = {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}
    return {"metadata": {"name": "j"}, "spec": {"template": template, **spec}}


RULE = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
UNKNOWN = [
    (PODS, pod(containers=[{**CONTAINER, "imagee": "x"}]), "spec.containers[0].imagee"),
    (PODS, pod(tolerationz=[]), "spec.tolerationz"),
    (PODS, {**pod(), "specs": {}}, "specs"),
    (PODS, {**pod(), "metadata": {"name": "p", "label": {}}}, "metadata.label"),
    (PODS, pod(affinity={"nodeAffinity": {"required": []}}), "spec.affinity.nodeAffinity.required"),
    (PODS, pod(securityContext={"runAsUsr": 1}), "spec.securityContext.runAsUsr"),
    (PODS, pod(volumes=[{"name": "v", "emptyDirr": {}}]), "spec.volumes[0].emptyDirr"),
    (JOBS, job(parallellism=1), "spec.parallellism"),
    (
        JOBS,
        job(template={"metadata": {"labelz": {}}, "spec": job()["spec"]["template"]["spec"]}),
        "spec.template.metadata.labelz",
    ),
    (MAPS, {"metadata": {"name": "m"}, "date": {}}, "date"),
    (
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        {"metadata": {"name": "r"}, "rules": [{**RULE, "resource": ["pods"]}]},
        "rules[0].resource",
    ),
    (
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        {"metadata": {"name": "l"}, "spec": {"holder": "x"}},
        "spec.holder",
    ),
]
IDS = [f"{path.rpartition('/')[2]}-{where}" for path, _, where in UNKNOWN]


@pytest.mark.parametrize(("path", "body", "where"), UNKNOWN, ids=IDS)
async def test_an_unknown_field_is_refused_when_asked_for(api, path, body, where):
    found = await api.post(path, body, params=STRICT)
    assert (found.status, found.body["reason"]) == (400, "BadRequest")
    assert found.body["message"].endswith(f'strict decoding error: unknown field "{where}"')


@pytest.mark.parametrize(("path", "body", "where"), UNKNOWN, ids=IDS)
async def test_an_unknown_field_is_dropped_with_a_warning(api, path, body, where):
    made = await api.post(path, body)
    assert made.status == 201
    assert f'unknown field \\"{where}\\"' in made.headers["warning"]
    name = where.rpartition(".")[2]
    assert f'"{name}"' not in made.text.partition('"managedFields"')[0]
    silent = await api.post(
        path,
        {**body, "metadata": {**body["metadata"], "name": "other"}},
        params={"fieldValidation": "Ignore"},
    )
    assert silent.status == 201
    assert "warning" not in silent.headers


TYPES = [
    (pod(nodeName=5), "number into Go struct field PodSpec.spec.nodeName of type string"),
    (pod(hostNetwork="yes"), "string into Go struct field PodSpec.spec.hostNetwork of type bool"),
    (pod(priority=2**40), "1099511627776 into Go struct field PodSpec.spec.priority of type int32"),
    (pod(nodeSelector=[]), "array into Go struct field PodSpec.spec.nodeSelector of type map["),
    (
        pod(containers=[{**CONTAINER, "env": [{"name": "A", "value": 1}]}]),
        "number into Go struct field EnvVar.spec.containers.env.value of type string",
    ),
    (
        pod(containers=[{**CONTAINER, "ports": [{"containerPort": "80"}]}]),
        "string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int",
    ),
    (
        pod(containers=[{**CONTAINER, "resources": {"limits": {"cpu": "much"}}}]),
        "quantities must match the regular expression",
    ),
    ({**pod(), "status": {"startTime": "today"}}, 'parsing time "today"'),
    ({"metadata": {"name": "p"}, "spec": []}, "array into Go struct field Pod.spec of type v1.Pod"),
]


@pytest.mark.parametrize(("body", "text"), TYPES, ids=[text[:60] for _, text in TYPES])
async def test_a_field_of_another_type_is_a_bad_request(api, body, text):
    found = await api.post(PODS, body, params={"fieldValidation": "Ignore"})
    assert found.status == 400
    assert found.body["message"].startswith('Pod in version "v1" cannot be handled as a Pod: ')
    assert text in found.body["message"]


async def test_null_means_absent(api):
    made = await api.post(PODS, pod(nodeName=None, tolerations=None, hostNetwork=None))
    assert made.status == 201
    assert not {"nodeName", "hostNetwork"} & made.body["spec"].keys()
    made = await api.post(MAPS, {"metadata": {"name": "m"}, "data": {"x": None, "y": "1"}})
    assert made.body["data"] == {"x": "", "y": "1"}


async def test_doubled_fields_are_told(api):
    body = '{"metadata":{"name":"m"},"data":{"x":"1","x":"2"}}'
    strict = await api.post(MAPS, body, params=STRICT)
    assert strict.status == 400
    assert 'duplicate field "data.x"' in strict.body["message"]
    made = await api.post(MAPS, body)
    assert made.body["data"] == {"x": "2"}
    assert 'duplicate field \\"data.x\\"' in made.headers["warning"]


async def test_an_update_and_a_patch_are_as_strict_as_a_creation(api):
    made = (await api.post(MAPS, {"metadata": {"name": "m"}})).body
    replaced = await api.put(f"{MAPS}/m", {**made, "dota": {}}, params=STRICT)
    assert 'unknown field "dota"' in replaced.body["message"]
    patched = await api.patch(f"{MAPS}/m", {"dota": {}}, params=STRICT)
    assert 'unknown field "dota"' in patched.body["message"]
    warned = await api.patch(f"{MAPS}/m", {"dota": {}})
    assert (warned.status, "dota" in warned.body) == (200, False)


@pytest.mark.parametrize("validation", ["Strict", "Warn", "Ignore"])
async def test_an_apply_never_owns_what_nobody_knows(api, validation):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "dota": {"x": "1"}}
    params = {"fieldManager": "one", "fieldValidation": validation}
    found = await api.patch(f"{MAPS}/m", body, APPLY, params=params)
    assert found.status == 500
    assert found.body["message"] == (
        "failed to create typed patch object (/m; /v1, Kind=ConfigMap): "
        ".dota: field not declared in schema"
    )
    assert "reason" not in found.body
