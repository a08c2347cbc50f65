"""A server with a simulated cluster, and `kueuelib node` beside it, as a user without rights."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp
import pytest
import yaml
from rest import PODS, Obj, Rest, eventually
from unprivileged import ANOTHER_USER, dropped
from warm import Processes

import kueuelib
from kueuelib.testing.processes import READY_SECONDS


class LocalNode:
    """`kueuelib node`, its folder, and pods on it."""

    def __init__(
        self,
        folder: Path,
        kubeconfig: Path,
        rest: Rest,
        *options: str,
        before: tuple[str, ...] | None = None,
    ) -> None:
        self.folder = folder
        self._before = dropped() if before is None else before
        self.rest = rest
        self.name = "local"
        self.kubeconfig = kubeconfig
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return self.folder.with_name("node.log").read_text()

    def start(self, *options: str) -> None:
        before = len(self.log) if self.folder.with_name("node.log").exists() else 0
        sources = Path(kueuelib.__file__).parents[1]
        images = [f"py={sys.prefix}:{sources}", "sh=/usr"]
        args = [*self._options, *options, *(word for one in images for word in ("--image", one))]
        with self.folder.with_name("node.log").open("ab") as file:
            self._process = subprocess.Popen(
                [
                    *(*self._before, sys.executable, "-m", "kueuelib", "node"),
                    *("--kubeconfig", str(self.kubeconfig), "--folder", str(self.folder), *args),
                ],
                stdout=file,
                stderr=file,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "NOT_INHERITED": "1"},
            )

        def ready() -> bool:
            assert self._process is not None
            if self._process.poll() is not None:
                pytest.fail(self.log)
            return "is ready" in self.log[before:]

        eventually(ready, READY_SECONDS)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> float:
        """Stops it as a user does; returns how long that took, in seconds."""
        begun = time.monotonic()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            assert self._process.wait(60) == 0, self.log
        return time.monotonic() - begun

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    # ---- pods

    def run(self, name: str, script: str = "", policy: str = "Never", **fields: Any) -> Obj:
        """Creates a pod on the node, with one container for the script unless some are given."""
        container = {"name": "main", "image": "sh", "command": ["/bin/sh", "-c", script]}
        spec = {"restartPolicy": policy, "nodeName": self.name, "containers": [container]}
        spec |= {"terminationGracePeriodSeconds": 2}
        container |= fields.pop("container", {})
        obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec | fields}
        return self.rest.create(PODS, obj)

    def pod(self, name: str) -> Obj:
        return self.rest.get(f"{PODS}/{name}")

    def reaches(self, name: str, phase: str, seconds: float = 60) -> Obj:
        """The pod, once it has the phase."""

        def reached() -> Obj:
            pod = self.pod(name)
            assert pod["status"]["phase"] == phase, pod["status"]
            return pod

        return eventually(reached, seconds)

    def state(self, name: str, container: str = "main") -> Obj:
        """The status of a container."""
        status = self.pod(name)["status"]
        every = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
        return next(each for each in every if each["name"] == container)

    def text(self, name: str, container: str = "main", **options: str) -> str:
        """What a container has written, through the API server and the kubelet."""
        query = urlencode({"container": container, **options})
        return self.rest.text(f"{PODS}/{name}/log?{query}").rstrip("\n")

    async def exec(self, name: str, *command: str) -> tuple[str, str]:
        """Runs a command in the container of a pod; returns its output and what its end says."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        pem = base64.b64decode(cluster["certificate-authority-data"]).decode()
        words = [("command", each) for each in command]
        query = urlencode([*words, ("stdout", "1"), ("stderr", "1")])
        texts = {1: "", 2: "", 3: ""}
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(
                f"{cluster['server']}{PODS}/{name}/exec?{query}",
                protocols=("v5.channel.k8s.io",),
                ssl=ssl.create_default_context(cadata=pem),
                headers={"Authorization": f"Bearer {user['token']}"},
            ) as socket,
        ):
            async for message in socket:
                texts[message.data[0]] = texts.get(message.data[0], "") + message.data[1:].decode()
        return texts[1] + texts[2], texts[3]

    def events(self, name: str) -> str:
        """Reasons and messages about a pod."""
        found = self.rest.items("/api/v1/namespaces/default/events")
        about = [each for each in found if each["involvedObject"]["name"] == name]
        return "\n".join(f"{each['reason']}: {each['message']}" for each in about)

    def says(self, name: str, text: str) -> None:
        """Waits for an Event."""

        def said() -> bool:
            assert text in (events := self.events(name)), events
            return True

        eventually(said)

    def processes(self, mark: str = "") -> list[str]:
        """The processes of its pods that run now: what `ps` shows of them."""
        wanted = f"KUEUELIB_CONTAINER={self.folder}/{mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and wanted in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().decode().replace("\0", " "))
            except OSError:
                continue
        return found


@contextmanager
def local_node(*options: str, before: tuple[str, ...] | None = None) -> Iterator[LocalNode]:
    """A server and a node, both up; `before` its command is what drops the rights of root."""
    root = Path(tempfile.mkdtemp(prefix="kueuelib-test-"))
    try:
        with Processes(root) as processes:
            kubeconfig = root / "kubeconfig"
            args = ["--port", "0", "--kubeconfig", str(kubeconfig), "--simulate"]
            processes.start("apiserver", "apiserver", *args)
            processes.wait_for_file(kubeconfig, "apiserver", READY_SECONDS)
            if before:
                for each in (root, kubeconfig):
                    os.chown(each, ANOTHER_USER, ANOTHER_USER)
            with (
                Rest(kubeconfig) as rest,
                LocalNode(root / "node", kubeconfig, rest, *options, before=before) as node,
            ):
                yield node
    finally:
        shutil.rmtree(root, ignore_errors=True)
