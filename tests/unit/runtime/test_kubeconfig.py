from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from kueuelib.api.kinds import JOBS
from kueuelib.api.meta import ObjectKey
from kueuelib.errors import ConfigError, TransportError, Unauthorized
from kueuelib.runtime.certificates import host_names, load, renewed, server_context
from kueuelib.runtime.client import Client
from kueuelib.runtime.endpoint import Endpoint, proxy_for
from kueuelib.runtime.kubeconfig import InClusterSource, find_source
from kueuelib.runtime.transport import FORCED_REFRESH_PAUSE, Transport


@pytest.fixture(scope="module")
def pki():
    """An authority with a server certificate for 127.0.0.1, which also serves as a client's."""
    return renewed(None, host_names(["127.0.0.1", "api.example"]), time.time())


def kubeconfig(url: str, cluster: Any = None, user: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "k", "cluster": {"server": url, **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        **more,
    }


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.fixture
def write(tmp_path):
    def write(document: Any, name: str = "config") -> Path:
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        return path

    return write


class Echo:
    """Answers with what it was told about the caller."""

    def __init__(self) -> None:
        self.good_tokens: set[str] | None = None
        self.seen: list[str] = []

    async def __call__(self, request: web.Request) -> web.Response:
        token = request.headers.get("Authorization", "")
        self.seen.append(token)
        if self.good_tokens is not None and token not in self.good_tokens:
            return web.json_response({"kind": "Status", "reason": "Unauthorized"}, status=401)
        peer = request.transport.get_extra_info("peercert")
        headers = {k: v for k, v in request.headers.items() if k.startswith("Impersonate")}
        return web.json_response({"token": token, "client": bool(peer), "headers": headers})


async def ask(source: Any, **more: Any) -> Any:
    async with Client(Transport(source, **more)) as client:
        return await client.get(JOBS, ObjectKey("ns", "a"))


def tls_server(pki: Any, *, client_certs: bool = False) -> ssl.SSLContext:
    context = server_context()
    load(context, pki)
    if client_certs:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=pki.ca_cert.decode())
    return context


async def test_authority_as_data_and_a_token(serve, pki, write):
    url = await serve(Echo(), tls_server(pki))
    path = write(
        kubeconfig(url, {"certificate-authority-data": b64(pki.ca_cert)}, {"token": " t\n"})
    )
    assert (await ask(find_source(path)))["token"] == "Bearer t"


async def test_authority_and_token_as_files_relative_to_the_kubeconfig(serve, pki, write):
    url = await serve(Echo(), tls_server(pki))
    write(pki.ca_cert.decode(), "ca.pem")
    write("from-file\n", "token")
    path = write(kubeconfig(url, {"certificate-authority": "ca.pem"}, {"tokenFile": "token"}))
    assert (await ask(find_source(path)))["token"] == "Bearer from-file"


@pytest.mark.parametrize("as_files", [True, False])
async def test_a_client_certificate_is_shown(serve, pki, write, as_files, tmp_path):
    made = client_certificate(pki)
    url = await serve(Echo(), tls_server(pki, client_certs=True))
    if as_files:
        write(made[0].decode(), "c.pem")
        write(made[1].decode(), "k.pem")
        user = {"client-certificate": "c.pem", "client-key": "k.pem"}
    else:
        user = {"client-certificate-data": b64(made[0]), "client-key-data": b64(made[1])}
    path = write(kubeconfig(url, {"certificate-authority-data": b64(pki.ca_cert)}, user))
    assert (await ask(find_source(path)))["client"] is True


def client_certificate(pki: Any) -> tuple[bytes, bytes]:
    """A certificate for clients, of the same authority."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    authority = x509.load_pem_x509_certificate(pki.ca_cert)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "admin")]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(load_pem_private_key(pki.ca_key, None), hashes.SHA256())
    )
    return (
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


async def test_an_unknown_authority_is_told(serve, pki, write):
    url = await serve(Echo(), tls_server(pki))
    other = renewed(None, host_names(["x"]), time.time())
    path = write(kubeconfig(url, {"certificate-authority-data": b64(other.ca_cert)}))
    with pytest.raises(TransportError, match="certificate"):
        await ask(find_source(path))


async def test_verification_can_be_turned_off_or_aimed_at_another_name(serve, pki, write):
    url = await serve(Echo(), tls_server(pki))
    assert await ask(find_source(write(kubeconfig(url, {"insecure-skip-tls-verify": True}))))
    local = url.replace("127.0.0.1", "localhost")
    cluster = {
        "certificate-authority-data": b64(pki.ca_cert),
        "tls-server-name": "api.example",
    }
    assert await ask(find_source(write(kubeconfig(local, cluster))))


async def test_basic_authentication_and_impersonation(serve, write):
    url = await serve(Echo())
    user = {"username": "u", "password": "p", "as": "boss", "as-groups": ["g"]}
    answer = await ask(find_source(write(kubeconfig(url, user=user))))
    assert answer["token"] == "Basic " + b64(b"u:p")
    assert answer["headers"] == {"Impersonate-User": "boss", "Impersonate-Group": "g"}


async def test_contexts_and_files_are_chosen_as_kubectl_does(serve, write, tmp_path):
    url = await serve(Echo())
    first = kubeconfig(url, user={"token": "one"})
    second = kubeconfig("http://127.0.0.1:1", user={"token": "two"})
    second["contexts"].append({"name": "d", "context": {"cluster": "k", "user": "w"}})
    second["users"].append({"name": "w", "user": {"token": "three"}})
    paths = f"{write(first, 'a')}:{tmp_path / 'missing'}:{write(second, 'b')}"
    env = {"KUBECONFIG": paths}
    assert (await ask(find_source(env=env)))["token"] == "Bearer one"
    assert (await ask(find_source(context="d", env=env)))["token"] == "Bearer three"
    endpoint = await find_source(env=env).load()
    assert (endpoint.context, endpoint.namespace) == ("c", "n")


def plugin(tmp_path: Path, token_file: Path, expires: str = "") -> dict[str, Any]:
    script = tmp_path / "plugin.py"
    script.write_text(
        textwrap.dedent(f"""
        import json
        status = {{"token": open({str(token_file)!r}).read().strip()}}
        if {expires!r}:
            status["expirationTimestamp"] = {expires!r}
        print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1",
                           "kind": "ExecCredential", "status": status}}))
        """)
    )
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": sys.executable, "args": [str(script)]}}


async def test_a_refused_token_of_a_plugin_is_refreshed_once(serve, write, tmp_path, clock):
    echo = Echo()
    url = await serve(echo)
    token = write("old", "token")
    source = find_source(write(kubeconfig(url, user=plugin(tmp_path, token))))
    async with Client(Transport(source, clock=clock)) as client:
        key = ObjectKey("ns", "a")
        assert (await client.get(JOBS, key))["token"] == "Bearer old"
        echo.good_tokens = {"Bearer new"}
        token.write_text("new")
        assert (await client.get(JOBS, key))["token"] == "Bearer new"
        assert echo.seen == ["Bearer old", "Bearer old", "Bearer new"]
        echo.good_tokens = set()
        with pytest.raises(Unauthorized):
            await client.get(JOBS, key)
        assert len(echo.seen) == 4
        clock.at += FORCED_REFRESH_PAUSE
        with pytest.raises(Unauthorized):
            await client.get(JOBS, key)


async def test_a_token_that_will_expire_is_refreshed_before(serve, write, tmp_path, clock):
    clock.at = time.time()
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock.at + 1000))
    url = await serve(Echo())
    token = write("one", "token")
    source = find_source(write(kubeconfig(url, user=plugin(tmp_path, token, expires))), clock=clock)
    async with Client(Transport(source, clock=clock)) as client:
        key = ObjectKey("ns", "a")
        await client.get(JOBS, key)
        token.write_text("two")
        assert (await client.get(JOBS, key))["token"] == "Bearer one"
        clock.at += 850
        assert (await client.get(JOBS, key))["token"] == "Bearer two"


async def test_a_token_file_is_read_again_and_a_broken_one_is_survived(serve, write, clock):
    url = await serve(Echo())
    token = write("one", "token")
    path = write(kubeconfig(url, user={"tokenFile": "token"}))
    source = find_source(path, clock=clock)
    async with Client(Transport(source, clock=clock)) as client:
        key = ObjectKey("ns", "a")
        await client.get(JOBS, key)
        token.write_text("two")
        clock.at += 61
        assert (await client.get(JOBS, key))["token"] == "Bearer two"
        path.write_text("{")
        clock.at += 61
        assert (await client.get(JOBS, key))["token"] == "Bearer two"


async def test_changed_certificates_are_used_for_new_connections(serve, pki, write, clock):
    echo = Echo()
    url = await serve(echo, tls_server(pki))
    other = renewed(None, host_names(["x"]), time.time())
    ca = write(pki.ca_cert.decode(), "ca.pem")
    source = find_source(write(kubeconfig(url, {"certificate-authority": "ca.pem"})), clock=clock)
    async with Client(Transport(source, clock=clock)) as client:
        key = ObjectKey("ns", "a")
        await client.get(JOBS, key)
        ca.write_text(other.ca_cert.decode() * 2)
        clock.at += 61
        with pytest.raises(TransportError, match="certificate"):
            await client.get(JOBS, key)


async def test_a_pod_uses_its_service_account(serve, pki, write, clock):
    url = await serve(Echo(), tls_server(pki))
    port = url.rpartition(":")[2]
    env = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
    token, ca = write("sa-token\n", "token"), write(pki.ca_cert.decode(), "ca.crt")
    write("team", "namespace")
    source = InClusterSource(env, clock=clock, token_file=str(token), ca_file=str(ca))
    async with Client(Transport(source, clock=clock)) as client:
        assert (await client.get(JOBS, ObjectKey("ns", "a")))["token"] == "Bearer sa-token"
        token.write_text("renewed")
        clock.at += 61
        assert (await client.get(JOBS, ObjectKey("ns", "a")))["token"] == "Bearer renewed"
        endpoint = await client.transport.endpoint()
        assert (endpoint.context, endpoint.namespace) == ("", "team")
    token.unlink()
    with pytest.raises(ConfigError, match="there is no token"):
        await source.load()
    token.write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        await source.load()


@pytest.mark.parametrize(
    ("host", "port", "found"),
    [
        ("10.0.0.1", "443", "https://10.0.0.1:443"),
        ("fd00::1", "6443", "https://[fd00::1]:6443"),
        ("10.0.0.1", "", None),
        ("", "443", None),
    ],
)
async def test_a_pod_finds_the_server_in_its_environment(pki, write, host, port, found):
    env = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    token, ca = write("t", "token"), write(pki.ca_cert.decode(), "ca.crt")
    source = InClusterSource(env, token_file=str(token), ca_file=str(ca))
    if found is None:
        with pytest.raises(ConfigError, match="are not both set"):
            await source.load()
    else:
        assert (await source.load()).url == found


ANSWER = (
    '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", '
    '"status": {"token": "t"}}'
)


@pytest.mark.parametrize(
    ("user", "token"),
    [
        ({"as": "somebody", "client-certificate-data": "x"}, None),
        (
            {
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": "echo",
                    "args": [ANSWER],
                }
            },
            "t",
        ),
    ],
)
def test_only_an_identity_provider_needs_kubernetes_asyncio(user, token):
    found = run(f"""
        import asyncio, json, sys
        from pathlib import Path
        from kueuelib.runtime.kubeconfig import KubeconfigSource
        source = KubeconfigSource((Path("none"),))
        credentials = asyncio.run(source._authenticate("c", {{}}, {user!r}))
        heavy = [name for name in sys.modules if name.startswith("kubernetes")]
        print(json.dumps([heavy, credentials.token if credentials else None]))
    """)
    assert found == [[], token]


GOOD = kubeconfig("https://127.0.0.1:6443")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("a: [", "malformed YAML in line 2"),
        ("just text", "is not a kubeconfig"),
        ("kind: Pod", "is not a kubeconfig"),
        ({**GOOD, "current-context": ""}, "current-context is not set; set it (contexts: c)"),
        ({**GOOD, "current-context": "x"}, "there is no context 'x'; use one of: c"),
        ({**GOOD, "clusters": []}, "names the cluster 'k', which is not listed"),
        ({**GOOD, "users": []}, "names the user 'u', which is not listed"),
        ({**GOOD, "users": {}}, "names the user 'u', which is not listed"),
        ({**GOOD, "users": "x"}, "users is not a list"),
        ({**GOOD, "contexts": [{"context": {}}]}, "contexts[0] is malformed"),
        (kubeconfig("127.0.0.1:6443"), "the server '127.0.0.1:6443' is not an http or https URL"),
        (kubeconfig(""), "the server '' is not an http or https URL"),
        (
            kubeconfig("https://h", {"certificate-authority-data": "!"}),
            "certificate-authority-data is not base64",
        ),
        (
            kubeconfig("https://h", {"certificate-authority-data": b64(b"x")}),
            "certificate-authority-data holds no usable certificate",
        ),
        (kubeconfig("https://h", {"certificate-authority": "no.pem"}), "no.pem holds no usable"),
        (
            kubeconfig("https://h", user={"client-certificate": "c.pem"}),
            "the user has no client-key",
        ),
        (
            kubeconfig("https://h", user={"client-certificate": "c", "client-key": "k"}),
            "the client certificate or its key cannot be used",
        ),
        (kubeconfig("https://h", {"proxy-url": "socks5://p"}), "is not an HTTP proxy"),
        (kubeconfig("https://h", user={"exec": {"command": "x"}}), "missing key 'apiVersion'"),
        (
            kubeconfig("https://h", user={"auth-provider": {"name": "oidc"}}),
            "no credentials from the user of context 'c' (oidc: missing configuration)",
        ),
        (
            kubeconfig("https://h", user={"auth-provider": {"name": "azure"}}),
            "auth-provider 'azure' gives no token; use an exec plug-in",
        ),
    ],
)
async def test_a_malformed_kubeconfig_is_one_clear_line(write, document, said):
    path = write(document)
    with pytest.raises(ConfigError) as caught:
        await find_source(path).load()
    text = str(caught.value)
    assert said in text
    assert str(path) in text
    assert "\n" not in text


async def test_a_missing_kubeconfig_is_named(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"nowhere: there is no such file"):
        find_source(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"\$KUBECONFIG \(/no/file\): there is no such file"):
        find_source(env={"KUBECONFIG": "/no/file"})
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="there is no kubeconfig"):
        find_source(env={})
    assert isinstance(find_source(env={"KUBERNETES_SERVICE_HOST": "h"}), InClusterSource)


def test_a_user_without_a_home_is_no_obstacle(monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 2)  # the passwd file does not name it
    assert isinstance(find_source(env={"KUBERNETES_SERVICE_HOST": "h"}), InClusterSource)
    with pytest.raises(ConfigError, match="~/.kube/config: there is no kubeconfig"):
        find_source(env={})
    with pytest.raises(ConfigError, match="~/mine: there is no such file"):
        find_source("~/mine")


def test_proxies_are_resolved_once():
    env = {"https": "http://proxy:1", "no": "inside.example"}
    assert proxy_for("https://out.example", None, "s", env) == "http://proxy:1"
    assert proxy_for("https://a.inside.example", None, "s", env) is None
    assert proxy_for("https://a.inside.example", "http://own:2", "s", env) == "http://own:2"
    assert proxy_for("http://out.example", None, "s", env) is None


def test_proxies_are_those_of_the_environment(monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    assert proxy_for("https://out.example", None, "s") is None
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    monkeypatch.setenv("no_proxy", "inside.example")
    assert proxy_for("https://out.example", None, "s") == "http://proxy:1"
    assert proxy_for("https://a.inside.example", None, "s") is None


async def test_a_proxy_carries_the_requests(serve):
    seen: list[str] = []

    async def proxy(request: web.Request) -> web.Response:
        seen.append(str(request.url))
        return web.json_response({})

    url = await serve(proxy)
    await ask(Endpoint(url="http://api.example", proxy=url))
    assert seen == ["http://api.example/apis/batch/v1/namespaces/ns/jobs/a"]


def run(code: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)
