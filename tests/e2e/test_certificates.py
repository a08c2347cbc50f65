"""Certificates from elsewhere, and the versions of TLS that the servers accept."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rest import JOBS, Obj, Rest, eventually, job, queues
from warm import Processes

from kueuelib.runtime.certificates import Certificates, host_names, renewed
from kueuelib.runtime.webhook.trust import with_bundle
from kueuelib.testing.processes import LocalCluster, free_port

HOOKS = "/apis/admissionregistration.k8s.io/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMES = host_names(["127.0.0.1"])


class Elsewhere(LocalCluster):
    """A manager with certificates that somebody else makes."""

    made: Certificates
    visibility_port: int

    def write(self, made: Certificates) -> None:
        folder = self.processes.folder / "certs"
        folder.mkdir(exist_ok=True)
        (folder / "tls.key").write_bytes(made.tls_key)
        (folder / "tls.crt").write_bytes(made.tls_cert)
        self.made = made

    def trust(self) -> None:
        """Tells the API server the authority, as cert-manager does."""
        with Rest(self.kubeconfig) as rest:
            for path in (
                f"{HOOKS}/mutatingwebhookconfigurations",
                f"{HOOKS}/validatingwebhookconfigurations",
                CRDS,
            ):
                for obj in rest.items(path):
                    name = f"{path}/{obj['metadata']['name']}"
                    rest.merge(name, with_bundle(obj, self.made.ca_cert))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Elsewhere]:
    with Processes(tmp_path) as processes:
        port = free_port()
        found = Elsewhere(
            processes,
            version="v1beta2",
            webhook=f"certDir: {tmp_path / 'certs'}",
            settings="internalCertManagement: {enable: false}\n"
            "tls: {minVersion: VersionTLS13}\n"
            f"visibilityServer: {{bindAddress: 127.0.0.1, bindPort: {port}}}\n",
        )
        found.visibility_port = port
        found.write(renewed(None, NAMES, time.time()))
        found.start_server()
        found.install()
        found.trust()
        found.start_manager()
        found.wait_for_manager()
        yield found


def serial(port: int, made: Certificates, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> str:
    """The serial number of what a server shows to a client that knows the authority."""
    context = ssl.create_default_context(cadata=made.ca_cert.decode())
    context.maximum_version = newest
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as link,
    ):
        shown: Obj = link.getpeercert() or {}
        return str(shown["serialNumber"])


def test_files_are_served_and_followed_and_old_versions_are_refused(
    cluster: Elsewhere, rest: Rest
) -> None:
    queues(rest, cpu=1)
    assert rest.create(JOBS, job("before", seconds=0.1))["spec"]["suspend"] is True
    ports = (cluster.webhook_port, cluster.visibility_port)
    before = [serial(port, cluster.made) for port in ports]
    assert before[0] == before[1]
    for port in ports:
        with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION|UNEXPECTED_EOF"):
            serial(port, cluster.made, ssl.TLSVersion.TLSv1_2)

    cluster.write(renewed(cluster.made, NAMES | host_names(["more"]), time.time()))
    for port, old in zip(ports, before, strict=True):
        eventually(lambda port=port, old=old: serial(port, cluster.made) != old)
    assert rest.create(JOBS, job("after", seconds=0.1))["spec"]["suspend"] is True
    eventually(lambda: rest.get(f"{JOBS}/after")["status"].get("succeeded") == 1)
