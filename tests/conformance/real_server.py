"""etcd and kube-apiserver as processes, where `$KUBEBUILDER_ASSETS` names a folder with both."""

from __future__ import annotations

import json
import os
import secrets
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from kueuelib.embedded import tls

START_SECONDS = 60.0
PROGRAMS = ("etcd", "kube-apiserver")
NAMESPACED = {
    "/api/v1": (
        *("configmaps", "events", "limitranges", "pods", "podtemplates", "resourcequotas"),
        *("secrets", "services", "serviceaccounts"),
    ),
    "/apis/apps/v1": ("deployments",),
    "/apis/batch/v1": ("jobs",),
    "/apis/coordination.k8s.io/v1": ("leases",),
    "/apis/rbac.authorization.k8s.io/v1": ("rolebindings", "roles"),
}
CLUSTER = {
    "/apis/apiextensions.k8s.io/v1": ("customresourcedefinitions",),
    "/apis/admissionregistration.k8s.io/v1": (
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ),
    "/api/v1": ("namespaces", "nodes"),
    "/apis/node.k8s.io/v1": ("runtimeclasses",),
    "/apis/scheduling.k8s.io/v1": ("priorityclasses",),
}
_AT_ONCE = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
KEPT = frozenset(
    ("default", "kubernetes", "kube-root-ca.crt", "kube-system", "kube-public", "kube-node-lease")
)


def assets() -> Path | None:
    """The folder with the programs, None when there is none."""
    named = os.environ.get("KUBEBUILDER_ASSETS", "")
    folder = Path(named)
    return folder if named and all((folder / each).is_file() for each in PROGRAMS) else None


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@attrs.define
class RealServer:
    """What the tests need to know of a server; the same names as those of `ApiServer`."""

    port: int
    token: str
    ca: bytes

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        context = ssl.create_default_context(cadata=self.ca.decode())
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def clean(self) -> None:
        """Removes what a test has left."""
        for namespace in self._names("/api/v1", "namespaces"):
            for root, plurals in NAMESPACED.items():
                for plural in plurals:
                    self._empty(f"{root}/namespaces/{namespace}/{plural}")
        for root, plurals in CLUSTER.items():
            for plural in plurals:
                self._empty(f"{root}/{plural}")

    def _names(self, root: str, plural: str) -> list[str]:
        items = self.call("GET", f"{root}/{plural}")["items"]
        return [each["metadata"]["name"] for each in items]

    def _empty(self, collection: str) -> None:
        for obj in self.call("GET", collection)["items"]:
            name = obj["metadata"]["name"]
            if name in KEPT or name.startswith("system-"):
                continue
            self._try("DELETE", f"{collection}/{name}", _AT_ONCE)
            if obj["metadata"].get("finalizers") and "customresource" not in collection:
                bare = {**obj, "metadata": {**obj["metadata"], "finalizers": []}}
                bare["metadata"].pop("resourceVersion", None)
                self._try("PUT", f"{collection}/{name}", bare)
            if collection.endswith("/namespaces"):
                self._try("PUT", f"{collection}/{name}/finalize", {**obj, "spec": {}})

    def _try(self, method: str, path: str, body: Any) -> None:
        try:
            self.call(method, path, body)
        except urllib.error.HTTPError as error:
            if error.code not in (404, 409):
                raise


@contextmanager
def running(folder: Path, work: Path) -> Iterator[RealServer]:
    """Both programs, until the end of the context.

    Args:
        folder: where they are.
        work: an empty folder for their files.
    """
    etcd, peer, port = free_port(), free_port(), free_port()
    found = tls.credentials(time.time(), ("127.0.0.1", "localhost"), "admin", "system:masters")
    files = {
        "ca.pem": found.ca,
        "server.pem": found.server_certificate,
        "server.key": found.server_key,
    }
    server = RealServer(port, secrets.token_urlsafe(32), found.ca)
    files["tokens.csv"] = f'{server.token},kubernetes-admin,1,"system:masters"\n'.encode()
    for name, data in files.items():
        (work / name).write_bytes(data)
    client = f"http://127.0.0.1:{etcd}"
    peers = f"http://127.0.0.1:{peer}"
    commands = [
        [
            str(folder / "etcd"),
            f"--data-dir={work / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync=true",
        ],
        [
            str(folder / "kube-apiserver"),
            f"--etcd-servers={client}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={work / 'server.pem'}",
            f"--tls-private-key-file={work / 'server.key'}",
            f"--client-ca-file={work / 'ca.pem'}",
            f"--token-auth-file={work / 'tokens.csv'}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={work / 'server.key'}",
            f"--service-account-signing-key-file={work / 'server.key'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
        ],
    ]
    processes = []
    try:
        for command in commands:
            log = (work / f"{Path(command[0]).name}.log").open("wb")
            with log:
                processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        _wait(server, work)
        yield server
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(30)


def _wait(server: RealServer, work: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            server.call("GET", "/api/v1/namespaces/default")
        except (OSError, ValueError) as error:
            if time.monotonic() > deadline:
                text = (work / "kube-apiserver.log").read_text()[-3000:]
                raise AssertionError(f"the real server does not start: {text}") from error
            time.sleep(0.2)
        else:
            return
