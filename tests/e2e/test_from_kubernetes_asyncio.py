"""The programs of the page for people who know kubernetes_asyncio."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client as k8s

from kueuelib.runtime import Client, ObjectKey, kinds
from kueuelib.testing import eventually, running

EXAMPLES = Path(__file__).parents[2] / "examples/from_kubernetes_asyncio"


def program(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


@pytest.mark.api_server(simulate=True)
async def test_pods_are_listed_watched_changed_and_followed(kube_client: Client) -> None:
    pods = program("pods")
    spec = {"containers": [{"name": "c", "image": "i"}]}
    await kube_client.create(kinds.PODS, kinds.PODS.new("web", "default", spec=spec))

    async def runs() -> bool:
        return bool(await pods["list_as_before"](kube_client) == ["web Running"])

    await eventually(runs)
    assert await pods["watch_as_before"](kube_client) == ["ADDED web"]
    assert await pods["mark"](kube_client) == ["yes"]
    assert (await pods["own"](kube_client)).metadata.labels == {"example.com/team": "shop"}
    changes: list[str] = []
    web = await pods["follow"](kube_client, changes)
    assert web.metadata.annotations["example.com/seen"] == "yes"
    assert changes == ["added web"]


async def test_a_report_is_a_whole_program(
    kube_client: Client, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    spec = {"containers": [{"name": "c", "image": "i"}]}
    await kube_client.create(kinds.PODS, kinds.PODS.new("web", "default", spec=spec))
    await program("pods")["report"]()
    assert capsys.readouterr().out == "web Pending\n"


async def test_a_deployment_gets_a_service_and_loses_it_again(kube_client: Client) -> None:
    names = program("exposer")
    labels = {"app": "a"}
    pod = k8s.V1PodTemplateSpec(
        metadata=k8s.V1ObjectMeta(labels=labels),
        spec=k8s.V1PodSpec(containers=[k8s.V1Container(name="c", image="i")]),
    )
    made = k8s.V1Deployment(
        metadata=k8s.V1ObjectMeta(name="d", namespace="default", annotations={names["PORT"]: "x"}),
        spec=k8s.V1DeploymentSpec(
            selector=k8s.V1LabelSelector(match_labels=labels), replicas=1, template=pod
        ),
    )
    deployments, services = kube_client.of(k8s.V1Deployment), kube_client.of(k8s.V1Service)
    key = ObjectKey("default", "d")
    async with running(names["app"], kube_client):
        with pytest.raises(Exception, match="must be a number"):
            await deployments.create(made)
        made.metadata.annotations[names["PORT"]] = "80"
        found = await deployments.create(made)
        service = await eventually(lambda: services.get(key))
        assert service.spec.ports[0].port == 80
        assert service.spec.selector == labels
        del found.metadata.annotations[names["PORT"]]
        found.metadata.resource_version = None
        await deployments.replace(found)

        async def is_gone() -> bool:
            return "d" not in [each.metadata.name for each in await services.list("default")]

        await eventually(is_gone)
