"""What an API server does not finish by itself when everything is removed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson

from kueuelib.api import kinds
from kueuelib.api.meta import ObjectKey, annotations_of
from kueuelib.app.installation import Installation, install
from kueuelib.app.uninstallation import RETRIED, Removal, uninstall
from kueuelib.embedded.server import ApiServer
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import connect
from kueuelib.runtime.queries import PatchType
from kueuelib.runtime.reading import read

CRD = ObjectKey("", "cohorts.kueue.x-k8s.io")
STUCK = {"type": "Terminating", "status": "True", "reason": "InstanceDeletionFailed"}


async def test_a_kind_whose_removal_is_stuck_is_tried_again(tmp_path: Path) -> None:
    async with ApiServer() as server:
        (tmp_path / "config").write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(tmp_path / "config") as client:
            installation = Installation("kueue-system")
            await install(client, installation, 60.0)
            held = {"metadata": {"finalizers": ["example.com/held"]}}
            await client.patch(kinds.CRDS, CRD, held, PatchType.MERGE)
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                removal = group.create_task(uninstall(client, Removal(installation), 50.0))
                group.create_task(stick_until_retried(client))
            assert f"customresourcedefinition/{CRD.name} deleted" in removal.result()
            assert not (await client.list(kinds.CRDS)).items


async def stick_until_retried(client: Client) -> None:
    """Plays a kube-apiserver that waits for a change of the definition."""
    stuck = False
    while True:
        obj = await client.get(kinds.CRDS, CRD)
        if RETRIED in annotations_of(obj):
            break
        if obj["metadata"].get("deletionTimestamp") and not stuck:
            old = [one for one in obj["status"]["conditions"] if one["type"] != STUCK["type"]]
            status = {"status": {"conditions": [*old, STUCK]}}
            await client.patch(kinds.CRDS, CRD, status, PatchType.MERGE, subresource="status")
            stuck = True
    await client.patch(kinds.CRDS, CRD, {"metadata": {"finalizers": None}}, PatchType.MERGE)


async def test_the_secret_of_another_name_is_removed_even_after_a_stop(tmp_path: Path) -> None:
    async with ApiServer() as server:
        (tmp_path / "config").write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(tmp_path / "config") as client:
            await install(client, Installation("kueue-system", secret="our-certificate"), 60.0)
            secret = ObjectKey("kueue-system", "our-certificate")
            assert await read(client, kinds.SECRETS, secret)
            told = await uninstall(client, Removal(Installation("kueue-system")), 50.0)
            assert await read(client, kinds.SECRETS, secret) is None
    gone = told.index("secret/our-certificate deleted")
    assert gone < told.index("role/kueue-certificates-role deleted"), "which names the Secret"
