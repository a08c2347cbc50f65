"""The manifests of Kubernetes' documentation get the answers of kube-apiserver here, too.

They lie in `content/en/examples` of the public repository kubernetes/website, and
`$KUBERNETES_EXAMPLES` names that folder. `test_claims.py` has minimal cases of what they need.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml
from real_server import assets

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.conformance.fuzz import normal

from kueuelib.embedded.registry.builtin_kinds import builtin_kinds
from kueuelib.embedded.server import ApiServer

APPLY = "application/apply-patch+yaml"
AT_ONCE = {"gracePeriodSeconds": "0", "propagationPolicy": "Background"}
NAMESPACE = "examples"
LEAST = 150
REFUSED = {
    "admin/namespace-dev.yaml": 409,
    "admin/namespace-prod.yaml": 409,
    "application/job/job-tmpl.yaml": 422,
    "service/networking/dual-stack-ipfamilies-ipv6.yaml": 422,
    "service/networking/dual-stack-ipv6-svc.yaml": 500,
    "service/networking/dual-stack-prefer-ipv6-lb-svc.yaml": 422,
    "service/networking/dual-stack-preferred-ipfamilies-svc.yaml": 422,
}
"""Files with an object that kube-apiserver refuses, and the status: a namespace that an earlier
file has, a placeholder, addresses of a family that is not there, an unknown field in an apply."""
WITH_REPLICAS = ("Deployment", "ReplicaSet")
INCOMPLETE = ("application/mysql/mysql-deployment.yaml",)
"""Files with a Deployment whose claim is in another file."""
LEAST_DEPLOYMENTS, READY_SECONDS = 30, 60.0
DIFFERENT = {
    "admin/sched/clusterrole.yaml",  # kube-apiserver itself makes a role of this name
    "pods/security/hello-apparmor.yaml",  # an old annotation, from which it makes a field
}


@attrs.frozen
class Manifest:
    """An object of one of the files.

    Attributes:
        file: its path in the folder.
        collection: the path of requests about its kind.
        body: the object.
    """

    file: str
    collection: str
    body: dict[str, Any]

    @property
    def path(self) -> str:
        """The path of requests about the object."""
        return f"{self.collection}/{self.body['metadata'].get('name', '')}"


def manifests(folder: Path) -> list[Manifest]:
    """All objects of kinds that the embedded server serves, each file in a namespace of its own."""
    served = {(kind.group, kind.kind): kind for kind in builtin_kinds({})}
    found = []
    files = sorted(each for each in folder.rglob("*") if each.suffix in (".yaml", ".yml", ".json"))
    for number, file in enumerate(files):
        namespace = f"docs-{number}"
        for body in _documents(file):
            group, _, version = body["apiVersion"].rpartition("/")
            kind = served.get((group, body["kind"]))
            if kind is None or version != kind.storage:
                continue
            root = f"/apis/{group}/{version}" if group else f"/api/{version}"
            where = f"{root}/{kind.plural}"
            if kind.namespaced:
                body.setdefault("metadata", {})["namespace"] = namespace
                where = f"{root}/namespaces/{namespace}/{kind.plural}"
            found.append(Manifest(str(file.relative_to(folder)), where, body))
    return found


def _documents(file: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file, those in lists too."""
    for body in yaml.safe_load_all(file.read_text(encoding="utf-8")):
        if isinstance(body, dict) and body.get("kind") == "List":
            yield from body["items"]
        elif isinstance(body, dict) and body.keys() >= {"apiVersion", "kind"}:
            yield body


async def answers(api: Any, found: list[Manifest]) -> dict[str, list[Any]]:
    """What a server answers to the creation of each object, and then to the apply of the same.

    Returns:
        pairs of a status and a body, for each file.
    """
    told: dict[str, list[Any]] = {}
    for file, objects in groupby(found, lambda each: each.file):
        group = list(objects)
        for namespace in {each.body["metadata"].get("namespace") for each in group} - {None}:
            await api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        for each in group:
            query = {"fieldManager": "docs", "force": "true"}
            made = await api.post(each.collection, each.body)
            applied = await api.call(
                *("PATCH", each.path, json.dumps(each.body)),
                headers={"Content-Type": APPLY},
                params=query,
            )
            told.setdefault(file, []).extend(
                [answer.status, normal.read(answer.text)] for answer in (made, applied)
            )
        for each in reversed(group):
            if "/namespaces/" not in each.collection:
                await api.delete(each.path, params=AT_ONCE)
    return told


def is_available(body: dict[str, Any]) -> bool:
    """Whether all replicas are available."""
    status, wanted = body["status"], body["spec"]["replicas"]
    seen = status.get("observedGeneration") == body["metadata"]["generation"]
    return seen and status.get("availableReplicas", 0) == status.get("replicas", 0) == wanted


@pytest.fixture
def examples() -> Path:
    named = os.environ.get("KUBERNETES_EXAMPLES", "")
    if not named or not Path(named).is_dir():
        pytest.skip("$KUBERNETES_EXAMPLES names no folder with content/en/examples")
    return Path(named)


async def test_the_manifests_of_the_documentation_are_answered_as_by_kube_apiserver(
    examples, request, open_api
):
    found = manifests(examples)
    assert len({each.file for each in found}) >= LEAST
    async with ApiServer() as embedded, open_api(embedded) as api:
        here = await answers(api, found)
    refused = {file: max(status for status, _ in told) for file, told in here.items()}
    refused = {file: status for file, status in refused.items() if status >= 400}
    assert refused == {file: status for file, status in REFUSED.items() if file in here}
    if assets() is None:
        pytest.skip("$KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver")
    real = request.getfixturevalue("real_server")
    real.clean()
    async with open_api(real) as api:
        there = await answers(api, found)
    different = {
        file: list(normal.differences(told, there[file]))
        for file, told in here.items()
        if told != there[file] and file not in DIFFERENT
    }
    assert not different


async def test_the_deployments_and_services_of_the_documentation_work(examples, open_api):
    found = manifests(examples)
    kinds = {each.file for each in found if each.body["kind"] in ("Deployment", "ReplicaSet")}
    objects = [each for each in found if each.file in kinds or each.body["kind"] == "Service"]
    async with ApiServer(simulate=True) as embedded, open_api(embedded) as api:
        for namespace in {each.body["metadata"].get("namespace") for each in objects} - {None}:
            await api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        made = [(each, await api.post(each.collection, each.body)) for each in objects]
        stored = [each for each, answer in made if answer.status == 201]
        waiting = [each for each in stored if each.body["kind"] in WITH_REPLICAS]
        waiting = [each for each in waiting if each.file not in INCOMPLETE]
        assert len(waiting) >= LEAST_DEPLOYMENTS
        deadline = time.monotonic() + READY_SECONDS
        while waiting and time.monotonic() < deadline:
            answers = [(each, (await api.get(each.path)).body) for each in waiting]
            waiting = [each for each, body in answers if not is_available(body)]
            await asyncio.sleep(0.1)
        assert {each.path for each in waiting} == set()
        for each in stored:
            if each.body["kind"] == "Service" and each.body["spec"].get("selector"):
                path = each.path.replace("/services/", "/endpoints/")
                assert (await api.get(path)).status == 200, each.file
