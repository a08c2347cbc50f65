"""The visibility API: what it answers, to whom, on an embedded server that obeys roles."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from kueuelib.api.kinds import CONFIG_MAPS
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.controllers.visibility.server import (
    Caller,
    Delegation,
    FrontProxy,
    VisibilityServer,
    front_proxy,
    proxied,
)
from kueuelib.controllers.visibility.summary import (
    PendingPage,
    PredictedStart,
    PredictedStarts,
    page_of,
    summary,
)
from kueuelib.embedded.credentials import Authority
from kueuelib.embedded.server import ApiServer
from kueuelib.errors import BadRequest
from kueuelib.runtime.certificates import host_names, load, renewed, server_context
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import connect
from kueuelib.runtime.queries import PatchType
from kueuelib.scheduler import events
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.world import World
from kueuelib.testing.builders import (
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
)

API = "/apis/visibility.kueue.x-k8s.io"
OF_QUEUE = f"{API}/v1beta2/clusterqueues/cq/pendingworkloads"
OWN_LOCAL = "/apis/visibility.kueuelib.dev/v1alpha1/namespaces/ns/localqueues/lq/pendingworkloads"
OF_LOCAL = f"{API}/v1beta1/namespaces/ns/localqueues/lq/pendingworkloads"
RBAC = "rbac.authorization.k8s.io"
TRUST = {
    "requestheader-allowed-names": '["front-proxy"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}


def engine() -> Engine:
    """ClusterQueue `cq` with a LocalQueue `lq` in `ns` and in `other`, and five that wait."""
    world = World().with_flavor(make_flavor("f"))
    world = world.with_cluster_queue(make_cluster_queue("cq", {"f": {"cpu": 1}}))
    for namespace in ("ns", "other"):
        world = world.with_namespace(namespace, {})
        world = world.with_local_queue(make_local_queue("lq", "cq", namespace))
    world = world.with_local_queue(make_local_queue("lost", "absent", "ns"))
    for number, (namespace, priority) in enumerate(
        [("ns", 0), ("other", 0), ("ns", 0), ("ns", 5), ("other", 9)]
    ):
        fields: Any = {"namespace": namespace, "priority": priority, "created": number}
        world = world.with_workload(make_workload(f"w{number}", "lq", {"cpu": 2}, **fields))
    return world.engine(100.0)


class Starts:
    """Predicts the start of one Workload."""

    def __init__(self) -> None:
        self.asked = 0

    async def of(self, cluster_queue: str) -> PredictedStarts:
        self.asked += 1
        starts = {ObjectKey("ns", "w3"): PredictedStart(120.0, None, "too few")}
        return PredictedStarts(100.0, starts, "only the first")


def positions(body: Obj) -> list[tuple[str, int, int]]:
    return [
        (one["metadata"]["name"], one["positionInClusterQueue"], one["positionInLocalQueue"])
        for one in body["items"]
    ]


# --- pure


def test_the_order_is_the_engines_and_positions_begin_at_0() -> None:
    body = summary("v1beta2", engine().pending("cq"), PendingPage())
    assert (body["kind"], body["apiVersion"]) == (
        "PendingWorkloadsSummary",
        "visibility.kueue.x-k8s.io/v1beta2",
    )
    assert positions(body) == [
        ("w4", 0, 0),
        ("w3", 1, 0),
        ("w0", 2, 1),
        ("w1", 3, 1),
        ("w2", 4, 2),
    ]
    assert body["items"][0] == {
        "metadata": {
            "name": "w4",
            "namespace": "other",
            "creationTimestamp": "1970-01-01T00:00:04Z",
        },
        "priority": 9,
        "localQueueName": "lq",
        "positionInClusterQueue": 0,
        "positionInLocalQueue": 0,
    }


def test_a_local_queue_of_the_same_name_elsewhere_does_not_count() -> None:
    body = summary("v1beta1", engine().pending("cq"), PendingPage(), ObjectKey("ns", "lq"))
    assert positions(body) == [("w3", 1, 0), ("w0", 2, 1), ("w2", 4, 2)]


def test_the_order_follows_changes_between_two_pages() -> None:
    found, one = engine(), PendingPage(limit=1)
    (first,) = summary("v1beta2", found.pending("cq"), one)["items"]
    name, namespace = first["metadata"]["name"], first["metadata"]["namespace"]
    found.observe(events.WorkloadGone(ObjectKey(namespace, name)), 9.0)
    (second,) = summary("v1beta2", found.pending("cq"), one)["items"]
    assert second["metadata"]["name"] != name
    back: Any = {"namespace": namespace, "priority": 99}
    found.observe(events.WorkloadSet(make_workload(name, "lq", **back)), 10.0)
    (again,) = summary("v1beta2", found.pending("cq"), one)["items"]
    assert (again["metadata"]["name"], again["priority"]) == (name, 99)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"limit": "2"}, ["w4", "w3"]),
        ({"offset": "1", "limit": "2"}, ["w3", "w0"]),
        ({"offset": "4"}, ["w2"]),
        ({"offset": "5", "limit": "0"}, []),
    ],
)
def test_a_page_is_a_part_with_the_same_positions(query: dict[str, str], names: list[str]) -> None:
    body = summary("v1beta2", engine().pending("cq"), page_of(query))
    assert [name for name, *_ in positions(body)] == names
    whole = positions(summary("v1beta2", engine().pending("cq"), PendingPage()))
    assert set(positions(body)) <= set(whole)


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "9" * 19])
def test_a_page_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="limit"):
        page_of({"limit": text})


def test_the_api_server_is_known_by_its_certificate() -> None:
    proxy = front_proxy({"data": {**TRUST, "requestheader-client-ca-file": "pem"}})
    headers = {
        "X-Remote-User": "ann",
        "X-Remote-Group": "dev",
        "X-Remote-Extra-Acme.io%2fScope": "a",
    }
    theirs = {"subject": ((("commonName", "front-proxy"),),)}

    def asked(proxy: FrontProxy, certificate: Any, headers: dict[str, str]) -> Caller | None:
        return proxied(proxy, certificate, headers, lambda name: [headers[name]])

    found = asked(proxy, theirs, headers)
    assert found == Caller("ann", ("dev",), "", {"acme.io/scope": ["a"]})
    assert asked(proxy, None, headers) is None
    assert asked(proxy, {"subject": ((("commonName", "evil"),),)}, headers) is None
    assert asked(proxy, theirs, {"X-Remote-Group": "dev"}) is None
    assert asked(front_proxy({"data": TRUST}), theirs, headers) is None
    assert front_proxy({"data": {"requestheader-allowed-names": "{"}}) == FrontProxy()


# --- on a server


class Place:
    """A server that obeys roles, and the visibility API beside it."""

    def __init__(
        self, server: ApiServer, client: Client, port: int, authority: Authority, starts: Starts
    ) -> None:
        self.server, self.client, self.starts = server, client, starts
        self._url, self._authority = f"https://127.0.0.1:{port}", authority

    async def allow(self, user: str, resource: str, namespace: str = "") -> str:
        """A user who may read that; the token."""
        kind = "Role" if namespace else "ClusterRole"
        meta = {"name": f"{user}-{resource}", **({"namespace": namespace} if namespace else {})}
        rule = {
            "apiGroups": ["visibility.kueue.x-k8s.io", "visibility.kueuelib.dev"],
            "resources": [f"{resource}/pendingworkloads"],
            "verbs": ["get"],
        }
        for what, obj in (
            (kind, {"rules": [rule]}),
            (
                f"{kind}Binding",
                {
                    "roleRef": {"apiGroup": RBAC, "kind": kind, "name": meta["name"]},
                    "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
                },
            ),
        ):
            plural = f"{what.lower()}s"
            resource_ = Resource(RBAC, "v1", plural, what, namespaced=bool(namespace))
            full = {"apiVersion": f"{RBAC}/v1", "kind": what, "metadata": meta, **obj}
            await self.client.create(resource_, full)
        return self.server.add_user(user)

    async def get(
        self, path: str, token: str = "", *, user: str = "", name: str = "front-proxy"
    ) -> tuple[int, Any]:
        """The answer, asked with a token or as the API server that hands on a user's request."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if user:
            headers["X-Remote-User"] = user
            cert, key = self._authority.issue(name)
            path_ = Path(self._folder, f"{name}.pem")
            await asyncio.to_thread(path_.write_bytes, key + cert)
            context.load_cert_chain(path_)
        async with (
            aiohttp.ClientSession() as session,
            session.get(self._url + path, headers=headers, ssl=context) as answer,
        ):
            raw = await answer.read()
            return answer.status, orjson.loads(raw) if raw[:1] == b"{" else raw.decode()

    _folder = ""


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    authority = Authority(time.time(), "front-proxy-ca")
    async with ApiServer(authorization="rbac") as server:
        path = tmp_path / "kubeconfig"
        await asyncio.to_thread(path.write_bytes, orjson.dumps(server.kubeconfig()))
        async with await connect(path) as client:
            key = ObjectKey("kube-system", "extension-apiserver-authentication")
            data = {**TRUST, "requestheader-client-ca-file": authority.pem.decode()}
            await client.patch(CONFIG_MAPS, key, {"data": data}, PatchType.MERGE)
            context = server_context()
            load(context, renewed(None, host_names(["127.0.0.1"]), time.time()))
            starts = Starts()
            api = VisibilityServer("127.0.0.1", 0, context, client, engine(), starts)
            started = asyncio.Event()
            task = asyncio.create_task(api.run(started.set))
            try:
                await asyncio.wait_for(started.wait(), 60)
                found = Place(server, client, api.port, authority, starts)
                found._folder = str(tmp_path)
                yield found
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


async def test_roles_decide_who_reads_which_queue(place: Place) -> None:
    admin = await place.allow("admin", "clusterqueues")
    tenant = await place.allow("tenant", "localqueues", "ns") if await _namespace(place) else ""
    status, body = await place.get(f"{OF_QUEUE}?limit=1", admin)
    assert (status, positions(body)) == (200, [("w4", 0, 0)])
    status, body = await place.get(OF_LOCAL, tenant)
    assert (status, body["apiVersion"]) == (200, "visibility.kueue.x-k8s.io/v1beta1")
    assert positions(body) == [("w3", 1, 0), ("w0", 2, 1), ("w2", 4, 2)]
    for path, token in (
        (OF_QUEUE, tenant),
        (OF_LOCAL.replace("/ns/", "/other/"), tenant),
        (OF_LOCAL, admin),
    ):
        status, body = await place.get(path, token)
        assert (status, body["reason"]) == (403, "Forbidden")
        assert "cannot get resource" in body["message"]


async def _namespace(place: Place) -> bool:
    resource = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
    await place.client.create(resource, {"metadata": {"name": "ns"}})
    return True


async def test_the_api_server_hands_on_whose_request_it_is(place: Place) -> None:
    await place.allow("ann", "clusterqueues")
    status, body = await place.get(OF_QUEUE, user="ann")
    assert (status, len(body["items"])) == (200, 5)
    assert (await place.get(OF_QUEUE, user="bob"))[0] == 403
    assert (await place.get(OF_QUEUE, user="ann", name="somebody-else"))[0] == 401


async def test_what_is_not_there_or_not_known_is_a_status(place: Place) -> None:
    token = place.server.token
    cases = {
        f"{API}/v1beta2/clusterqueues/absent/pendingworkloads": 404,
        f"{API}/v1beta2/namespaces/ns/localqueues/absent/pendingworkloads": 404,
        f"{API}/v1beta2/clusterqueues/cq": 404,
        f"{API}/v1alpha1/clusterqueues/cq/pendingworkloads": 404,
        f"{API}/v1beta2/localqueues/lq/pendingworkloads": 404,
        f"{API}/v1beta2/namespaces/ns/clusterqueues/cq/pendingworkloads": 404,
        f"{OF_QUEUE}?limit=-1": 400,
    }
    for path, code in cases.items():
        status, body = await place.get(path, token)
        assert (status, body["kind"], body["code"]) == (code, "Status", code), path
    assert (await place.get(OF_QUEUE))[0] == 401
    assert (await place.get(OF_QUEUE, "nobodys"))[0] == 401
    status, body = await place.get(
        f"{API}/v1beta2/namespaces/ns/localqueues/lost/pendingworkloads", token
    )
    assert (status, body["items"]) == (200, [])


async def test_our_own_group_also_has_expected_starts(place: Place) -> None:
    await _namespace(place)
    tenant = await place.allow("tenant", "localqueues", "ns")
    status, body = await place.get(f"{OWN_LOCAL}?workload=w3", tenant)
    assert (status, body["apiVersion"]) == (200, "visibility.kueuelib.dev/v1alpha1")
    (item,) = body["items"]
    assert item["positionInClusterQueue"] == 1
    assert item["expectedStart"] == {"p50": "1970-01-01T00:02:00Z", "unknown": "too few"}
    _, body = await place.get(OWN_LOCAL, tenant)
    assert positions(body) == [("w3", 1, 0), ("w0", 2, 1), ("w2", 4, 2)]
    assert body["items"][1]["expectedStart"] == {"unknown": "only the first"}
    # Those of other namespaces stay unknown, and so does what does not wait.
    for name in ("w4", "absent"):
        assert (await place.get(f"{OWN_LOCAL}?workload={name}", tenant))[1]["items"] == []
    assert (await place.get(OWN_LOCAL.replace("/ns/", "/other/"), tenant))[0] == 403
    assert place.starts.asked <= 2


async def test_discovery_tells_what_an_api_server_merges_into_its_own(place: Place) -> None:
    token = place.server.token
    status, body = await place.get(f"{API}/v1beta2", token)
    assert status == 200
    assert {one["name"]: (one["namespaced"], one["verbs"]) for one in body["resources"]} == {
        "clusterqueues": (False, []),
        "clusterqueues/pendingworkloads": (False, ["get"]),
        "localqueues": (True, []),
        "localqueues/pendingworkloads": (True, ["get"]),
    }
    _, group = await place.get(API, token)
    assert [one["version"] for one in group["versions"]] == ["v1beta2", "v1beta1"]
    assert (await place.get("/apis", token))[1]["groups"][0]["name"] == group["name"]
    for path in ("/openapi/v2", "/openapi/v3", "/version"):
        assert (await place.get(path, token))[0] == 200
    assert await place.get("/healthz") == (200, "ok")


async def test_without_rights_to_the_authority_headers_are_not_believed(place: Place) -> None:
    key = ObjectKey("kube-system", "extension-apiserver-authentication")
    nobody = place.server.add_user("nobody")
    config = orjson.dumps(place.server.kubeconfig(nobody))
    path = Path(place._folder, "nobody")
    await asyncio.to_thread(path.write_bytes, config)
    async with await connect(path) as client:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        found = Delegation(client, context)
        await found.learn()
        assert (found.proxy, context.verify_mode) == (FrontProxy(), ssl.CERT_NONE)
    broken = {"data": {"requestheader-client-ca-file": "rubbish"}}
    await place.client.patch(CONFIG_MAPS, key, broken, PatchType.MERGE)
    found = Delegation(place.client, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    await found.learn()
    assert found.proxy == FrontProxy()
