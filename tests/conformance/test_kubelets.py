"""Logs, processes and ports of pods, which the kubelet of their node serves."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import time
from base64 import b64decode, b64encode
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlencode

import aiohttp
import anyio
import httpx
import pytest
from kubelet_double import SWITCH, KubeletDouble, deaf, echo, saying, silent
from local_containers import LocalContainers

from conftest import opened
from kueuelib.embedded import credentials as tls
from kueuelib.embedded.http import backends
from kueuelib.embedded.server import ApiServer
from kueuelib.node import streaming
from kueuelib.node.server import KubeletServer
from kueuelib.node.spdy import SpdyConnection, StreamData, StreamReset
from kueuelib.runtime import server_limits
from kueuelib.runtime.certificates import show_certificate

PODS = "/api/v1/namespaces/default/pods"
POD = {
    "metadata": {"name": "p"},
    "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
}
SECONDS = 10


async def bound(api, port, **status):
    """A pod on a node whose kubelet listens on a port of this machine."""
    assert (await api.post("/api/v1/nodes", {"metadata": {"name": "n"}})).status == 201
    told = {
        "addresses": [
            {"type": "Hostname", "address": "nowhere.invalid"},
            {"type": "InternalIP", "address": "127.0.0.1"},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    assert (await api.patch("/api/v1/nodes/n/status", {"status": told})).status == 200
    assert (await api.post(PODS, POD)).status == 201
    running = {"status": {"phase": "Running", "podIP": "127.0.0.1", **status}}
    assert (await api.patch(f"{PODS}/p/status", running)).status == 200


@asynccontextmanager
async def kubelet(containers, ca):
    server = KubeletServer(containers, lambda: [POD], ca.decode())
    listening = asyncio.Event()
    task = asyncio.create_task(server.run(listening.set))
    await listening.wait()
    try:
        yield server
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def containers(api):
    containers = LocalContainers()
    async with kubelet(containers, api.server.ca) as server:
        await bound(api, server.port)
        yield containers
        await until(lambda: not containers.open and not containers.followed)


async def until(holds):
    with anyio.fail_after(SECONDS):
        while not holds():
            await anyio.sleep(0.02)


@asynccontextmanager
async def socket(api, path, *protocols, token=""):
    """A WebSocket to the API server."""
    context = ssl.create_default_context(cadata=api.server.ca.decode())
    headers = {"Authorization": f"Bearer {token or api.server.token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.ws_connect(api.server.url + path, ssl=context, protocols=protocols) as opened,
    ):
        yield opened


async def messages(opened):
    """All that comes, by channel."""
    found = {}
    async for message in opened:
        data = message.data.encode() if isinstance(message.data, str) else message.data
        found[data[0]] = found.get(data[0], b"") + data[1:]
    return found


def shell(command, **flags):
    """The path that starts a command of a shell."""
    flags = {"stdin": 1, "stdout": 1, "stderr": 1, **flags}
    commands = [("command", each) for each in ("sh", "-c", command)]
    return f"{PODS}/p/exec?{urlencode([*flags.items(), *commands])}"


@asynccontextmanager
async def switched(api, path="exec?stdin=1&command=a", protocol="v4.channel.k8s.io"):
    """A connection that has left HTTP for what the kubelet speaks."""
    context = ssl.create_default_context(cadata=api.server.ca.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port, ssl=context)
    head = (
        f"POST {PODS}/p/{path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n"
        f"Authorization: Bearer {api.server.token}\r\nConnection: Upgrade\r\n"
        f"Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {protocol}\r\n\r\n"
    )
    writer.write(head.encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def test_a_log_is_that_of_the_kubelet(api, containers):
    found = await api.get(f"{PODS}/p/log?tailLines=5&sinceSeconds=60&timestamps=true&limitBytes=9")
    assert (found.status, found.text) == (200, "one\ntwo\n")
    (asked,) = containers.asked
    assert (asked.tail_lines, asked.limit_bytes, asked.timestamps) == (5, 9, True)
    assert 55 < time.time() - asked.since < 65


async def test_a_log_is_followed_until_its_reader_leaves(api, containers):
    async with api.client.stream("GET", f"{PODS}/p/log?follow=true") as response:
        lines = response.aiter_lines()
        assert [await anext(lines) for _ in range(4)] == ["one", "two", "line 1", "line 2"]
        assert containers.followed == 1
    await until(lambda: not containers.followed)


@pytest.mark.embedded
async def test_a_log_that_cannot_be_read_to_its_end_breaks_off(api, containers):
    with pytest.raises(httpx.RemoteProtocolError):
        await api.get(f"{PODS}/p/log?previous=true")


async def test_a_process_gets_its_input_and_returns_its_code(api, containers):
    command = "cat; echo failed >&2; exit 3"
    async with socket(api, shell(command), "v5.channel.k8s.io") as opened:
        assert opened.protocol == "v5.channel.k8s.io"
        await opened.send_bytes(b"\0some ")
        await opened.send_bytes(b"\4" + b'{"Width":80,"Height":25}')
        await opened.send_bytes(b"\0input")
        await opened.send_bytes(b"\xff\0")
        found = await messages(opened)
    assert (found[1], found[2]) == (b"some input", b"failed\n")
    assert b'"causes":[{"reason":"ExitCode","message":"3"}]' in found[3]


async def test_a_process_ends_with_its_client(api, containers):
    async with socket(api, shell("echo on; sleep 60"), "v4.channel.k8s.io") as opened:
        while (await opened.receive()).data != b"\1on\n":
            pass
        assert len(containers.open) == 1
    await until(lambda: not containers.open)


async def test_a_container_is_attached_to_and_stays(api, containers):
    async with socket(api, f"{PODS}/p/attach?stdin=1&stdout=1", "v4.channel.k8s.io") as opened:
        await opened.send_bytes(b"\0hi\n")
        found = await messages(opened)
    assert (found[1], found[3]) == (b"attached\ngot hi\n", b'{"metadata":{},"status":"Success"}')


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("log?container=later", 400, "waiting to start"),
        ("exec?stdout=1&command=a&container=later", 400, "waiting to start"),
        ("exec?stdout=1&command=a&container=none", 400, "container none is not valid for pod p"),
        ("exec?stdout=1", 400, "you must specify a command"),
        ("exec?command=a", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        ("portforward", 400, "Upgrade request required"),
    ],
)
async def test_what_a_kubelet_refuses_is_passed_on(api, containers, path, status, text):
    later = [{"name": "later", "image": "i"}]
    await api.patch(f"{PODS}/p/ephemeralcontainers", {"spec": {"ephemeralContainers": later}})
    await api.patch(f"{PODS}/p/status", {"status": {"podIP": "10.0.0.7"}})
    asks = path.startswith("exec")
    headers = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"} if asks else {}
    found = await api.get(f"{PODS}/p/{path}", headers=headers)
    assert (found.status, text in found.text) == (status, True), found


async def test_ports_are_forwarded_in_channels(api, containers):
    async def shout(reader, writer):
        writer.write((await reader.read(100)).upper())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    path = f"{PODS}/p/portforward?ports={port},1"
    async with server, socket(api, path, "v4.channel.k8s.io") as opened:
        await opened.send_bytes(b"\0hello")
        found = await messages(opened)
    assert found[0] == port.to_bytes(2, "little") + b"HELLO"
    assert found[1] == port.to_bytes(2, "little")
    assert found[2] == b"\1\0"
    assert found[3].startswith(b"\1\0error forwarding port 1: ")


@pytest.mark.embedded
async def test_a_proxy_reaches_the_kubelet_and_servers_in_pods(api, containers):
    found = await api.get("/api/v1/nodes/n/proxy/pods")
    assert [each["metadata"]["name"] for each in found.body["items"]] == ["p"]
    assert (await api.get("/api/v1/nodes/n/proxy/nothing")).status == 404
    bare = await api.get("/api/v1/nodes/https:n:/proxy?a=b")
    assert (bare.status, bare.headers["location"]) == (301, "/api/v1/nodes/https:n:/proxy/?a=b")
    for refused in ("nodes/n:1", "nodes/ftp:n:1", "namespaces/default/pods/:p:1:2"):
        assert (await api.get(f"/api/v1/{refused}/proxy/")).status == 400

    async def answer(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        size = b"Location: /a?b=c\r\nX-Mine: d\r\nContent-Length: %d\r\n\r\n" % len(head)
        writer.write(b"HTTP/1.1 302 Found\r\nConnection: close\r\n" + size + head)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        acting = {"Impersonate-User": "kubernetes-admin", "Impersonate-Group": "system:masters"}
        at = f"{PODS}/http:p:{port}/proxy"
        found = await api.post(f"{at}/x/%20y?z=%2F", "{}", headers=acting)
    assert (found.status, found.headers["location"], found.headers["x-mine"]) == (
        *(302, f"{at}/a?b=c", "d"),
    )
    assert found.text.startswith("POST /x/%20y?z=%2F HTTP/1.1\r\n")
    assert "authorization" not in found.text.lower()
    assert "impersonate" not in found.text.lower()
    async with KubeletDouble(api.server.ca, saying(BARE)) as double:
        named = await api.get(f"{PODS}/https:p:{double.port}/proxy/")
        assert (named.status, double.names) == (200, [{}])  # a pod is not shown our certificate
    await api.patch(f"{PODS}/p/status", {"status": {"podIP": "10.0.0.7"}})
    assert (await api.get(f"{PODS}/p/proxy/")).body["message"] == "address not allowed"


@pytest.mark.embedded
async def test_a_proxy_of_a_service_reaches_a_ready_pod(api, containers):
    async def answer(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(head) + head)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    at = "/api/v1/namespaces/default/services"
    ports = [{"name": "web", "port": 80, "targetPort": port}, {"name": "other", "port": 81}]
    spec = {"selector": {"app": "a"}, "ports": ports}
    assert (await api.post(at, {"metadata": {"name": "s"}, "spec": spec})).status == 201
    async with server:
        for asked, text in (
            ("s:80", 'no endpoints available for service "s"'),
            ("s:82", 'no service port 82 found for service "s"'),
            ("s", 'no endpoints available for service "s"'),
            ("none:80", 'services "none" not found'),
        ):
            found = await api.get(f"{at}/{asked}/proxy/")
            assert (found.status, found.body["message"]) == (404 if "none" in asked else 503, text)
        await api.patch(f"{PODS}/p", {"metadata": {"labels": {"app": "a"}}})
        ready = [{"type": "Ready", "status": "True"}]
        await api.patch(f"{PODS}/p/status", {"status": {"conditions": ready}})
        for asked in ("s:80", "s:web", "http:s:web"):
            found = await api.get(f"{at}/{asked}/proxy/x?y=z")
            assert (found.status, found.text.split("\r\n")[0]) == (200, "GET /x?y=z HTTP/1.1")
        bare = await api.get(f"{at}/s:web/proxy")
        assert (bare.status, bare.headers["location"]) == (301, f"{at}/s:web/proxy/")


@pytest.mark.server(authorization="rbac")
@pytest.mark.embedded
async def test_each_of_these_needs_its_own_right(api, containers, open_api):
    rights = {
        "watcher": [{"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get"]}],
        "runner": [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get"]}],
    }
    root = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    for name, rules in rights.items():
        await api.post(f"{root}/roles", {"metadata": {"name": name}, "rules": rules})
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
        binding = {"metadata": {"name": name}, "roleRef": ref, "subjects": [subject]}
        assert (await api.post(f"{root}/rolebindings", binding)).status == 201
    tokens = {name: api.server.add_user(name) for name in rights}
    async with open_api(api.server, tokens["watcher"]) as watcher:
        assert (await watcher.get(f"{PODS}/p/log")).status == 200
        for what in ("exec", "attach", "portforward", "proxy"):
            assert (await watcher.get(f"{PODS}/p/{what}?stdout=1&command=a")).status == 403
        assert (await watcher.get("/api/v1/nodes/n/proxy/pods")).status == 403
    path = shell("exit 0")
    async with socket(api, path, "v4.channel.k8s.io", token=tokens["runner"]) as opened:
        assert b"Success" in (await messages(opened))[3]
    async with open_api(api.server, tokens["runner"]) as runner:
        assert (await runner.post(path, "")).status == 403
        assert (await runner.get(f"{PODS}/p/log")).status == 403


@pytest.mark.embedded
async def test_only_the_api_server_is_served(api, containers):
    node = (await api.get("/api/v1/nodes/n")).body
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    other = tls.credentials(time.time(), ("127.0.0.1",), "a", "b")

    async def status(certificate, path="/healthz"):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if certificate:
            show_certificate(context, certificate)
        url = f"https://127.0.0.1:{port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as answer:
            return answer.status

    assert await status(None) == 401
    assert await status(None, "/containerLogs/default/p/c") == 401
    config = api.server.kubeconfig()["users"][0]["user"]
    admin = b64decode(config["client-key-data"]) + b64decode(config["client-certificate-data"])
    assert await status(admin) == 403
    with pytest.raises(aiohttp.ClientError):
        await status(other.kubelet_key + other.kubelet_certificate)


# ---- clients -------------------------------------------------------------------------------------


@asynccontextmanager
async def shouting():
    """A server that returns in capitals what it gets until the end; its port."""

    async def shout(reader, writer):
        writer.write((await reader.read()).upper())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def written(api, folder):
    """A kubeconfig."""
    cluster = {"server": api.server.url, "certificate-authority-data": b64encode(api.server.ca)}
    cluster["certificate-authority-data"] = cluster["certificate-authority-data"].decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "a", "cluster": cluster}],
        "users": [{"name": "a", "user": {"token": api.server.token}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    file = folder / "config"
    file.write_text(json.dumps(config))
    return file


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on the PATH")
@pytest.mark.parametrize("sockets", ["true", "false"])
async def test_kubectl_reaches_into_a_pod(api, containers, tmp_path, sockets):
    environment = {
        **os.environ,
        "KUBECONFIG": str(written(api, tmp_path)),
        "KUBECTL_PORT_FORWARD_WEBSOCKETS": sockets,
        "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": sockets,
    }
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)

    @asynccontextmanager
    async def started(*args):
        process = await asyncio.create_subprocess_exec("kubectl", *args, env=environment, **pipes)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    async def kubectl(*args, stdin=b""):
        async with started(*args) as process, asyncio.timeout(SECONDS):
            return (*await process.communicate(stdin), process.returncode)

    async def runs_and_attaches():
        command = "cat; echo failed >&2; exit 3"
        out, err, code = await kubectl(
            "exec", "-i", "p", "--", "sh", "-c", command, stdin=b"x" * 10**6
        )
        assert (len(out), code) == (10**6, 3)
        assert err == b"failed\ncommand terminated with exit code 3\n"
        out, _, code = await kubectl("attach", "-i", "p", stdin=b"hello\n")
        assert (out, code) == (b"attached\ngot hello\n", 0)

    async def copies():
        sent = tmp_path / "sent"
        sent.write_bytes(os.urandom(10**6))
        there, back = tmp_path / "there", tmp_path / "back"
        assert (await kubectl("cp", str(sent), f"p:{there}"))[2] == 0
        assert (await kubectl("cp", f"p:{there}", str(back)))[2] == 0
        assert back.read_bytes() == sent.read_bytes()

    async def follows():
        async with started("logs", "-f", "p") as process:
            lines = [await process.stdout.readline() for _ in range(3)]
        assert lines == [b"one\n", b"two\n", b"line 1\n"]

    async def forwards():
        async with shouting() as port, started("port-forward", "p", f":{port}") as process:
            line = (await process.stdout.readline()).decode()
            local = int(line.split(" -> ")[0].rpartition(":")[2])
            for _ in range(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", local)
                writer.write(b"abc" * 100_000)
                writer.write_eof()
                assert await reader.read() == b"ABC" * 100_000
                writer.close()

    await asyncio.gather(runs_and_attaches(), copies(), follows(), forwards())


async def test_a_python_client_runs_a_process(api, containers, tmp_path):
    from kubernetes_asyncio import client, config
    from kubernetes_asyncio.stream import WsApiClient

    configuration = client.Configuration()
    file = str(written(api, tmp_path))
    await config.load_kube_config(config_file=file, client_configuration=configuration)
    async with WsApiClient(configuration) as opened:
        core = client.CoreV1Api(opened)
        command = ["sh", "-c", "echo out; echo err >&2"]
        streams = {"stdout": True, "stderr": True, "stdin": False, "tty": False}
        call = core.connect_get_namespaced_pod_exec("p", "default", command=command, **streams)
        assert sorted((await call).split()) == ["err", "out"]


# ---- clients that misbehave ----------------------------------------------------------------------


async def test_a_client_that_breaks_the_protocol_ends_its_process(api, containers, monkeypatch):
    monkeypatch.setattr(streaming, "OPENING_SECONDS", 0.3)
    missing = SpdyConnection().open(1, {"streamtype": "error"})
    for sent in (
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(100),
        missing,
        missing + b"\x80\x03" + b"\xff" * 9,
    ):
        path = "exec?stdin=1&command=sleep&command=60"
        async with switched(api, path) as (reader, writer), asyncio.timeout(SECONDS):
            writer.write(sent)
            while await reader.read(1000):
                pass
        await until(lambda: not containers.open)


async def test_streams_that_make_no_sense_are_refused(api, containers, monkeypatch):
    monkeypatch.setattr(streaming, "MOST_STREAMS", 1)
    mine = SpdyConnection()
    path, events = "portforward", []
    async with (
        shouting() as port,
        switched(api, path, "portforward.k8s.io") as (reader, writer),
        asyncio.timeout(SECONDS),
    ):
        fine = {"port": str(port), "requestid": "1"}
        for stream, headers in enumerate(
            [
                {},
                {"streamtype": "data", "port": "0", "requestid": "0"},
                {"streamtype": "stdin", **fine},
                {"streamtype": "error", **fine},
                {"streamtype": "error", **fine},
                {"streamtype": "data", **fine},
            ]
        ):
            writer.write(mine.open(2 * stream + 1, headers))
        writer.write(mine.data(11, b"one ") + mine.data(11, b"two", fin=True) + mine.data(99, b"x"))
        while StreamData(7, b"", fin=True) not in events:
            events += mine.receive(await reader.read(1000))
        for stream, kind in ((13, "error"), (15, "data")):  # the end of the first makes room
            writer.write(mine.open(stream, {"streamtype": kind, **fine, "requestid": "2"}))
        writer.write(mine.data(15, b"three", fin=True))
        while StreamData(13, b"", fin=True) not in events:
            events += mine.receive(await reader.read(1000))
    resets = {each.id for each in events if isinstance(each, StreamReset)}
    assert resets == {1, 3, 5, 9}
    pieces = [each.data for each in events if isinstance(each, StreamData) and each.id == 11]
    assert b"".join(pieces) == b"ONE TWO"
    assert StreamData(15, b"THREE", fin=False) in events


async def test_half_a_connection_is_given_up(api, containers, monkeypatch):
    monkeypatch.setattr(streaming, "OPENING_SECONDS", 0.2)
    monkeypatch.setattr(streaming, "MOST_STREAMS", 2)
    mine, texts, ends = SpdyConnection(), {}, set()
    async with (
        shouting() as port,
        switched(api, "portforward", "portforward.k8s.io") as (reader, writer),
        asyncio.timeout(SECONDS),
    ):
        for streams in ({1: "error", 3: "data"}, {5: "error", 7: "data"}):  # there is room again
            for stream, kind in streams.items():
                request = str(stream) if 1 in streams else "together"
                headers = {"streamtype": kind, "port": str(port), "requestid": request}
                writer.write(mine.open(stream, headers))
            writer.write(mine.data(7, b"late", fin=True))
            while not ends.issuperset(streams):
                data = await reader.read(1000)
                assert data
                for each in mine.receive(data):
                    if isinstance(each, StreamData):
                        texts[each.id] = texts.get(each.id, b"") + each.data
                        ends |= {each.id} if each.fin else set()
    assert texts == {1: b"timed out waiting for streams", 3: b"", 5: b"", 7: b"LATE"}


@pytest.mark.parametrize("path", ["portforward", "exec?stdin=1&command=sleep&command=60"])
async def test_a_connection_ends_on_which_nothing_passes(api, containers, monkeypatch, path):
    monkeypatch.setattr(streaming, "IDLE_SECONDS", 0.2)
    protocol = "v4.channel.k8s.io" if path.startswith("exec") else "portforward.k8s.io"
    async with switched(api, path, protocol) as (reader, _), asyncio.timeout(SECONDS):
        assert await reader.read() == b""


# ---- kubelets that misbehave ---------------------------------------------------------------------


CHUNKED = (
    b"HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nno at\r\n4\r\n all\r\n0\r\n\r\n"
)
BARE = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
BAD = {
    "refusing": (None, 503, "Connect call failed"),
    "silent": (silent, 504, "no answer within 0.3 s"),
    "without TLS": ("plain", 504, "no answer within 0.3 s"),
    "closing": (saying(), 502, ""),
    "not HTTP": (saying(b"SSH-2.0-x\r\n\r\n"), 502, ""),
    "without end": (saying(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 40_000), 502, ""),
    "refusing politely": (saying(CHUNKED), 403, "no at all"),
}


@pytest.mark.parametrize("how", BAD)
@pytest.mark.embedded
async def test_a_kubelet_that_does_not_answer_is_named(api, monkeypatch, how):
    answer, status, text = BAD[how]
    if status == 504:
        monkeypatch.setattr(backends, "CONNECT_SECONDS", 0.3)
        monkeypatch.setattr(backends, "ANSWER_SECONDS", 0.3)
    plain = answer == "plain"
    async with KubeletDouble(api.server.ca, silent if plain else answer, plain=plain) as double:
        await bound(api, double.port)
        if answer is None:
            await double.__aexit__()
        upgrade = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
        for path, headers in (("log", {}), ("exec?stdout=1&command=a", upgrade)):
            found = await api.get(f"{PODS}/p/{path}", headers=headers)
            assert (found.status, text in found.text) == (status, True), found
            if status != 403:
                assert found.body["kind"] == "Status"
                start = f"error dialing backend: node n at 127.0.0.1:{double.port}: "
                assert found.body["message"].startswith(start)
    await until(lambda: not double.open)


@pytest.mark.embedded
async def test_a_log_that_breaks_off_breaks_off(api):
    cut = saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
    async with KubeletDouble(api.server.ca, cut) as double:
        await bound(api, double.port)
        with pytest.raises(httpx.RemoteProtocolError):
            await api.get(f"{PODS}/p/log?follow=true")


@pytest.mark.embedded
async def test_bytes_pass_in_both_directions_and_so_does_the_end(api):
    async with KubeletDouble(api.server.ca, echo) as double:
        await bound(api, double.port)
        async with switched(api) as (reader, writer):
            assert await reader.readexactly(6) == b"hello "
            sent = bytes(range(256)) * 4000
            writer.write(sent)
            assert await reader.readexactly(len(sent)) == sent
            assert double.open == 1
        await until(lambda: not double.open)
        (head,) = double.asked
        assert head.startswith("POST /exec/default/p/c?input=1&command=a HTTP/1.1\r\n")
        assert "X-Stream-Protocol-Version: v4.channel.k8s.io\r\n" in head
        assert "authorization" not in head.lower()
        assert double.names == [
            {
                "organizationName": "kubeadm:cluster-admins",
                "commonName": "kube-apiserver-kubelet-client",
            }
        ]


@pytest.mark.embedded
async def test_a_kubelet_that_ends_ends_the_connection(api):
    async with KubeletDouble(api.server.ca, saying(SWITCH + b"bye")) as double:
        await bound(api, double.port)
        async with switched(api) as (reader, _):
            assert await reader.read() == b"bye"


@pytest.mark.embedded
async def test_a_kubelet_that_does_not_read_slows_its_client_down(api):
    async with KubeletDouble(api.server.ca, deaf) as double:
        await bound(api, double.port)
        async with switched(api) as (_, writer):
            with anyio.move_on_after(1) as waiting:
                for _ in range(1000):
                    writer.write(bytes(1024 * 1024))
                    await writer.drain()
            assert waiting.cancelled_caught
        await until(lambda: not double.open)


@pytest.mark.embedded
async def test_a_client_may_read_as_late_as_it_wants(api, monkeypatch):
    monkeypatch.setattr(server_limits, "PATIENCE_SECONDS", 0.1)
    long = bytes(30 * 1024 * 1024)
    log = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(long)
    async with (
        KubeletDouble(api.server.ca, saying(SWITCH, long)) as first,
        KubeletDouble(api.server.ca, saying(log, long)) as second,
    ):
        await bound(api, first.port)
        async with switched(api) as (reader, _):
            await anyio.sleep(0.5)
            assert len(await reader.read()) == len(long)
        endpoint = {"kubeletEndpoint": {"Port": second.port}}
        await api.patch("/api/v1/nodes/n/status", {"status": {"daemonEndpoints": endpoint}})
        async with api.client.stream("GET", f"{PODS}/p/log") as response:
            await anyio.sleep(0.5)
            assert len(await response.aread()) == len(long)


@pytest.mark.embedded
async def test_open_connections_end_with_the_server():
    server = await ApiServer().__aenter__()
    async with KubeletDouble(server.ca, echo) as double, opened(server) as api:
        await bound(api, double.port)
        async with switched(api) as (reader, _):
            await reader.readexactly(6)
            before = time.monotonic()
            await server.__aexit__()
            assert await reader.read() == b""
            assert time.monotonic() - before < 1.5
