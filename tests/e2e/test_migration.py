"""From the Go manager to ours and back, with everything in flight, on a real control plane.

`$KUBEBUILDER_ASSETS` also has the Go manager's binary, and the manifests of its release.
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from place import QUEUE, Place, name_of, phase, uid_of
from real_plane import Plane, assets, lacking, real_plane
from rest import KUEUE, Obj, Rest, eventually, is_true
from warm import Processes, kueuelib

from kueuelib.controllers.manifests import WEBHOOK_SERVICE
from kueuelib.runtime.webhook.certs import Certificates
from kueuelib.runtime.webhook.trust import to_data
from kueuelib.testing.processes import free_port, stop_process

SHARE = float(os.environ.get("MIGRATION_SHARE", "1"))
RUNNING, PENDING, GROUPS, CHECKED = (int(each * SHARE) for each in (200, 200, 20, 50))
GO, MANIFESTS = "kueue-manager", "kueue-manifests.yaml"
NAMESPACE = "kueue-system"
CA_NAME = "kueue-ca"
STILL = 15.0
"""Seconds in which a manager that wants to change something would do so."""
HOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
CONFIG: dict[str, Any] = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "namespace": NAMESPACE,
    "metrics": {"bindAddress": "0"},
    "leaderElection": {"leaderElect": False},
    "integrations": {"frameworks": ["batch/job", "pod"]},
}


def path_of(obj: Obj) -> str:
    """Where an object of the manifests lives."""
    version, meta = obj["apiVersion"], obj["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    where = f"namespaces/{meta['namespace']}/" if "namespace" in meta else ""
    return f"{root}/{where}{obj['kind'].lower()}s/{meta['name']}"


class Managers:
    """The two managers, which serve their webhooks at the same address, one at a time."""

    def __init__(self, plane: Plane, rest: Rest, folder: Path) -> None:
        self._plane = plane
        self.rest = rest
        self._folder = folder
        self._port = free_port()
        self._found = go_certificates()
        self._certificates = folder / "certificates"  # a kubelet would mount the Secret here
        self._certificates.mkdir()
        (self._certificates / "tls.crt").write_bytes(self._found.tls_cert)
        (self._certificates / "tls.key").write_bytes(self._found.tls_key)

    # ---- theirs

    def install_go(self) -> None:
        """What `kubectl apply --server-side --force-conflicts` and, for webhooks, `replace` do."""
        folder = assets()
        assert folder is not None
        for obj in yaml.safe_load_all((folder / MANIFESTS).read_text()):
            if obj["kind"] in ("Deployment", "APIService"):  # it runs elsewhere
                continue
            if obj["kind"] == "Secret":
                obj["data"] = to_data(self._found)
            for config in _client_configs(obj):
                service = config.pop("service")
                config["url"] = f"https://127.0.0.1:{self._port}{service['path']}"
                config["caBundle"] = base64.b64encode(self._found.ca_cert).decode()
            self.rest.apply(path_of(obj), obj, "kubectl")
            if obj["kind"] in HOOKS:
                meta = self.rest.get(path_of(obj))["metadata"]
                version = {"resourceVersion": meta["resourceVersion"]}
                fresh = {**obj, "metadata": {**obj["metadata"], **version}}
                self.rest.replace(path_of(obj), fresh)

    @contextlib.contextmanager
    def go(self) -> Iterator[None]:
        """The Go manager."""
        folder, probes = assets(), free_port()
        assert folder is not None
        content = {
            **CONFIG,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{probes}"},
            "webhook": {
                "host": "127.0.0.1",
                "port": self._port,
                "certDir": str(self._certificates),
            },
        }
        config = self._folder / "go.yaml"
        config.write_text(yaml.safe_dump(content))
        command = [
            str(folder / GO),
            f"--config={config}",
            "--feature-gates=VisibilityOnDemand=false",
        ]
        env = {**os.environ, "KUBECONFIG": str(self._plane.kubeconfig)}
        with (self._folder / "go.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
        try:
            eventually(lambda: self._is_ready(process, f"http://127.0.0.1:{probes}/readyz"))
            yield
            assert process.poll() is None, (self._folder / "go.log").read_text()[-3000:]
        finally:
            stop_process(process)

    def _is_ready(self, process: subprocess.Popen[bytes], url: str) -> bool:
        if process.poll() is not None:
            pytest.fail((self._folder / "go.log").read_text()[-3000:])
        return httpx.get(url, trust_env=False).status_code == 200

    # ---- ours

    def install_ours(self) -> None:
        url = f"https://127.0.0.1:{self._port}"
        done = kueuelib("install", "--kubeconfig", self._plane.kubeconfig, "--webhook-url", url)
        assert done.returncode == 0, done.stderr

    @contextlib.contextmanager
    def ours(self) -> Iterator[None]:
        """Our manager."""
        probes = free_port()
        content = {
            **CONFIG,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{probes}"},
            "webhook": {"host": "127.0.0.1", "port": self._port},
        }
        config = self._folder / "ours.yaml"
        config.write_text(yaml.safe_dump(content))
        with Processes(self._folder) as processes:
            args = ["--kubeconfig", str(self._plane.kubeconfig), "--config", str(config)]
            processes.start("manager", "manager", *args)
            processes.wait_for_url(f"http://127.0.0.1:{probes}/readyz", "manager")
            yield
            processes.check()


def _client_configs(obj: Obj) -> list[Obj]:
    found = [hook["clientConfig"] for hook in obj.get("webhooks") or ()]
    webhook = (obj.get("spec", {}).get("conversion") or {}).get("webhook")
    return [*found, webhook["clientConfig"]] if webhook else found


def go_certificates() -> Certificates:
    """Certificates in the form of the Go manager, which keeps them if they are good for 90 days.

    They also name an address, since this manager has no Service.
    """

    def key() -> tuple[rsa.RSAPrivateKey, bytes]:
        made = rsa.generate_private_key(65537, 2048)
        form = serialization.PrivateFormat.TraditionalOpenSSL
        plain = serialization.NoEncryption()
        return made, made.private_bytes(serialization.Encoding.PEM, form, plain)

    now = datetime.now(UTC)
    names = [x509.DNSName(f"{WEBHOOK_SERVICE}.{NAMESPACE}.svc")]
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    ca_key, ca_pem = key()
    own_key, own_pem = key()
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, CA_NAME)])

    def signed(public: rsa.RSAPublicKey, subject: x509.Name, *, ca: bool, names: list) -> bytes:
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=365))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0].value)])
    return Certificates(
        ca_cert=signed(ca_key.public_key(), issuer, ca=True, names=[x509.DNSName(CA_NAME)]),
        ca_key=ca_pem,
        tls_cert=signed(own_key.public_key(), subject, ca=False, names=[*names, address]),
        tls_key=own_pem,
    )


# ---- what is in flight


class Load:
    """Jobs that run and wait, groups of which a part has ended, Workloads in a check."""

    def __init__(self, rest: Rest) -> None:
        self.place = Place(rest)
        self.rest = rest
        self.place.queue(RUNNING, "main")
        self.place.queue(3 * GROUPS, "groups")
        self.place.check("gate")
        self.place.queue(CHECKED, "slow", checks=("gate",))

    def create(self) -> None:
        place = self.place
        with ThreadPoolExecutor(8) as pool:
            run = [pool.submit(place.job, f"run-{one}", "main") for one in range(RUNNING)]
            [each.result() for each in run]
            eventually(lambda: self.count("Admitted", "job-run-") == RUNNING)
            more = [pool.submit(place.job, f"wait-{one}", "main") for one in range(PENDING)]
            more += [pool.submit(place.job, f"slow-{one}", "slow") for one in range(CHECKED)]
            more += [pool.submit(self._group, f"g{one}") for one in range(GROUPS)]
            [each.result() for each in more]
        eventually(lambda: self.count("QuotaReserved", "job-slow-") == CHECKED)
        eventually(lambda: self.count("Admitted", "g") == GROUPS)
        wanted = RUNNING + 3 * GROUPS
        eventually(lambda: self._phases().count("Running") == wanted)
        for one in range(GROUPS):
            self.finish(f"g{one}-0")
        eventually(lambda: self._phases().count("Succeeded") == GROUPS)
        eventually(lambda: len(self.rest.items(place.workloads)) == _WORKLOADS)

    def _group(self, name: str) -> None:
        self.place.group(name, 3, queue="groups")

    def _phases(self) -> list[str]:
        return [phase(pod) for pod in self.rest.items(self.place.pods)]

    def finish(self, pod: str) -> None:
        found = self.rest.get(f"{self.place.pods}/{pod}")
        self.place.finish({"kind": "Pod", **found})

    def count(self, type_: str, prefix: str) -> int:
        return sum(
            name_of(wl).startswith(prefix) and is_true(wl, type_) and not is_true(wl, "Finished")
            for wl in self.rest.items(self.place.workloads)
        )

    def state(self) -> Obj:
        """What a change of managers must leave as it is."""
        place = self.place
        workloads = self.rest.items(place.workloads)
        queues = self.rest.items(f"{KUEUE}/clusterqueues")
        return {
            "pods": {
                name_of(pod): (uid_of(pod), phase(pod), pod["metadata"].get("deletionTimestamp"))
                for pod in self.rest.items(place.pods)
            },
            "jobs": {
                name_of(job): (uid_of(job), job["spec"]["suspend"], job["status"].get("startTime"))
                for job in self.rest.items(place.jobs)
            },
            "workloads": {
                name_of(wl): (
                    uid_of(wl),
                    wl.get("status", {}).get("admission"),
                    [is_true(wl, one) for one in ("QuotaReserved", "Admitted", "Evicted")],
                    [one["state"] for one in wl.get("status", {}).get("admissionChecks") or ()],
                    wl["status"].get("requeueState"),
                )
                for wl in workloads
            },
            "usage": {
                name_of(queue): [
                    queue["status"].get(each)
                    for each in (
                        *("flavorsUsage", "flavorsReservation", "pendingWorkloads"),
                        *("admittedWorkloads", "reservingWorkloads"),
                    )
                ]
                for queue in queues
            },
        }

    def goes_on(self, number: int) -> None:
        """A Job ends and another starts, a group ends, and a check lets a Job run."""
        job = {"kind": "Job", **self.rest.get(f"{self.place.jobs}/run-{number}")}
        before = self.count("Admitted", "job-wait-")
        self.place.finish(job)
        eventually(lambda: is_true(self.place.get(job), "Complete"))
        eventually(lambda: self.count("Admitted", "job-wait-") == before + 1)
        for one in (1, 2):
            self.finish(f"g{number}-{one}")
        pod = {"kind": "Pod", **self.rest.get(f"{self.place.pods}/g{number}-1")}
        self.place.finished(pod)
        slow = {"kind": "Job", **self.rest.get(f"{self.place.jobs}/slow-{number}")}
        self.place.answer(self.place.workload(slow), "gate", "Ready")
        self.place.runs(slow)


_WORKLOADS = RUNNING + PENDING + GROUPS + CHECKED


def assert_nothing_changed(load: Load, before: Obj) -> None:
    """Now, and as long as a manager would need that wants to change something."""
    deadline = time.monotonic() + STILL
    while time.monotonic() < deadline:
        now = load.state()
        for kind in ("pods", "jobs", "workloads"):
            other = {name for name in before[kind] if before[kind][name] != now[kind].get(name)}
            other |= now[kind].keys() - before[kind].keys()
            found = {name: (before[kind].get(name), now[kind].get(name)) for name in other}
            assert not found, f"{kind} are not as they were: {found}"
        time.sleep(1)
    eventually(lambda: load.state()["usage"] == before["usage"], 60)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(bool(lacking(GO, MANIFESTS)), reason=lacking(GO, MANIFESTS))
def test_nothing_restarts_on_the_way_there_and_back(tmp_path: Path) -> None:
    with real_plane(tmp_path) as plane, Rest(plane.kubeconfig) as rest:
        managers = Managers(plane, rest, tmp_path)
        managers.install_go()
        with managers.go():
            load = Load(rest)
            load.create()
            time.sleep(STILL)
            before = load.state()
            found = kueuelib("doctor", "--before-migration", "--kubeconfig", plane.kubeconfig)
            assert found.returncode in (0, 3), found.stdout + found.stderr
            print(found.stdout)
        managers.install_ours()
        with managers.ours():
            assert_nothing_changed(load, before)
            load.goes_on(0)
            refused(load)
            time.sleep(STILL)
            before = load.state()
        managers.install_go()
        with managers.go():
            assert_nothing_changed(load, before)
            load.goes_on(1)
            refused(load)


def refused(load: Load) -> None:
    """The webhooks answer: no Job may change its queue while it runs."""
    job = {"kind": "Job", **load.rest.get(f"{load.place.jobs}/run-5")}
    load.place.refused(
        lambda: load.place.merge(job, {"metadata": {"labels": {QUEUE: "groups"}}}), QUEUE
    )
