"""Hostile requests, drawn at random: what is no HTTP, no JSON, too much, or of wrong types."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

OBJECTS = (
    *("/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods", "/api/v1/nodes"),
    *("/apis/batch/v1/namespaces/default/jobs", "/apis/apps/v1/namespaces/default/deployments"),
    *("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/api/v1/namespaces"),
    *("/apis/rbac.authorization.k8s.io/v1/clusterroles", "/api/v1/namespaces/default/secrets"),
)
TYPES = (
    *("application/json", "application/yaml", "application/merge-patch+json", "text/plain", ""),
    *("application/json-patch+json", "application/strategic-merge-patch+json"),
    *("application/apply-patch+yaml", "application/vnd.kubernetes.protobuf", "a/b; charset=\x01"),
)
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**63, 2**70, 1e308, "", "x" * 5000, "\0", "\x7f", "ä" * 300, "%s%n"),
    *([], {}, [None], [[]], [{}], {"": ""}, {"a": None}, {"$patch": "delete"}, [1, "a", {}]),
)
SHAPES: tuple[Callable[[Random], bytes], ...] = (
    lambda r: b"[" * r.choice((900, 1100, 100_000)),
    lambda r: b'{"a":' * r.choice((900, 1100, 50_000)),
    lambda r: b'{"metadata":{"name":"h"},"data":{' + b'"a":"b",' * 20_000 + b'"c":"d"}}',
    lambda r: b"[" + b"{}," * r.choice((1000, 100_000)) + b"{}]",
    lambda r: b"a: &a [x,x,x]\nb: &b [*a,*a,*a]\nc: &c [*b,*b,*b]\n" * r.choice((1, 50)),
    lambda r: b"&a [*a]",
    lambda r: b"- " * 3000,
    lambda r: bytes(r.randrange(256) for _ in range(r.randrange(200))),
    lambda r: b'"' + b"\\ud800" * 50 + b'"',
    lambda r: b"k8s\0" + bytes(r.randrange(256) for _ in range(60)),
    lambda r: b"\xff\xfe{}",
    lambda r: b"!!python/object/apply:os.system [x]",
    lambda r: b"1" * r.choice((10, 5000)),
    lambda r: b'{"metadata":{"name":"h"},"data":{"a":' + r.choice((b"NaN", b"Infinity")) + b"}}",
    lambda r: b'{"spec":{"replicas":' + b"9" * r.choice((25, 4000)) + b".0e-5}}",
    lambda r: gzip.compress(b"0" * 5_000_000),
    lambda r: zlib.compress(b"{}" * 1000),
    lambda r: b"k8s\0\n\x0f\n\x02v1\x12\tConfigMap\x12" + b"\xff" * r.choice((5, 5000)),
    lambda r: b'[{"op":"copy","from":"","path":"/a"}' + b',{"op":"test","path":"/x"}' * 500 + b"]",
    lambda r: b"",
)
BROKEN = (
    *(b"GET\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 50),
    *(b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"A" * 9000),
    *(b"POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",),
    *(b"POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",),
    *(b"POST /api HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",),
    *(b"GET /api HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 3000 + b"\r\n",),
    (
        b"POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    ),
    b"POST /api HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: x, chunked, x\r\n\r\n0\r\n\r\n",
    b"POST /api HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}",
    b"POST /api HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2;" + b"e" * 20_000,
    b"GET /api HTTP/1.1\r\nHost: x\r\nHost: y\r\nAccept: a\r\nAccept: b\r\n\r\n",
    b"GET /api\xff\xfe/v1?\xc3\x28 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /api HTTP/1.1\r\nHost: x\r\n folded: y\r\nX\0Y: z\r\n\r\n",
    b"GET http://[::1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /api HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    + b"\xff" * 99,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 40,
)
PODS = "/api/v1/namespaces/default/pods/h"
ODD_PATHS = (
    *(
        f"{PODS}/{each}"
        for each in ("exec?command=a", "attach", "log?tailLines=-1", "proxy/a/../b")
    ),
    *(f"{PODS}/{each}" for each in ("portforward?ports=9", "eviction", "binding", "x" * 900)),
    *("/api/v1/nodes/n/proxy/x", "/api/v1/namespaces/default/services/s:%00/proxy/", "/%2e%2e/etc"),
    *(
        "/apis/" + "a/" * 200,
        "/api/v1/watch/pods/h",
        "/openapi/v3/apis/%ff",
        "/openapi/v2?timeout=-1",
    ),
    *("/api/v1/namespaces/%2f/pods", "/api//v1//pods", "/logs/../x", "/version?" + "a=b&" * 900),
)


def hurt(random: Random, value: Any) -> Any:
    """The data with values of other types at one or a few places."""
    if random.random() < 0.25 or not isinstance(value, dict | list) or not value:
        return random.choice(ODD)
    if isinstance(value, list):
        at = random.randrange(len(value))
        return [hurt(random, each) if i == at else each for i, each in enumerate(value)]
    key = random.choice(list(value))
    damaged = {**value, key: hurt(random, value[key])}
    if random.random() < 0.1:
        damaged[random.choice(("", "$patch", "\0", "kind", "a" * 300))] = random.choice(ODD)
    return damaged


def hurt_review(random: Random, review: dict[str, Any]) -> Any:
    """The review with values of other types, mostly inside one of its objects."""
    request = review["request"]
    inside = [name for name in ("object", "oldObject", "objects") if request.get(name)]
    if random.random() < 0.25:
        return hurt(random, review)
    name = random.choice(inside)
    return {**review, "request": {**request, name: hurt(random, request[name])}}


def written(method: str, path: str, body: bytes, headers: dict[str, str], random: Random) -> bytes:
    """A request as it is on the wire."""
    if random.random() < 0.05:
        name = random.choice(("Authorization", "Content-Encoding", "Accept", "Expect", "Cookie"))
        headers |= {name: random.choice(("Bearer \xff\xfe", "gzip", "x" * 3000, "\t", "100-huh"))}
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body


def to_server(random: Random, token: str, samples: list[dict[str, Any]]) -> bytes:
    """One for an API server."""
    if random.random() < 0.03:
        return random.choice(BROKEN)
    if random.random() < 0.05:
        method, path = random.choice(("GET", "POST", "HEAD", "OPTIONS")), random.choice(ODD_PATHS)
        return written(method, path, b"", {"Authorization": f"Bearer {token}"}, random)
    path = random.choice(OBJECTS)
    method = random.choice(("POST", "PUT", "PATCH", "GET", "DELETE", "POST", "PATCH", "TRACE"))
    if method in ("PUT", "PATCH", "DELETE") or random.random() < 0.2:
        path += random.choice(("/h", "/h/status", "/h/scale", "/%00", "/" + "a" * 300, "/h/x/y"))
    if random.random() < 0.4:
        names = ("limit", "continue", "labelSelector", "fieldSelector", "dryRun", "resourceVersion")
        more = ("watch=1&timeoutSeconds=1&sendInitialEvents=x", "watch=true&timeoutSeconds=1&a=b")
        more = (
            *more,
            "fieldManager=a&force=true",
            "fieldValidation=%ff",
            "pretty=%00",
            "timeout=-1s",
        )
        values = ("9" * 40, "%00", "%ff%fe", "a" * 4000, "((((", "a in (", "All", "-1")
        pair = f"{random.choice(names)}={random.choice(values)}"
        path += "?" + random.choice((pair, random.choice(more)))
    body = random.choice(SHAPES)(random)
    if random.random() < 0.6:
        body = json.dumps(hurt(random, random.choice(samples))).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": random.choice(TYPES)}
    return written(method, path, body, headers, random)


def _definition(pattern: str, count: int) -> dict[str, Any]:
    """A definition with patterns, in which @ is a number."""
    fields = {
        f"p{i}": {"type": "string", "pattern": pattern.replace("@", str(i))} for i in range(count)
    }
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"plural": "xs", "kind": "X"}
    spec = {"group": "a.io", "scope": "Namespaced", "names": names, "versions": [version]}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**head, "metadata": {"name": "xs.a.io"}, "spec": spec}


def _large() -> list[tuple[str, str, bytes]]:
    """Path, name and body of objects that are much work."""
    many = {f"k{i}": "v" for i in range(60_000)}
    containers = [{"name": f"c{i}", "image": "i"} for i in range(20_000)]
    envs = [{"name": f"e{i}", "value": "x"} for i in range(20_000)]
    objects: list[tuple[str, Any]] = [
        (OBJECTS[5], _definition("(a@){1,900}", 3000)),
        (OBJECTS[5], _definition("a{1,900}", 3000)),
        (OBJECTS[5], _definition("^(a|b|c@)*[a-z]{1,500}$", 400)),
        (OBJECTS[0], {"metadata": {"name": "h"}, "data": many}),
        (OBJECTS[0], {"metadata": {"name": "h", "labels": many}}),
        (OBJECTS[1], {"metadata": {"name": "h"}, "spec": {"containers": containers}}),
        (
            OBJECTS[1],
            {
                "metadata": {"name": "h"},
                "spec": {"containers": [{"name": "c", "image": "i", "env": envs}]},
            },
        ),
    ]
    return [(path, obj["metadata"]["name"], json.dumps(obj).encode()) for path, obj in objects]


LARGE = _large()


def large_to_server(random: Random, token: str) -> bytes:
    """A large object for an API server: made, applied, deleted."""
    path, name, body = random.choice(LARGE)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    verb = random.choice(("POST", "POST", "PATCH", "DELETE", "YAML"))
    if verb == "POST":
        return written("POST", path, body, headers, random)
    if verb == "PATCH":
        headers["Content-Type"] = "application/apply-patch+yaml"
        return written("PATCH", f"{path}/{name}?fieldManager=a&force=1", body, headers, random)
    if verb == "DELETE":
        return written("DELETE", f"{path}/{name}?gracePeriodSeconds=0", b"", headers, random)
    headers["Content-Type"] = "application/yaml"
    keys = b"".join(b"k%d: {a: [b, c]}\n" % i for i in range(random.choice((2_000, 120_000))))
    return written("POST", path, b"metadata: {name: h}\n" + keys, headers, random)


def large_to_webhook(random: Random, paths: tuple[str, ...]) -> bytes:
    """A large review for the webhooks of a manager."""
    path, inner = random.choice(paths), random.choice((b"{}", b"[]", b'{"a":1}', b'"x"', b"1"))
    kind = "ConversionReview" if path == "/convert" else "AdmissionReview"
    size = random.choice((500_000, 4_800_000)) // (len(inner) + 1)
    if kind == "ConversionReview":
        field, rest = b"objects", b""
    else:
        field, rest = b"object", b',"operation":"CREATE"'
    body = b'{"kind":"%s","apiVersion":"v1","request":{"uid":"1","%s":[%s]%s}}' % (
        kind.encode(),
        field,
        b",".join([inner] * size),
        rest,
    )
    return written("POST", path, body, {"Content-Type": "application/json"}, random)


def to_webhook(random: Random, paths: tuple[str, ...], reviews: list[dict[str, Any]]) -> bytes:
    """One for the webhooks of a manager."""
    if random.random() < 0.03:
        return random.choice(BROKEN)
    body, review = random.choice(SHAPES)(random), random.choice(reviews)
    kind = str((review["request"].get("kind") or {}).get("kind")).lower()
    fitting = [each for each in paths if each.endswith(f"-{kind}")] or ["/convert"]
    path = random.choice(fitting if random.random() < 0.8 else paths)
    if random.random() < 0.7:
        body = json.dumps(hurt_review(random, review)).encode()
    elif random.random() < 0.1:
        kind = random.choice(("ConversionReview", "AdmissionReview"))
        head = {"kind": kind, "apiVersion": "v1", "request": {"uid": "1", "objects": "@"}}
        body = json.dumps(head).encode().replace(b'"@"', b"[" + b"{}," * 1_000_000 + b"{}]")
    method = random.choice(("POST",) * 9 + ("GET",))
    headers = {"Content-Type": random.choice(("application/json",) * 9 + TYPES[1:3])}
    return written(method, path, body, headers, random)
