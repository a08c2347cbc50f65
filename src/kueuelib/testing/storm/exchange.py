"""HTTP exchanges on the in-memory wire, as the adversary sees them.

Nothing here sends or waits: bytes come in, messages, calls and events come out.
"""

from __future__ import annotations

import http
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, Protocol
from urllib.parse import unquote

import attrs
import orjson

__all__ = [
    "ChunkLines",
    "ObservedRequest",
    "Request",
    "RequestRecognizer",
    "body_of",
    "chunk",
    "message_length",
    "response",
]

_HEAD_END: Final = b"\r\n\r\n"
_BODILESS: Final = (b"204", b"304")
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CHUNKED: Final = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked", re.IGNORECASE)
_TYPE: Final = re.compile(rb"\r\ncontent-type:[ \t]*([^\r]*)", re.IGNORECASE)
_WATCH: Final = re.compile(r"(?:^|&)watch=(?:true|1)(?:&|$)")
_WEBHOOK: Final = "webhook"
LAST_CHUNK: Final = b"0\r\n\r\n"


@attrs.frozen
class ObservedRequest:
    """One complete HTTP request, seen on the wire before the server receives it.

    Attributes:
        owner: The simulated process that sent it, for example `manager-1`.
        peer: The process that receives it: `server`, or `webhook@manager-1`.
        method: The HTTP method, in upper case.
        path: The decoded path of the URL.
        query: The raw query string, without the question mark.
        verb: The Kubernetes verb (get list watch create update patch apply delete
            deletecollection), or `webhook`.
        resource: The resource with its group, for example `workloads.kueue.x-k8s.io`.
        namespace: The namespace, or an empty string.
        name: The name of the object, or an empty string.
        subresource: The subresource, or an empty string.
        ordinal: The number of earlier calls with the same owner, verb, resource, namespace, name
            and subresource.
        body: The bytes of the request's body.
    """

    owner: str
    peer: str
    method: str
    path: str
    query: str
    verb: str
    resource: str
    namespace: str
    name: str
    subresource: str
    ordinal: int
    body: bytes = b""

    @property
    def title(self) -> str:
        """Its name in a timeline: `update workloads.kueue.x-k8s.io/status default/one`."""
        part = f"/{self.subresource}" if self.subresource else ""
        place = f"{self.namespace}/{self.name}".strip("/")
        what = f"{self.resource}{part}" if self.resource else self.path
        return f"{self.verb} {what} {place}".rstrip()


class Witness(Protocol):
    """Observes sent calls and arriving answers."""

    def sent(self, call: ObservedRequest, now: float) -> None:
        """A call is sent."""

    def answered(self, call: ObservedRequest, status: int, body: bytes, now: float) -> None:
        """The whole answer to a call has arrived."""

    def reborn(self, owner: str) -> None:
        """A process of that name starts."""

    def woken(self, owner: str, now: float) -> None:
        """A paused process continues."""


def head_length(data: bytes | bytearray) -> int:
    """The length of the head of a message, with the empty line; 0 while it is incomplete."""
    end = data.find(_HEAD_END)
    return end + len(_HEAD_END) if end >= 0 else 0


def is_chunked(head: bytes) -> bool:
    """Whether the body is chunked."""
    return _CHUNKED.search(head) is not None


def message_length(data: bytes | bytearray, *, bodiless: bool = False) -> int:
    """The length of the first message; 0 while it is incomplete.

    Args:
        data: the bytes so far.
        bodiless: whether it is the answer to a HEAD.
    """
    start = head_length(data)
    if not start:
        return 0
    head = bytes(data[:start])
    if bodiless or head[9:12] in _BODILESS:
        return start
    if is_chunked(head):
        at = start
        while True:
            line = data.find(b"\r\n", at)
            if line < 0:
                return 0
            size = int(data[at:line].split(b";")[0], 16)
            at = line + 2 + size + 2
            if at > len(data):
                return 0
            if not size:
                return at
    match = _LENGTH.search(head)
    length = int(match[1]) if match else 0
    return start + length if len(data) >= start + length else 0


def body_of(message: bytes) -> bytes:
    """The body of a complete message."""
    start = head_length(message)
    if not is_chunked(message[:start]):
        return message[start:]
    return b"".join(ChunkLines().chunks(message[start:]))


def status_of(message: bytes | bytearray) -> int:
    """The status code of an answer."""
    return int(message[9:12])


def response(status: int, headers: tuple[tuple[str, str], ...], body: bytes) -> bytes:
    """The bytes of an answer."""
    phrase = http.HTTPStatus(status).phrase if status in _KNOWN else "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{key}: {value}" for key, value in headers)]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


_KNOWN: Final = frozenset(int(each) for each in http.HTTPStatus)


def chunk(data: bytes) -> bytes:
    """One chunk of a body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


class ChunkLines:
    """Splits a chunked body into lines, as bytes arrive.

    Attributes:
        ended: whether the last chunk has arrived.
    """

    def __init__(self) -> None:
        self.ended = False
        self._data = bytearray()
        self._line = bytearray()

    def chunks(self, data: bytes) -> Iterator[bytes]:
        """The contents of the chunks that are complete now."""
        self._data += data
        while not self.ended:
            at = self._data.find(b"\r\n")
            if at < 0:
                return
            size = int(self._data[:at].split(b";")[0], 16)
            end = at + 2 + size + 2
            if len(self._data) < end:
                return
            content = bytes(self._data[at + 2 : end - 2])
            del self._data[:end]
            if not size:
                self.ended = True
                return
            yield content

    def lines(self, data: bytes) -> Iterator[bytes]:
        """The lines that are complete now, each with its line feed."""
        for content in self.chunks(data):
            self._line += content
            while (at := self._line.find(b"\n")) >= 0:
                line = bytes(self._line[: at + 1])
                del self._line[: at + 1]
                yield line


@attrs.frozen
class Request:
    """The parts of a request.

    Attributes:
        method: in upper case.
        path: decoded.
        query: raw.
        content_type: of the body.
        body: its bytes.
    """

    method: str
    path: str
    query: str
    content_type: str
    body: bytes

    @classmethod
    def read(cls, raw: bytes) -> Request:
        """The parts of a complete request."""
        head = raw[: head_length(raw)]
        method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        path, _, query = target.partition("?")
        kind = _TYPE.search(head)
        content_type = kind[1].decode("latin-1") if kind else ""
        return cls(method, unquote(path), query, content_type, body_of(raw))


class RequestRecognizer:
    """Recognises calls, and counts similar ones."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, ...]] = Counter()

    def watched(self, owners: str) -> tuple[str, ...]:
        """The resources that processes with a name prefix watch, in alphabetical order."""
        keys = (key for key in self._seen if key[0].startswith(owners) and key[1] == "watch")
        return tuple(sorted({key[2] for key in keys}))

    def recognise(self, owner: str, peer: str, raw: bytes) -> ObservedRequest:
        """The call of a complete request."""
        return self.observe(owner, peer, Request.read(raw))

    def observe(self, owner: str, peer: str, request: Request) -> ObservedRequest:
        """The call of a request that has been taken apart."""
        if peer.startswith(_WEBHOOK):
            verb, resource, namespace, name, subresource = _of_review(request.body)
        else:
            verb, resource, namespace, name, subresource = _of_path(request)
        key = (owner, verb, resource, namespace, name, subresource)
        ordinal = self._seen[key]
        self._seen[key] += 1
        return ObservedRequest(
            owner,
            peer,
            request.method,
            request.path,
            request.query,
            verb,
            resource,
            namespace,
            name,
            subresource,
            ordinal,
            request.body,
        )


Place = tuple[str, str, str, str, str]


def _of_path(request: Request) -> Place:
    """Verb, resource, namespace, name and subresource."""
    parts = [part for part in request.path.split("/") if part]
    group, rest = "", []
    if parts[:1] == ["api"]:
        rest = parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 2:
        group, rest = parts[1], parts[3:]
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = [*rest, "", "", ""][:3]
    resource = f"{plural}.{group}" if group and plural else plural
    return _verb(request, name), resource, namespace, name, subresource


def _verb(request: Request, name: str) -> str:
    match request.method:
        case "GET" | "HEAD":
            watched = _WATCH.search(request.query) is not None
            return "watch" if watched else "get" if name else "list"
        case "POST":
            return "create"
        case "PUT":
            return "update"
        case "PATCH":
            return "apply" if "apply-patch" in request.content_type else "patch"
        case "DELETE":
            return "delete" if name else "deletecollection"
    return request.method.lower()


def _of_review(body: bytes) -> Place:
    try:
        review: Any = orjson.loads(body).get("request") or {}
    except (orjson.JSONDecodeError, AttributeError):
        review = {}
    reviewed = review.get("resource") or {}
    group, plural = reviewed.get("group", ""), reviewed.get("resource", "")
    resource = f"{plural}.{group}" if group and plural else plural
    namespace, name = review.get("namespace", ""), review.get("name", "")
    return _WEBHOOK, resource, namespace, name, review.get("subResource", "")
