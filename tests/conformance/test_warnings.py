"""`Warning` headers of pods and Jobs."""

from __future__ import annotations

import pytest

PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
LABELS = {"beta.kubernetes.io/arch": "a"}
TWICE = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
ARCH = 'deprecated since v1.14; use "kubernetes.io/arch" instead'
HIDES = 'hides previous definition of "A", which may be dropped when using apply'
HOST = "which can result in surprising behavior; a DNS label is recommended: ["


def pod(name="p", container=None, **spec):
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", **(container or {})}], **spec},
    }


def told(found):
    assert found.status in (200, 201), found
    return [
        each.removeprefix('299 - "')[:-1].replace('\\"', '"')
        for each in found.headers.get_list("warning")
    ]


@pytest.mark.parametrize(
    ("body", "warnings"),
    [
        (pod(), []),
        (pod(nodeSelector=LABELS), [f"spec.nodeSelector[beta.kubernetes.io/arch]: {ARCH}"]),
        (pod(container={"env": TWICE}), [f"spec.containers[0].env[1]: {HIDES}"]),
        (pod(container={"env": [TWICE[0], {"name": "A", "value": "x$(A)"}]}), []),
        (
            pod("p.dots"),
            [f"metadata.name: this is used in the Pod's hostname, {HOST}must not contain dots]"],
        ),
        (
            pod("x" * 64),
            [
                (
                    f"metadata.name: this is used in the Pod's hostname, {HOST}"
                    "must be no more than 63 characters]"
                )
            ],
        ),
        (
            pod(container={"resources": {"requests": {"memory": "100m"}}}),
            [
                (
                    "spec.containers[0].resources.requests[memory]: "
                    'fractional byte value "100m" is invalid, must be an integer'
                )
            ],
        ),
        (
            pod(container={"ports": [{"containerPort": 80}, {"containerPort": 80}]}),
            [
                (
                    "spec.containers[0].ports[1]: duplicate port definition with "
                    "spec.containers[0].ports[0]"
                )
            ],
        ),
        (
            pod(imagePullSecrets=[{"name": ""}]),
            ['spec.imagePullSecrets[0].name: invalid empty name ""'],
        ),
        (
            pod(
                affinity={
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "x"}]
                    }
                }
            ),
            [
                (
                    "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]."
                    "labelSelector: a null labelSelector results in matching no pod"
                )
            ],
        ),
    ],
)
async def test_a_pod_that_is_hardly_meant_so_is_warned_of(api, body, warnings):
    assert told(await api.post(PODS, body)) == warnings
    labelled = await api.patch(f"{PODS}/{body['metadata']['name']}", {"metadata": {"labels": {}}})
    assert told(labelled) == []


async def test_the_template_of_a_job_is_looked_at(api):
    template = {"spec": {**pod(container={"env": TWICE})["spec"], "restartPolicy": "Never"}}
    body = {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": template}}
    expected = [f"spec.template.spec.containers[0].env[1]: {HIDES}"]
    assert told(await api.post(JOBS, body)) == expected
    assert told(await api.patch(f"{JOBS}/j", {"metadata": {"labels": {"a": "b"}}})) == []
    assert told(await api.patch(f"{JOBS}/j", {"spec": {"parallelism": 2}})) == expected


async def test_a_job_with_dots_in_its_name_is_warned_of(api):
    template = {"spec": {**pod()["spec"], "restartPolicy": "Never"}}
    (text,) = told(
        await api.post(JOBS, {"metadata": {"name": "j.dots"}, "spec": {"template": template}})
    )
    assert text == (
        f"metadata.name: this is used in Pod names and hostnames, {HOST}must not contain dots]"
    )


@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer"])
async def test_a_service_with_ports_of_nodes_has_an_address(api, kind):
    spec = {"type": kind, "clusterIP": "None", "ports": [{"port": 80}]}
    found = await api.post(
        "/api/v1/namespaces/default/services", {"metadata": {"name": "s"}, "spec": spec}
    )
    assert found.status == 422
    assert f"may not be set to 'None' for {kind} services" in found.body["message"]
