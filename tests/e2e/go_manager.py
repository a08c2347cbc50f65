"""The Go manager outside of a cluster: its manifests, and certificates for its webhooks.

`$KUBEBUILDER_ASSETS` also has its binary, and the manifests of its release. Other controllers in Go
can be run in the same way.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from rest import Obj, Rest, eventually

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))

from real_server import assets

from kueuelib.controllers.manifests import WEBHOOK_SERVICE
from kueuelib.runtime.certificates import Certificates
from kueuelib.runtime.webhook.trust import to_data
from kueuelib.testing.processes import stop_process

PROGRAM, MANIFESTS = "kueue-manager", "kueue-manifests.yaml"
NAMESPACE = "kueue-system"
CA_NAME = "kueue-ca"
HOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def manifests(port: int, found: Certificates, file: str = MANIFESTS) -> list[Obj]:
    """The objects of the release.

    Args:
        port: where the manager serves its webhooks.
        found: the certificates that it finds.
        file: the name of their file.
    """
    folder = assets()
    assert folder is not None
    objects = [
        obj
        for obj in yaml.safe_load_all((folder / file).read_text())
        if obj["kind"] not in ("Deployment", "APIService")  # it runs elsewhere
    ]
    for obj in objects:
        if obj["kind"] == "Secret":
            obj["data"] = to_data(found)
        for config in _client_configs(obj):
            service = config.pop("service")
            config["url"] = f"https://127.0.0.1:{port}{service['path']}"
            config["caBundle"] = base64.b64encode(found.ca_cert).decode()
    return objects


def install(rest: Rest, objects: Iterable[Obj]) -> None:
    """What `kubectl apply --server-side --force-conflicts` and, for webhooks, `replace` do."""
    for obj in objects:
        rest.apply(path_of(obj), obj, "kubectl")
        if obj["kind"] in HOOKS:
            meta = rest.get(path_of(obj))["metadata"]
            version = {"resourceVersion": meta["resourceVersion"]}
            fresh = {**obj, "metadata": {**obj["metadata"], **version}}
            rest.replace(path_of(obj), fresh)


def mount(found: Certificates, folder: Path) -> None:
    """Write the files that a kubelet would mount of the Secret."""
    folder.mkdir(exist_ok=True)
    (folder / "tls.crt").write_bytes(found.tls_cert)
    (folder / "tls.key").write_bytes(found.tls_key)


@contextmanager
def started(
    program: str, config: Path, kubeconfig: Path, probes: int, *args: str
) -> Iterator[None]:
    """A program of the folder that runs until the end of the context, once it is ready.

    Args:
        program: its name.
        config: the file of its configuration; its output is written beside it.
        kubeconfig: for its cluster.
        probes: the port where it says that it is ready.
        args: further ones.
    """
    folder, output = assets(), config.with_suffix(".log")
    assert folder is not None
    command = [str(folder / program), f"--config={config}", *args]
    env = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    with output.open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env)

    def is_ready() -> bool:
        if process.poll() is not None:
            pytest.fail(output.read_text()[-3000:])
        return httpx.get(f"http://127.0.0.1:{probes}/readyz", trust_env=False).status_code == 200

    try:
        eventually(is_ready)
        yield
        assert process.poll() is None, output.read_text()[-3000:]
    finally:
        stop_process(process)


def path_of(obj: Obj) -> str:
    """Where an object of the manifests lives."""
    version, meta = obj["apiVersion"], obj["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    where = f"namespaces/{meta['namespace']}/" if "namespace" in meta else ""
    return f"{root}/{where}{obj['kind'].lower()}s/{meta['name']}"


def _client_configs(obj: Obj) -> list[Obj]:
    found = [hook["clientConfig"] for hook in obj.get("webhooks") or ()]
    webhook = (obj.get("spec", {}).get("conversion") or {}).get("webhook")
    return [*found, webhook["clientConfig"]] if webhook else found


def certificates() -> Certificates:
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
        usage = dict.fromkeys(("digital_signature", "key_encipherment"), True)
        usage |= {"key_cert_sign": ca, "crl_sign": False, "content_commitment": False}
        usage |= dict.fromkeys(("data_encipherment", "key_agreement"), False)
        usage |= dict.fromkeys(("encipher_only", "decipher_only"), False)
        authority = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
        by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority)
        own = x509.SubjectKeyIdentifier.from_public_key(public)
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
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(own if ca else by, critical=False)
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
