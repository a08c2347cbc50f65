"""A controller on generated APIs of kubernetes_asyncio keeps the laws of one on our client."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client as k8s

from kueuelib.runtime import Obj, key_of
from kueuelib.testing import Storm

EXAMPLE = Path(__file__).parents[2] / "examples/hostile_world"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import test_notebooks

    yield test_notebooks
    for name in ("test_notebooks", "notebooks"):
        del sys.modules[name]


@pytest.mark.slow
def test_a_controller_on_generated_apis_keeps_both_laws(storm: Storm, example: Any) -> None:
    class Generated(example.Careful):
        """Writes by CoreV1Api; the answers reach the cache by themselves."""

        def api(self) -> k8s.CoreV1Api:
            return k8s.CoreV1Api(self.client.api_client(self.pods.learn))

        async def delete(self, pod: Obj) -> None:
            key, uid = key_of(pod), pod["metadata"]["uid"]
            body = k8s.V1DeleteOptions(preconditions=k8s.V1Preconditions(uid=uid))
            try:
                await self.api().delete_namespaced_pod(key.name, key.namespace, body=body)
            except k8s.ApiException as error:
                if error.status not in (404, 409):
                    raise
            await self.pods.refresh(key)

        async def create(self, notebook: Obj) -> None:
            await self.notebooks.refresh(key_of(notebook))
            if self.notebooks.store.get(key_of(notebook)) != notebook:
                return
            meta = notebook["metadata"]
            owner = k8s.V1OwnerReference(
                api_version=notebook["apiVersion"],
                kind=notebook["kind"],
                name=meta["name"],
                uid=meta["uid"],
                controller=True,
            )
            name = f"notebook-{meta['name']}"
            image = notebook["spec"]["image"]
            pod = k8s.V1Pod(
                metadata=k8s.V1ObjectMeta(name=name, owner_references=[owner]),
                spec=k8s.V1PodSpec(containers=[k8s.V1Container(name="notebook", image=image)]),
            )
            try:
                await self.api().create_namespaced_pod(meta["namespace"], pod)
            except k8s.ApiException as error:
                if error.status != 409:
                    raise
                await self.pods.refresh(key_of({"metadata": {**meta, "name": name}}))

    result = storm(example.notebooks(Generated), seeds=range(1, 7))
    assert sum(result.faults.values()) > 30
