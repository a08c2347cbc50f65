"""Hostile requests, drawn at random: what is no HTTP, no JSON, too much, or of wrong types."""

from __future__ import annotations

import json
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
    lambda r: b"",
)
BROKEN = (
    *(b"GET\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 50),
    *(b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"A" * 9000),
    *(b"POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",),
    *(b"POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",),
    *(b"POST /api HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",),
    *(b"GET /api HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 3000 + b"\r\n",),
)


def hurt(random: Random, value: Any) -> Any:
    """The data with values of other types at one or a few places."""
    if random.random() < 0.25 or not isinstance(value, dict | list) or not value:
        return random.choice(ODD)
    if isinstance(value, list):
        at = random.randrange(len(value))
        return [hurt(random, each) if i == at else each for i, each in enumerate(value)]
    key = random.choice(list(value))
    found = {**value, key: hurt(random, value[key])}
    if random.random() < 0.1:
        found[random.choice(("", "$patch", "\0", "kind", "a" * 300))] = random.choice(ODD)
    return found


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
    path = random.choice(OBJECTS)
    method = random.choice(("POST", "PUT", "PATCH", "GET", "DELETE", "POST", "PATCH", "TRACE"))
    if method in ("PUT", "PATCH", "DELETE") or random.random() < 0.2:
        path += random.choice(("/h", "/h/status", "/h/scale", "/%00", "/" + "a" * 300, "/h/x/y"))
    if random.random() < 0.4:
        names = ("limit", "continue", "labelSelector", "fieldSelector", "dryRun", "resourceVersion")
        more = ("fieldManager=a&force=true", "fieldValidation=%ff", "pretty=%00", "timeout=-1s")
        values = ("9" * 40, "%00", "%ff%fe", "a" * 4000, "((((", "a in (", "All", "-1")
        pair = f"{random.choice(names)}={random.choice(values)}"
        path += "?" + random.choice((pair, random.choice(more)))
    body = random.choice(SHAPES)(random)
    if random.random() < 0.6:
        body = json.dumps(hurt(random, random.choice(samples))).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": random.choice(TYPES)}
    return written(method, path, body, headers, random)


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
