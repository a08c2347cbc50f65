"""An operator that watches another cluster: on two API servers, and as a process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kueuelib.app.program_manifests import operator_manifests
from kueuelib.embedded import ApiServer
from kueuelib.errors import ConfigError
from kueuelib.runtime import Client, Context, Obj, ObjectKey, Operator, PatchType, connect, kinds
from kueuelib.runtime.operator.reconciled import OtherCluster
from kueuelib.testing import eventually, running
from kueuelib.testing.background import BackgroundServer
from kueuelib.testing.processes import Processes

ONE = ObjectKey("default", "one")
PROGRAM = '''
from kueuelib.runtime import Context, Obj, Operator, kinds

app = Operator("mirror")
west = app.cluster("west")


@app.reconciles(kinds.SECRETS, writes=[kinds.CONFIG_MAPS], watches={
    west.of(kinds.CONFIG_MAPS): lambda delta: [delta.key],
})
async def mirror(found: Obj, context: Context) -> None:
    """Copies the ConfigMap of the other cluster that has the name of a Secret here."""
    name = found["metadata"]["name"]
    there = context.get(west.of(kinds.CONFIG_MAPS), name)
    data = {"problem": context.cluster(west).problem()[15:35]}
    if there is not None:
        data |= there["data"]
    await context.apply(kinds.CONFIG_MAPS.new(name, data=data))
'''


def shade(obj: Obj) -> list[str]:
    return [(obj.get("data") or {}).get("color", "")]


async def data_of(client: Client, name: str = "one") -> Obj:
    found = await client.get(kinds.CONFIG_MAPS, ObjectKey("default", name))
    return dict(found["data"])


@pytest.fixture
async def west_client() -> AsyncIterator[Client]:
    async with ApiServer() as server, server.client() as client:
        yield client


async def test_functions_see_and_change_objects_of_another_cluster(
    kube_client: Client, west_client: Client
) -> None:
    app = Operator("painters", namespace="default")
    west = app.cluster("west")
    there = west.of(kinds.CONFIG_MAPS)
    calls: list[str] = []

    @app.reconciles(
        kinds.SECRETS,
        writes=[kinds.CONFIG_MAPS],
        watches={there: lambda delta: [delta.key], kinds.CONFIG_MAPS: lambda _: []},
        indexes={there: {"color": shade}},
    )
    async def paint(found: Obj, context: Context) -> None:
        name = found["metadata"]["name"]
        calls.append(name)
        away = context.cluster(west)
        assert context.get(kinds.CONFIG_MAPS, "theirs") is None
        red = context.find(there, "color", "red")
        names = ",".join(sorted(each["metadata"]["name"] for each in red))
        await context.apply(kinds.CONFIG_MAPS.new("report", data={"red": names}))
        if context.get(there, name) is not None:
            done = {"metadata": {"annotations": {"example.com/seen": "yes"}}}
            change = away.client.patch(
                kinds.CONFIG_MAPS, ObjectKey("default", name), done, PatchType.MERGE
            )
            away.cache.learn(await change)

    await kube_client.create(kinds.SECRETS, kinds.SECRETS.new("one", "default"))
    made = kinds.CONFIG_MAPS.new("theirs", "default", data={"color": "red"})
    await west_client.create(kinds.CONFIG_MAPS, made)
    async with running(app, kube_client, clusters={"west": west_client}):

        async def report(expected: str) -> bool:
            return (await data_of(kube_client, "report"))["red"] == expected

        await eventually(lambda: report("theirs"))
        made = kinds.CONFIG_MAPS.new("one", "default", data={"color": "red"})
        await west_client.create(kinds.CONFIG_MAPS, made)
        await eventually(lambda: report("one,theirs"))

        async def noted() -> bool:
            found = await west_client.get(kinds.CONFIG_MAPS, ONE)
            return "example.com/seen" in found["metadata"].get("annotations", {})

        await eventually(noted)
        before = len(calls)
        await west_client.delete(kinds.CONFIG_MAPS, ONE)
        await eventually(lambda: report("theirs"))
        assert len(calls) > before


async def test_kinds_of_another_cluster_may_be_followed_by_their_metadata(
    kube_client: Client, west_client: Client
) -> None:
    app = Operator("readers")
    there = app.cluster("west").of(kinds.CONFIG_MAPS)
    seen: list[Obj] = []

    @app.reconciles(
        kinds.SECRETS, watches={there: lambda delta: [delta.key]}, metadata_only=[there]
    )
    async def read(found: Obj, context: Context) -> None:
        held = context.get(there, found["metadata"]["name"])
        if held is not None:
            seen.append(held)

    await kube_client.create(kinds.SECRETS, kinds.SECRETS.new("one", "default"))
    async with running(app, kube_client, clusters={"west": west_client}):
        made = kinds.CONFIG_MAPS.new("one", "default", data={"a": "b"})
        await west_client.create(kinds.CONFIG_MAPS, made)
        await eventually(lambda: seen)
    assert set(seen[0]) == {"apiVersion", "kind", "metadata"}


async def _idle(found: Any, context: Context) -> None:
    pass


async def test_clusters_that_do_not_fit_the_declaration_are_refused(
    kube_client: Client, west_client: Client
) -> None:
    app = Operator("a")
    with pytest.raises(ConfigError, match="cluster 'We st': is not a valid name"):
        app.cluster("We st")
    there = OtherCluster("east").of(kinds.CONFIG_MAPS)
    with pytest.raises(ConfigError, match="watches ConfigMap of cluster east, which it does not"):
        app.reconciles(kinds.SECRETS, watches={there: lambda _: []})(_idle)
    west = app.cluster("west")
    assert app.cluster("west") == west

    @app.reconciles(kinds.SECRETS, watches={west.of(kinds.SECRETS): lambda _: []})
    async def nothing(_found: Obj, context: Context) -> None:
        with pytest.raises(ConfigError, match="uses cluster east, which it does not declare"):
            context.cluster(OtherCluster("east"))
        with pytest.raises(ConfigError, match="reads ConfigMap of cluster west, which it does not"):
            context.get(west.of(kinds.CONFIG_MAPS), "one")
        context.event("Normal", "Done", "both were refused")
        done.append(True)

    done: list[bool] = []
    with pytest.raises(ConfigError, match="cluster west: no kubeconfig; add --cluster west=KUBE"):
        async with running(app, kube_client):
            pass
    both = {"west": west_client, "north": west_client}
    with pytest.raises(ConfigError, match="has no cluster north; leave it out; declared: west"):
        async with running(app, kube_client, clusters=both):
            pass
    await kube_client.create(kinds.SECRETS, kinds.SECRETS.new("one", "default"))
    async with running(app, kube_client, clusters={"west": west_client}):
        await eventually(lambda: done)


def test_the_deployment_reads_kubeconfigs_of_other_clusters_from_a_secret() -> None:
    app = Operator("mirror")
    west = app.cluster("west")
    watches: Any = {west.of(kinds.JOBS): lambda delta: [delta.key]}
    app.reconciles(kinds.SECRETS, watches=watches)(_idle)
    made = operator_manifests(app, "mirror:app", "", image="mirror:1")
    pod = next(each for each in made if each["kind"] == "Deployment")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["args"][-2:] == ["--cluster", "west=/etc/kueuelib/clusters/west"]
    assert container["volumeMounts"] == [
        {"name": "mirror-clusters", "mountPath": "/etc/kueuelib/clusters", "readOnly": True}
    ]
    assert pod["volumes"] == [
        {"name": "mirror-clusters", "secret": {"secretName": "mirror-clusters"}}
    ]
    role = next(each for each in made if each["kind"] == "ClusterRole")
    assert "batch" not in yaml.safe_dump(role), "permissions are for the operator's own cluster"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--cluster", "west"), "write NAME=KUBECONFIG, each name once"),
        (("--cluster", "west=a", "--cluster", "west=b"), "write NAME=KUBECONFIG, each name once"),
        ((), "--cluster west=KUBECONFIG"),
        (("--cluster", "west=missing"), "missing"),
    ],
)
def test_the_command_line_says_where_a_cluster_is(
    options: tuple[str, ...],
    message: str,
    tmp_path: Path,
    api_server: BackgroundServer,
) -> None:
    (tmp_path / "mirror.py").write_text(PROGRAM)
    kubeconfig = api_server.write_kubeconfig(tmp_path / "here")
    command = [sys.executable, "-m", "kueuelib", "run", "mirror.py", "--no-leader-elect"]
    done = subprocess.run(
        [*command, "--kubeconfig", str(kubeconfig), *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.slow
async def test_a_process_outlives_the_loss_of_another_cluster(
    api_server: BackgroundServer, kube_client: Client, tmp_path: Path
) -> None:
    (tmp_path / "mirror.py").write_text(PROGRAM)
    here = api_server.write_kubeconfig(tmp_path / "here")
    there = tmp_path / "there"
    server = ("--kubeconfig", str(there), "--data-dir", str(tmp_path / "data"))
    await kube_client.create(kinds.SECRETS, kinds.SECRETS.new("one", "default"))
    with Processes(tmp_path) as processes:
        processes.start("west", "apiserver", *server, "--port", "0")
        await eventually(there.exists, within=100)
        port = yaml.safe_load(there.read_text())["clusters"][0]["cluster"]["server"][-5:]
        options = ("--kubeconfig", str(here), "--cluster", f"west={there}", "--no-leader-elect")
        processes.start("mirror", "run", str(tmp_path / "mirror.py"), *options)
        async with await connect(str(there)) as west:
            made = kinds.CONFIG_MAPS.new("one", "default", data={"color": "red"})
            await west.create(kinds.CONFIG_MAPS, made)

            async def shown(color: str, problem: str) -> bool:
                note = {"metadata": {"annotations": {"looked": str(time.monotonic())}}}
                await kube_client.patch(kinds.SECRETS, ONE, note, PatchType.MERGE)
                found = await data_of(kube_client)
                return (found.get("color"), found.get("problem", "")) == (color, problem)

            await eventually(lambda: shown("red", ""), within=100)
            processes.kill("west")
            silent = "has not answered for"
            await eventually(lambda: shown("red", silent), within=100)
            processes.start("west again", "apiserver", *server, "--port", port)
            patch = {"data": {"color": "blue"}}
            await eventually(
                lambda: west.patch(kinds.CONFIG_MAPS, ONE, patch, PatchType.MERGE), within=100
            )
            await eventually(lambda: shown("blue", ""), within=100)
            assert processes.stop("mirror") == 0
