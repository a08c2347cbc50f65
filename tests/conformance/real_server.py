"""etcd and kube-apiserver as processes, where `$KUBEBUILDER_ASSETS` names a folder with both."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import secrets
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
from cryptography.hazmat.primitives import serialization

from kueuelib.embedded import credentials as tls
from kueuelib.testing.processes import free_port

START_SECONDS = 120.0
GONE_SECONDS = 20.0
HEARD_SECONDS = 0.15
"""After this time the server has heard of a change of what decides about requests."""
PROGRAMS = ("etcd", "kube-apiserver")
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
COLLECTIONS = {
    "/apis/admissionregistration.k8s.io/v1": (
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ),
    "/apis/apiextensions.k8s.io/v1": ("customresourcedefinitions",),
    "/api/v1": (
        *("configmaps", "events", "limitranges", "pods", "podtemplates", "resourcequotas"),
        *(
            "secrets",
            "services",
            "serviceaccounts",
            "nodes",
            "namespaces",
            "replicationcontrollers",
        ),
    ),
    "/apis/apps/v1": ("deployments", "replicasets", "statefulsets"),
    "/apis/batch/v1": ("cronjobs", "jobs"),
    "/apis/coordination.k8s.io/v1": ("leases",),
    "/apis/node.k8s.io/v1": ("runtimeclasses",),
    "/apis/rbac.authorization.k8s.io/v1": (
        *("rolebindings", "roles", "clusterrolebindings", "clusterroles"),
    ),
    "/apis/scheduling.k8s.io/v1": ("priorityclasses",),
}
HEARD_OF = (
    *("webhookconfigurations", "limitranges", "namespaces", "priorityclasses", "resourcequotas"),
    *("rolebindings", "roles", "runtimeclasses", "serviceaccounts", "clusterroles"),
)
"""What the server learns of changes of a moment after they are acknowledged."""
OWN_PREFIXES = ("system-", "system:", "kube-", "apiserver-")
OWN_LATE = ("/api/v1/namespaces/default", "/api/v1/namespaces/default/services/kubernetes")
"""What the server makes for itself a while after it is ready; remembered too, or it is removed."""
_AUTHENTICATION = {
    "apiVersion": "apiserver.config.k8s.io/v1beta1",
    "kind": "AuthenticationConfiguration",
    "anonymous": {
        "enabled": True,
        "conditions": [{"path": path} for path in ("/healthz", "/livez", "/readyz", "/version")],
    },
}
USERS = (("bob", "devs"),)
PROXY = "front-proxy-client"
"""The name by which aggregated APIs know kube-apiserver."""
_AT_ONCE = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}


def assets() -> Path | None:
    """The folder with the programs, None when there is none."""
    named = os.environ.get("KUBEBUILDER_ASSETS", "")
    folder = Path(named)
    return folder if named and all((folder / each).is_file() for each in PROGRAMS) else None


@attrs.define
class RealServer:
    """What the tests need to know of a server; the same names as those of `ApiServer`."""

    port: int
    token: str
    ca: bytes
    users: dict[tuple[str, ...], str]
    """Tokens, by the names of a user and his groups."""
    own: frozenset[str] = frozenset()
    """Paths of what the server has made for itself."""
    connection: http.client.HTTPSConnection | None = None
    etcd: str = ""
    """Where its store answers."""

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def add_user(self, name: str, *groups: str) -> str:
        """The token of one of the users that the server was started with."""
        return self.users[name, *groups]

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and body of one answer.

        Raises:
            OSError: nobody answers.
            http.client.HTTPException: what is answered is not HTTP.
        """
        if self.connection is None:
            context = ssl.create_default_context(cadata=self.ca.decode())
            self.connection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, context=context, timeout=30
            )
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        data = None if body is None else json.dumps(body).encode()
        try:
            self.connection.request(method, path, data, headers)
            answer = self.connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            self.connection.close()
            self.connection = None
            raise
        return answer.status, json.loads(text) if text.startswith(b"{") else text.decode()

    def close(self) -> None:
        """Closes the connection."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def remember(self) -> None:
        """Takes what is there now for the server's own."""
        self.own = frozenset(path for path, _ in self._objects())

    def clean(self) -> None:
        """Removes what a test has left, and waits until it is gone."""
        deadline = time.monotonic() + GONE_SECONDS
        while left := [each for each in self._objects() if each[0] not in self.own]:
            for path, obj in left:
                self._remove(path, obj)
            if time.monotonic() > deadline:
                raise AssertionError(f"these do not go: {[path for path, _ in left]}")

    def _objects(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for root, plurals in COLLECTIONS.items():
            for plural in plurals:
                status, body = self.call("GET", f"{root}/{plural}")
                assert status == 200, body
                for obj in body["items"]:
                    meta = obj["metadata"]
                    if meta["name"].startswith(OWN_PREFIXES):
                        continue
                    where = f"namespaces/{meta['namespace']}/" if "namespace" in meta else ""
                    yield f"{root}/{where}{plural}/{meta['name']}", obj

    def _remove(self, path: str, obj: dict[str, Any]) -> None:
        bare = {"metadata": {"finalizers": None}}
        if path.startswith(CRDS):
            self._free(obj)
        elif obj["metadata"].get("finalizers"):
            self.call("PATCH", path, bare)
        status, body = self.call("DELETE", path, _AT_ONCE)
        assert status in (200, 202, 404, 409), body
        if path.startswith("/api/v1/namespaces/") and path.count("/") == 4:
            self.call("PUT", f"{path}/finalize", {**obj, "spec": {}})

    def _free(self, definition: dict[str, Any]) -> None:
        """Nothing holds the objects of a definition that is about to go."""
        spec = definition["spec"]
        for version in spec["versions"]:
            root = f"/apis/{spec['group']}/{version['name']}"
            status, body = self.call("GET", f"{root}/{spec['names']['plural']}")
            for obj in body["items"] if status == 200 else ():
                meta = obj["metadata"]
                where = f"namespaces/{meta['namespace']}/" if "namespace" in meta else ""
                path = f"{root}/{where}{spec['names']['plural']}/{meta['name']}"
                self.call("PATCH", path, {"metadata": {"finalizers": None}})

    async def settle(self, path: str) -> None:
        """Waits until a change that was acknowledged decides about requests.

        The real server hears of changes of its own configuration by watches, as every client.

        Args:
            path: what was written.
        """
        if any(each in path for each in HEARD_OF):
            await asyncio.sleep(HEARD_SECONDS)
        elif path.startswith(CRDS):
            await self._settle_definitions()

    async def _settle_definitions(self) -> None:
        deadline = time.monotonic() + GONE_SECONDS
        await asyncio.sleep(HEARD_SECONDS)
        while not all(map(self._is_served, self.call("GET", CRDS)[1]["items"])):
            assert time.monotonic() < deadline, "a definition is not served"
            await asyncio.sleep(0.05)

    def _is_served(self, definition: dict[str, Any]) -> bool:
        spec, meta = definition["spec"], definition["metadata"]
        conditions = definition.get("status", {}).get("conditions") or ()
        states = {each["type"]: each["status"] for each in conditions}
        if "deletionTimestamp" in meta or states.get("NamesAccepted") == "False":
            return True
        if states.get("Established") != "True":
            return False
        plural = spec["names"]["plural"]
        for version in spec["versions"]:
            root = f"/apis/{spec['group']}/{version['name']}"
            status, body = self.call("GET", root)
            names = [each["name"] for each in body["resources"]] if status == 200 else []
            if (plural in names) is not version["served"]:
                return False
            if version["served"] and self.call("GET", f"{root}/{plural}?limit=1")[0] == 404:
                return False
        return True


@contextmanager
def running(folder: Path, work: Path, flags: Sequence[str] = ()) -> Iterator[RealServer]:
    """Both programs, until the end of the context.

    Args:
        folder: where they are.
        work: an empty folder for their files.
        flags: further ones of kube-apiserver.
    """
    etcd, peer, port = free_port(), free_port(), free_port()
    credentials = tls.credentials(
        time.time(), ("127.0.0.1", "localhost"), "admin", "system:masters"
    )
    files = {
        "ca.pem": credentials.ca,
        "server.pem": credentials.server_certificate,
        "server.key": credentials.server_key,
        "kubelets.pem": credentials.kubelet_certificate,
        "kubelets.key": credentials.kubelet_key,
        "accounts.key": _openssl(credentials.server_key),
    }
    users = {("kubernetes-admin", "system:masters"): secrets.token_urlsafe(32)}
    users |= {each: secrets.token_urlsafe(32) for each in USERS}
    server = RealServer(port, next(iter(users.values())), credentials.ca, users)
    lines = [
        f'{token},{name},{number},"{",".join(groups)}"'
        for number, ((name, *groups), token) in enumerate(users.items())
    ]
    files["authentication.yaml"] = json.dumps(_AUTHENTICATION).encode()
    files["tokens.csv"] = "\n".join(lines).encode()
    for name, data in files.items():
        (work / name).write_bytes(data)
    client = server.etcd = f"http://127.0.0.1:{etcd}"
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
            f"--authentication-config={work / 'authentication.yaml'}",
            *_front_proxy(work),
            f"--kubelet-client-certificate={work / 'kubelets.pem'}",
            f"--kubelet-client-key={work / 'kubelets.key'}",
            "--kubelet-preferred-address-types=InternalIP,Hostname",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={work / 'accounts.key'}",
            f"--service-account-signing-key-file={work / 'accounts.key'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            "--disable-admission-plugins=ServiceAccount",
            *flags,
        ],
    ]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            log = (work / f"{Path(command[0]).name}.log").open("wb")
            with log:
                processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        _wait(server, processes, work)
        server.remember()
        yield server
    finally:
        server.close()
        for process in reversed(processes):  # nothing is kept, and a soft end waits for watches
            process.kill()
            process.wait()


def _front_proxy(work: Path) -> list[str]:
    """Flags of kube-apiserver that give it a certificate by which servers behind it know it."""
    authority = tls.Authority(time.time(), "front-proxy-ca")
    certificate, key = authority.issue(PROXY)
    files = {"proxy-ca.pem": authority.pem, "proxy.pem": certificate, "proxy.key": key}
    for name, content in files.items():
        (work / name).write_bytes(content)
    return [
        f"--requestheader-client-ca-file={work / 'proxy-ca.pem'}",
        f"--requestheader-allowed-names={PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={work / 'proxy.pem'}",
        f"--proxy-client-key-file={work / 'proxy.key'}",
    ]


def _openssl(key: bytes) -> bytes:
    """The key in the older of the two formats, the only one that is read for accounts."""
    loaded = serialization.load_pem_private_key(key, None)
    form = serialization.PrivateFormat.TraditionalOpenSSL
    plain = serialization.NoEncryption()
    return loaded.private_bytes(serialization.Encoding.PEM, form, plain)


def _wait(server: RealServer, processes: list[subprocess.Popen[bytes]], work: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            status, said = server.call("GET", "/readyz?verbose")
        except (OSError, http.client.HTTPException) as error:
            status, said = 0, str(error)
        if status == 200 and all(server.call("GET", path)[0] == 200 for path in OWN_LATE):
            return
        ended = any(process.poll() is not None for process in processes)
        if ended or time.monotonic() > deadline:
            logs = [(work / f"{name}.log").read_text()[-3000:] for name in PROGRAMS]
            raise AssertionError("\n".join(["the real server does not start", said, *logs]))
        time.sleep(0.2)
