from __future__ import annotations

import asyncio
import base64
import ssl
import time
from collections import Counter
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from kueuelib.api.kinds import API_SERVICES, CRDS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from kueuelib.api.meta import ObjectKey
from kueuelib.errors import ConfigError, Forbidden
from kueuelib.runtime.certificates import (
    RENEW_BEFORE,
    SERVER_LIFE,
    CertificateFiles,
    ServerNames,
    host_names,
    judge,
    renewed,
    server_context,
    service_names,
)
from kueuelib.runtime.client import Client
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.transport import Transport
from kueuelib.runtime.webhook import trust as keeping
from kueuelib.runtime.webhook.trust import (
    CertificateKeeper,
    Injected,
    Trusting,
    ensure_certificates,
    from_secret,
    inject,
    to_data,
    with_bundle,
)

SECRET = ObjectKey("sys", "cert")
SECRET_PATH = "/api/v1/namespaces/sys/secrets/cert"
MUTATING = f"{MUTATING_WEBHOOKS.path()}/m"
CRD = f"{CRDS.path()}/things.g"
NAMES = host_names(["127.0.0.1"])


class FakeApi:
    """Objects by path, with optimistic locking."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.writes: list[str] = []
        self.reads: Counter[str] = Counter()
        self.version = 0
        self.conflicts = 0
        self.failures = 0
        self.forbidden: set[str] = set()

    def put(self, path: str, obj: dict[str, Any]) -> None:
        self.version += 1
        meta = {"name": path.rpartition("/")[2], **obj.get("metadata", {})}
        self.objects[path] = {**obj, "metadata": {**meta, "resourceVersion": str(self.version)}}

    async def __call__(self, request: web.Request) -> web.Response:
        if self.failures:
            self.failures -= 1
            return web.Response(status=500)
        path = request.path
        if path in self.forbidden:
            return web.json_response({"kind": "Status", "reason": "Forbidden"}, status=403)
        if request.method == "GET":
            self.reads[path] += 1
            found = self.objects.get(path)
            if found is None:
                return web.json_response({"kind": "Status", "reason": "NotFound"}, status=404)
            return web.json_response(found)
        body = await request.json()
        if request.method == "POST":
            path = f"{path}/{body['metadata']['name']}"
        stale = path in self.objects and (
            body["metadata"].get("resourceVersion")
            != self.objects[path]["metadata"]["resourceVersion"]
        )
        if stale or self.conflicts:
            self.conflicts = max(self.conflicts - 1, 0)
            return web.json_response({"kind": "Status", "reason": "Conflict"}, status=409)
        self.writes.append(f"{request.method} {path}")
        self.put(path, body)
        return web.json_response(self.objects[path])

    def bundle(self, path: str) -> bytes:
        obj = self.objects[path]
        config = (
            obj["webhooks"][0]["clientConfig"]
            if "webhooks" in obj
            else obj["spec"]["conversion"]["webhook"]["clientConfig"]
        )
        return base64.b64decode(config.get("caBundle", ""))


@pytest.fixture
async def api(serve):
    fake = FakeApi()
    async with Client(Transport(Endpoint(url=await serve(fake)))) as client:
        fake.client = client
        yield fake


def webhooks() -> dict[str, Any]:
    return {"webhooks": [{"name": "a", "clientConfig": {"url": "https://h"}}, {"name": "b"}]}


def crd() -> dict[str, Any]:
    return {"spec": {"conversion": {"strategy": "Webhook"}, "unknown": {"kept": 1}}}


async def test_certificates_are_made_once_and_kept(api):
    made = await ensure_certificates(api.client, SECRET, NAMES)
    again = await ensure_certificates(api.client, SECRET, NAMES)
    assert again == made
    assert api.writes == [f"POST {SECRET_PATH}"]
    assert judge(made).problem == ""


async def test_an_empty_secret_is_filled_and_its_other_content_kept(api):
    api.put(SECRET_PATH, {"data": {"other": "eA=="}, "metadata": {"namespace": "sys"}})
    await ensure_certificates(api.client, SECRET, NAMES)
    assert set(api.objects[SECRET_PATH]["data"]) == {
        "other",
        "ca.crt",
        "ca.key",
        "tls.crt",
        "tls.key",
    }


async def test_two_who_start_at_once_agree(api):
    both = await asyncio.gather(
        ensure_certificates(api.client, SECRET, NAMES),
        ensure_certificates(api.client, SECRET, NAMES),
    )
    assert both[0] == both[1]


async def test_the_manager_keeps_the_installers_names(api):
    installed = await ensure_certificates(api.client, SECRET, NAMES)
    kept = await ensure_certificates(api.client, SECRET, ServerNames({"svc.ns.svc"}))
    assert kept.ca_cert == installed.ca_cert
    assert judge(kept).names == NAMES | ServerNames({"svc.ns.svc"})


def test_a_secret_without_all_parts_holds_no_certificates():
    made = renewed(None, NAMES, time.time())
    data = to_data(made)
    assert from_secret({"data": data}) == made
    assert from_secret({"data": {**data, "tls.key": ""}}) is None
    assert from_secret({"data": {**data, "tls.key": "!"}}) is None
    assert from_secret({}) is None


def test_bundles_go_into_every_client_config_and_nothing_else_changes():
    before = webhooks()
    after = with_bundle(before, b"CA")
    assert before == webhooks()
    bundle = base64.b64encode(b"CA").decode()
    assert after["webhooks"][0]["clientConfig"] == {"url": "https://h", "caBundle": bundle}
    assert after["webhooks"][1]["clientConfig"] == {"caBundle": bundle}
    assert with_bundle(after, b"CA") is after
    plain = {"spec": {"conversion": {"strategy": "None"}}}
    assert with_bundle(plain, b"CA") is plain
    converted = with_bundle(crd(), b"CA")
    assert converted["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] == bundle
    assert converted["spec"]["unknown"] == {"kept": 1}


def test_an_api_service_trusts_the_authority_unless_it_trusts_everybody():
    found = {"kind": "APIService", "spec": {"group": "g", "version": "v"}}
    bundle = base64.b64encode(b"CA").decode()
    assert with_bundle(found, b"CA")["spec"] == {"group": "g", "version": "v", "caBundle": bundle}
    everybody = {"kind": "APIService", "spec": {"insecureSkipTLSVerify": True}}
    assert with_bundle(everybody, b"CA") is everybody


async def test_what_is_optional_may_be_forbidden_and_nothing_else(api):
    path = "/apis/apiregistration.k8s.io/v1/apiservices/v.g"
    api.forbidden = {path}
    optional = Trusting(API_SERVICES, "v.g", optional=True)
    found = await inject(api.client, [optional], b"CA")
    assert found == Injected([], ["apiservices/v.g"], ServerNames())
    with pytest.raises(Forbidden):
        await inject(api.client, [Trusting(API_SERVICES, "v.g")], b"CA")


async def test_injection_repairs_tells_what_is_missing_and_survives_conflicts(api):
    api.put(MUTATING, webhooks())
    api.put(CRD, crd())
    api.conflicts = 1
    trusting = [
        Trusting(MUTATING_WEBHOOKS, "m"),
        Trusting(VALIDATING_WEBHOOKS, "v"),
        Trusting(CRDS, "things.g"),
    ]
    found = await inject(api.client, trusting, b"CA")
    assert found.missing == ["validatingwebhookconfigurations/v"]
    assert found.written == [
        "mutatingwebhookconfigurations/m",
        "customresourcedefinitions/things.g",
    ]
    assert api.bundle(MUTATING) == api.bundle(CRD) == b"CA"
    api.writes.clear()
    again = await inject(api.client, trusting, b"CA")
    assert api.writes == again.written == []


class Running:
    def __init__(self, keeper: CertificateKeeper | CertificateFiles) -> None:
        self.keeper = keeper

    async def __aenter__(self) -> None:
        ready = asyncio.Event()
        self.task = asyncio.create_task(self.keeper.run(ready.set))
        await asyncio.wait_for(ready.wait(), 20)

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.task


async def served_serial(context: ssl.SSLContext, ca: bytes) -> str:
    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    trust = ssl.create_default_context(cadata=ca.decode())
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
    serial = writer.get_extra_info("peercert")["serialNumber"]
    writer.close()
    await writer.wait_closed()
    server.close()
    return serial


async def eventually(check: Any) -> None:
    async with asyncio.timeout(60):
        while not check():
            await asyncio.sleep(0.005)


async def test_the_keeper_supplies_repairs_and_renews_without_a_restart(api, clock):
    clock.at = time.time()
    api.put(MUTATING, webhooks())
    context = server_context()
    trusting = [Trusting(MUTATING_WEBHOOKS, "m")]
    keeper = CertificateKeeper(api.client, [context], SECRET, NAMES, trusting, clock=clock)
    api.failures = 2
    async with Running(keeper):
        ca = api.bundle(MUTATING)
        first = await served_serial(context, ca)

        api.put(MUTATING, webhooks())
        keeper.poke()
        await eventually(lambda: api.bundle(MUTATING) == ca)

        clock.at += SERVER_LIFE - RENEW_BEFORE / 2
        writes = len(api.writes)
        keeper.poke()
        await eventually(lambda: len(api.writes) > writes)
        assert api.bundle(MUTATING) == ca
        present = from_secret(api.objects[SECRET_PATH])
        assert judge(present).problem.startswith("certificate is not yet valid")
    assert first


async def test_the_keeper_names_the_hosts_of_urls_also_in_a_new_secret(api, monkeypatch):
    """Who installed it wrote them into the first certificate only."""
    monkeypatch.setattr(keeping, "MISSING_PERIOD", 0.02)
    called = webhooks()
    called["webhooks"][0]["clientConfig"] = {"url": "https://outside.example:9443/x"}
    api.put(MUTATING, called)
    trusting = [Trusting(MUTATING_WEBHOOKS, "m"), Trusting(VALIDATING_WEBHOOKS, "v")]
    keeper = CertificateKeeper(api.client, [server_context()], SECRET, NAMES, trusting)

    def hosts() -> frozenset[str]:
        return judge(from_secret(api.objects[SECRET_PATH])).names.hosts

    async with Running(keeper):
        assert hosts() == NAMES.hosts | {"outside.example"}
        del api.objects[SECRET_PATH]
        keeper.poke()
        await eventually(lambda: SECRET_PATH in api.objects)
        assert hosts() == NAMES.hosts | {"outside.example"}
        later = {**called, "metadata": {"name": "v"}}
        later["webhooks"] = [{"name": "w", "clientConfig": {"url": "https://10.1.2.3/x"}}]
        api.put(f"{MUTATING.rpartition('/')[0].replace('mutating', 'validating')}/v", later)
        await eventually(
            lambda: "10.1.2.3" in judge(from_secret(api.objects[SECRET_PATH])).names.addresses
        )


async def test_the_keeper_names_a_service_elsewhere_and_says_that_the_namespace_is_wrong(api):
    """As after `--namespace` with another namespace than the one of the manifests."""
    called = webhooks()
    service = {"name": "op", "namespace": "op-system", "path": "/x"}
    called["webhooks"][0]["clientConfig"] = {"service": service}
    api.put(MUTATING, called)
    trusting = [Trusting(MUTATING_WEBHOOKS, "m")]
    names = service_names("op", SECRET.namespace)
    keeper = CertificateKeeper(api.client, [server_context()], SECRET, names, trusting)
    with capture_logs() as lines:
        async with Running(keeper):
            hosts = judge(from_secret(api.objects[SECRET_PATH])).names.hosts
    assert hosts == names.hosts | {"op.op-system.svc"}
    (told,) = [line for line in lines if "services" in line]
    assert told["services"] == ["op.op-system.svc"]
    assert told["fix"].startswith("run it with --namespace op-system: ")


async def test_the_keeper_soon_finds_what_appears(api, monkeypatch):
    monkeypatch.setattr(keeping, "MISSING_PERIOD", 0.02)
    names = host_names(["h"])  # that of the URL, so that the certificate need not change
    trusting = [Trusting(MUTATING_WEBHOOKS, "m"), Trusting(MUTATING_WEBHOOKS, "other")]
    keeper = CertificateKeeper(api.client, [server_context()], SECRET, names, trusting)
    async with Running(keeper):
        reads = api.reads[SECRET_PATH]
        assert keeper._missing == [f"{MUTATING_WEBHOOKS.plural}/{one.name}" for one in trusting]
        await asyncio.sleep(0.1)
        api.put(MUTATING, webhooks())
        await eventually(lambda: api.bundle(MUTATING))
        await eventually(lambda: keeper._missing == ["mutatingwebhookconfigurations/other"])
        assert api.reads[SECRET_PATH] == reads


async def test_the_keeper_loads_what_somebody_else_renewed(api):
    context = server_context()
    keeper = CertificateKeeper(api.client, [context], SECRET, NAMES)
    async with Running(keeper):
        present = from_secret(api.objects[SECRET_PATH])
        before = await served_serial(context, present.ca_cert)
        other = renewed(present, NAMES | ServerNames({"more"}), time.time())
        data = to_data(other)
        api.put(SECRET_PATH, {"data": data, "metadata": {"namespace": "sys"}})
        keeper.poke()
        await eventually(lambda: keeper._loaded == other)
        assert await served_serial(context, other.ca_cert) != before
    assert api.writes == [f"POST {SECRET_PATH}"]


async def test_files_are_loaded_again_when_they_change(tmp_path):
    def write(made: Any) -> None:
        (tmp_path / "tls.crt").write_bytes(made.tls_cert)
        (tmp_path / "tls.key").write_bytes(made.tls_key)

    made = renewed(None, NAMES, time.time())
    write(made)
    context = server_context()
    files = CertificateFiles([context], tmp_path, period=0.01)
    async with Running(files):
        before = await served_serial(context, made.ca_cert)
        (tmp_path / "tls.crt").write_text("half written")
        await asyncio.sleep(0.05)
        assert await served_serial(context, made.ca_cert) == before
        write(renewed(made, NAMES | ServerNames({"more"}), time.time()))
        loaded = files._loaded
        await eventually(lambda: files._loaded != loaded)
        assert await served_serial(context, made.ca_cert) != before


async def test_missing_files_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"holds no usable tls\.crt and tls\.key"):
        await CertificateFiles([server_context()], tmp_path).run(lambda: None)
