"""API servers to play against: the embedded one, a real one, or one that runs already."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import attrs
import yaml

sys.path.insert(0, str(Path(__file__).parents[2] / "conformance"))

from real_server import RealServer, assets, running

from kueuelib.api.crd import all_crds
from kueuelib.api.kinds import CRDS
from kueuelib.api.meta import Obj, ObjectKey, is_true
from kueuelib.errors import AlreadyExists
from kueuelib.runtime.connection import connect

from .calls import AGENT, CountedClient, of_counting_server, of_metrics

EMBEDDED = "embedded"
REAL = "real"
REAL_FLAGS = ("--max-requests-inflight=5000", "--max-mutating-requests-inflight=2500")
"""As upstream's runner starts it."""
START_SECONDS = 60.0


@attrs.frozen
class Server:
    """An API server.

    Attributes:
        kubeconfig: an administrator's access to it.
        process: the one that counts calls, None if the metrics of the server do.
        folder: where it keeps files.
        fresh: whether it was started for this run, and ends with it.
        etcd: where the store of a real one answers.
    """

    kubeconfig: Path
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    fresh: bool = True
    etcd: str = ""

    def reader(self, client: CountedClient) -> Callable[[], Awaitable]:
        """Return what reads the calls of everybody but this client."""
        if self.process is None:
            return of_metrics(client)
        return of_counting_server(self.process, self.folder / "counts")

    @asynccontextmanager
    async def client(self) -> AsyncIterator[CountedClient]:
        """Return a client that is closed at the end."""
        async with await connect(self.kubeconfig, user_agent=AGENT, field_manager=AGENT) as client:
            yield CountedClient(client)


def default_server() -> str:
    """`real` where `$KUBEBUILDER_ASSETS` names the programs, else `embedded`."""
    return EMBEDDED if assets() is None else REAL


@contextmanager
def serving(kind: str, folder: Path) -> Iterator[Server]:
    """Run a server until the end of the context.

    Args:
        kind: `embedded`, `real`, or the path of a kubeconfig.
        folder: for files of the server; empty.
    """
    if kind == EMBEDDED:
        with _embedded(folder) as server:
            yield server
    elif kind == REAL:
        programs = assets()
        if programs is None:
            raise SystemExit("$KUBEBUILDER_ASSETS has to name a folder with etcd, kube-apiserver")
        with (
            tempfile.TemporaryDirectory() as data,
            running(programs, Path(data), REAL_FLAGS) as real,
        ):
            path = folder / "kubeconfig"
            path.write_text(_kubeconfig(real))
            yield Server(path, folder, etcd=real.etcd)
    else:
        yield Server(Path(kind).resolve(), folder, fresh=False)


@contextmanager
def _embedded(folder: Path) -> Iterator[Server]:
    script = Path(__file__).parents[1] / "counting_server.py"
    kubeconfig = folder / "kubeconfig"
    args = [sys.executable, str(script), str(kubeconfig), str(folder / "counts")]
    with (folder / "apiserver.log").open("wb") as log:
        process = subprocess.Popen(args, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not kubeconfig.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the embedded server does not start: see {folder}")
            time.sleep(0.02)
        yield Server(kubeconfig, folder, process)
    finally:
        process.terminate()
        process.wait(30)


def _kubeconfig(server: RealServer) -> str:
    ca = base64.b64encode(server.ca).decode()
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "real",
            "clusters": [
                {
                    "name": "real",
                    "cluster": {"server": server.url, "certificate-authority-data": ca},
                }
            ],
            "users": [{"name": "real", "user": {"token": server.token}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "real"}}],
        }
    )


async def install_definitions(client: CountedClient, folder: Path | None) -> None:
    """Create the CRDs and wait until they are served.

    Args:
        client: makes the calls.
        folder: YAML files with CRDs; None: those of kueuelib.
    """
    crds = all_crds() if folder is None else _definitions(folder)
    for crd in crds:
        try:
            await client.client.create(CRDS, crd)
        except AlreadyExists:
            continue
    async with asyncio.timeout(START_SECONDS):
        for crd in crds:
            key = ObjectKey("", crd["metadata"]["name"])
            while not is_true(await client.client.get(CRDS, key), "Established"):
                await asyncio.sleep(0.1)


def _definitions(folder: Path) -> list[Obj]:
    return [
        obj
        for path in sorted(folder.glob("*.yaml"))
        for obj in yaml.safe_load_all(path.read_text())
        if obj and obj.get("kind") == "CustomResourceDefinition"
    ]
