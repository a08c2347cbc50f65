"""Backups: always new files, whole ones, and nothing that keeps what is restored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio.to_thread
import orjson
import pytest
import yaml

from kueuelib.api import kinds
from kueuelib.api.crd import all_crds
from kueuelib.api.meta import ObjectKey
from kueuelib.cli.dump import run
from kueuelib.embedded.server import ApiServer
from kueuelib.errors import ConfigError, KueuelibError
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import connect
from kueuelib.runtime.queries import PatchType

HELD = "velero.io/backup-hold"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with ApiServer() as server:
        (tmp_path / "config").write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(tmp_path / "config") as client:
            for crd in all_crds():
                await client.create(kinds.CRDS, crd)
            flavor = {
                "apiVersion": kinds.RESOURCE_FLAVORS.api_version,
                "kind": "ResourceFlavor",
                "metadata": {"name": "f", "finalizers": [HELD, "kueue.x-k8s.io/resource-in-use"]},
                "spec": {},
            }
            await client.create(kinds.RESOURCE_FLAVORS, flavor)
            yield client


async def save(tmp_path: Path) -> None:
    file = tmp_path / "kueue.yaml"
    await anyio.to_thread.run_sync(lambda: run(tmp_path / "config", 10.0, backup=file))


async def test_a_second_backup_does_not_replace_the_first_one(
    client: Client, tmp_path: Path
) -> None:
    """By then, what the first one contains may be gone."""
    await save(tmp_path)
    first = (tmp_path / "kueue.yaml").read_text()
    assert "kind: ResourceFlavor" in first
    await client.delete(kinds.CRDS, ObjectKey("", "resourceflavors.kueue.x-k8s.io"))
    with pytest.raises(ConfigError, match="exists, and may contain more") as refused:
        await save(tmp_path)
    assert refused.value.fix == "keep it, and name another one"
    assert (tmp_path / "kueue.yaml").read_text() == first


async def test_finalizers_of_other_programs_are_not_restored(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await save(tmp_path)
    (flavor,) = yaml.safe_load_all((tmp_path / "kueue.yaml").read_text())
    assert flavor["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    note = f"note: without the finalizer {HELD} of another program (1 object)\n"
    assert capsys.readouterr().err == note
    await anyio.to_thread.run_sync(lambda: run(tmp_path / "config", 10.0))
    assert f"- {HELD}" in capsys.readouterr().out, "a copy of the whole server has everything"


async def test_a_backup_of_nothing_leaves_no_file(client: Client, tmp_path: Path) -> None:
    free = {"metadata": {"finalizers": None}}
    await client.patch(kinds.RESOURCE_FLAVORS, ObjectKey("", "f"), free, PatchType.MERGE)
    for crd in all_crds():
        await client.delete(kinds.CRDS, ObjectKey("", crd["metadata"]["name"]))
    with pytest.raises(KueuelibError, match="nothing to save"):
        await save(tmp_path)
    assert not (tmp_path / "kueue.yaml").exists()


async def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none/kueue\.yaml: cannot be written: No such file"):
        await save(tmp_path / "none")
