"""The tools in a cluster whose conversion webhook does not answer.

Some objects are stored in v1beta1, as an older Kueue has left them, and no manager runs.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
from real_plane import lacking, real_api
from rest import PATIENCE
from test_stops import INSIDE, in_pieces, job, pod, refusals
from warm import kueuelib, together

from kueuelib.api import kinds
from kueuelib.api.crd import all_crds
from kueuelib.api.meta import Obj, ObjectKey, Resource, key_of
from kueuelib.api.names import IN_USE_FINALIZER
from kueuelib.app.installation import Installation, install
from kueuelib.app.uninstallation import Removal, uninstall
from kueuelib.errors import ApiError
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import connect
from kueuelib.runtime.queries import PatchType
from kueuelib.testing.background import BackgroundServer

NOWHERE = "https://127.0.0.1:9"
"""Where no manager is."""
REAL = pytest.param(
    "real", marks=[pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())]
)
OLD, NEW = kinds.V1BETA1, kinds.V1BETA2
QUOTA: Obj = {
    "coveredResources": ["cpu"],
    "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1}]}],
}


@attrs.frozen
class Place:
    """A server with objects, and the commands for it."""

    client: Client
    kubeconfig: Path

    def run(self, command: str, *args: str) -> subprocess.CompletedProcess[str]:
        return kueuelib(command, *args, "--kubeconfig", self.kubeconfig)

    def together(self, *commands: Sequence[str]) -> list[subprocess.CompletedProcess[str]]:
        return together(*((*one, "--kubeconfig", self.kubeconfig) for one in commands))

    async def until(self, act: Any) -> Any:
        """The result of a call, once the server has heard of its new definitions."""
        for _ in range(200):
            try:
                return await act()
            except ApiError:
                await asyncio.sleep(0.05)
        return await act()

    async def create(self, resource: Resource, name: str, spec: Obj, **meta: Any) -> None:
        space = {"namespace": "default"} if resource.namespaced else {}
        obj: Obj = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, **space, **meta},
            "spec": spec,
        }
        await self.until(lambda: self.client.create(resource, obj))

    async def define(self, storage: str) -> None:
        """Has objects stored in a version from now on, without any conversion."""
        for crd in all_crds():
            for version in crd["spec"]["versions"]:
                version["storage"] = version["name"] == storage
            crd["spec"]["conversion"] = {"strategy": "None"}
            spec = {"versions": crd["spec"]["versions"], "conversion": {"strategy": "None"}}
            try:
                body: Obj = {"spec": spec}
                await self.client.patch(kinds.CRDS, key_of(crd), body, PatchType.MERGE)
            except ApiError:
                await self.client.create(kinds.CRDS, crd)
        await asyncio.sleep(1.0)  # a real server hears of it later


async def filled(place: Place) -> None:
    """Two queues of each version between each other, and a Workload that waits."""
    await place.define(OLD)
    cluster_queues = kinds.CLUSTER_QUEUES
    old = {"cohort": "team", "namespaceSelector": {}, "resourceGroups": [QUOTA]}
    new = {"cohortName": "team", "namespaceSelector": {}, "resourceGroups": [QUOTA]}
    held = {"finalizers": [IN_USE_FINALIZER]}
    fungible = {"flavorFungibility": {"whenCanBorrow": "Borrow"}}
    await place.create(cluster_queues.at(OLD), "a", {**old, **fungible}, **held)
    await place.create(cluster_queues.at(OLD), "c", old, **held)
    await place.create(kinds.LOCAL_QUEUES.at(OLD), "main", {"clusterQueue": "a"})
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "9"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    pods = {"name": "main", "count": 1, "template": template}
    spec = {"queueName": "main", "podSets": [pods]}
    await place.create(kinds.WORKLOADS.at(OLD), "large", spec, **held)
    await place.define(NEW)
    await place.create(kinds.RESOURCE_FLAVORS, "f", {})
    await place.create(cluster_queues, "b", new)
    await place.create(cluster_queues, "d", new, **held)


@pytest.fixture(params=["embedded", REAL])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    with ExitStack() as stack:
        if request.param == "real":
            kubeconfig = stack.enter_context(real_api(tmp_path))
        else:
            server = stack.enter_context(BackgroundServer())
            kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        async with await connect(kubeconfig) as client:
            found = Place(client, kubeconfig)
            await filled(found)
            await install(client, Installation("kueue-system", NOWHERE), PATIENCE)
            await found.until(lambda: _refuses(client))
            for each in ("Mutating", "Validating"):
                kind = next(one for one in HOOKS if one.kind.startswith(each))
                for obj in (await client.list(kind)).items:
                    await client.delete(kind, key_of(obj))
            yield found


HOOKS = (kinds.MUTATING_WEBHOOKS, kinds.VALIDATING_WEBHOOKS)


async def _refuses(client: Client) -> None:
    """Returns once the server would call the conversion webhook."""
    try:
        await client.get(kinds.CLUSTER_QUEUES, ObjectKey("", "a"))
    except ApiError as error:
        if "conversion webhook for" in str(error):
            return
        raise
    raise ApiError("it is still read as it is")


async def test_every_command_reads_what_is_there(place: Place) -> None:
    doctor = place.run("doctor", "-o", "json")
    assert doctor.returncode == 4, doctor.stderr
    report = json.loads(doctor.stdout)
    found = {one["check"]: one for one in report["findings"]}
    assert found["never-fits"]["object"]["name"] == "large"
    assert "the API server does not reach the conversion webhook" in json.dumps(report)
    assert not {"ClusterQueue", "LocalQueue", "Workload"} & set(report["notSeen"])
    before = place.run("doctor", "--before-migration", "-o", "json")
    assert before.returncode in (0, 4), before.stderr
    assert "object-unreadable" in json.loads(before.stdout)["checked"]

    told = "clusterqueues, localqueues, workloads were read as they are stored: conversion webhook"
    for command in (("explain", "workload/large"), ("pending", "-A")):
        done = place.run(*command)
        assert done.returncode == 0, done.stderr
        assert "large" in done.stdout
        note = next(line for line in done.stdout.splitlines() if line.startswith("Note: cl"))
        assert note.startswith(f"Note: {told}")
        assert note.endswith("run kueuelib doctor: it names the command that helps")
    report_page = place.run("report")
    assert report_page.returncode == 0, report_page.stderr
    assert told in report_page.stdout
    assert re.search(r"(queues?|cohorts?): nothing waits, nothing runs", report_page.stdout)
    served = place.run("report", "--serve")
    assert served.returncode == 1
    assert "cannot follow all objects" in served.stderr
    assert "leave out --serve" in served.stderr


async def test_what_no_served_version_can_show_is_named(place: Place) -> None:
    both = Installation("kueue-system", NOWHERE)
    await install(place.client, attrs.evolve(both, versions=(NEW,)), PATIENCE)
    doctor = place.run("doctor", "-o", "json")
    assert doctor.returncode == 4, doctor.stderr
    report = json.loads(doctor.stdout)
    assert {"ClusterQueue", "LocalQueue", "Workload"} <= set(report["notSeen"])
    assert "ResourceFlavor" not in report["notSeen"]
    (unreachable,) = (
        one
        for one in report["findings"]
        if one["check"] == "webhook-unreachable" and "conversion" in one["problem"]
    )
    assert "kueuelib manager --config" in unreachable["fix"]
    for command in (("explain", "workload/large"), ("pending", "-A"), ("report",)):
        done = place.run(*command)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert "cannot be read: conversion webhook for" in line
        assert line.endswith("run kueuelib doctor: it names the command that helps")
    refused = place.run("uninstall")
    assert refused.returncode == 2
    assert "workloads: cannot be read, so that some may hold quota" in refused.stderr
    done = place.run("uninstall", "--force")
    assert done.returncode == 0, done.stderr
    assert not (await place.client.list(kinds.CRDS)).items


async def test_everything_can_be_removed(place: Place) -> None:
    """Also without `--force`, because it can be seen that no quota is held."""
    done = place.run("uninstall")
    assert done.returncode == 0, done.stderr
    assert "4 ClusterQueues deleted" in done.stdout
    assert "1 Workload deleted" in done.stdout
    assert not (await place.client.list(kinds.CRDS)).items


async def test_a_removal_may_stop_before_each_of_its_writes(place: Place) -> None:
    async def judge() -> None:
        assert await refusals(place.client, [pod(), job()]) == []

    removal = Removal(INSIDE)
    stops = await in_pieces(
        place.client, lambda client: uninstall(client, removal, PATIENCE), judge
    )
    conversions, finalizers, definitions = 3, 4, 8
    assert stops > conversions + finalizers + definitions
    assert not (await place.client.list(kinds.CRDS)).items
