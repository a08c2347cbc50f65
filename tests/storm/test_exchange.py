"""Bytes on the wire are taken apart into messages, calls and events."""

from __future__ import annotations

import orjson
import pytest

from kueuelib.testing.storm.exchange import (
    LAST_CHUNK,
    ChunkLines,
    RequestRecognizer,
    body_of,
    chunk,
    message_length,
    response,
    status_of,
)


def _request(line, body=b"", *headers):
    lines = [line.encode() + b" HTTP/1.1", b"Host: x", *headers]
    if body:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([*lines, b"", b""]) + body


@pytest.mark.parametrize(
    "message",
    [
        _request("GET /version"),
        _request("POST /apis/batch/v1/namespaces/default/jobs", b'{"a": "\r\n\r\n"}'),
        response(429, (("Retry-After", "1"),), b"slow down"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"one\n") + LAST_CHUNK,
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ],
)
def test_a_message_is_complete_with_its_last_byte(message):
    assert [message_length(message[:end]) for end in range(len(message))] == [0] * len(message)
    assert message_length(message) == len(message)
    assert message_length(message + b"GET / ") == len(message)


def test_an_answer_to_head_has_no_body():
    assert message_length(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", bodiless=True) == 38


def test_an_answer_says_what_it_should():
    made = response(503, (("Content-Type", "text/plain"),), b"away")
    assert status_of(made) == 503
    assert body_of(made) == b"away"
    assert made.startswith(b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n")


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_lines_come_whole_however_bytes_come(size):
    body = chunk(b'{"n": 1}\n{"n"') + chunk(b": 2}\n") + chunk(b'{"n": 3}\n') + LAST_CHUNK
    lines = ChunkLines()
    found = []
    for start in range(0, len(body), size):
        assert not lines.ended
        found += lines.lines(body[start : start + size])
    assert found == [b'{"n": 1}\n', b'{"n": 2}\n', b'{"n": 3}\n']
    assert lines.ended


KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


@pytest.mark.parametrize(
    ("line", "headers", "expected"),
    [
        ("GET /api/v1/pods?watch=true", (), ("watch", "pods", "", "", "")),
        ("GET /api/v1/pods?watch=false", (), ("list", "pods", "", "", "")),
        ("GET /api/v1/namespaces/a/pods/p", (), ("get", "pods", "a", "p", "")),
        ("GET /api/v1/namespaces/a", (), ("get", "namespaces", "", "a", "")),
        ("PUT /api/v1/namespaces/a/status", (), ("update", "namespaces", "", "a", "status")),
        (
            f"PATCH {KUEUE}/namespaces/a/workloads/w/status",
            (b"Content-Type: application/apply-patch+yaml",),
            ("apply", "workloads.kueue.x-k8s.io", "a", "w", "status"),
        ),
        (
            f"PATCH {KUEUE}/clusterqueues/q",
            (b"content-type: application/merge-patch+json",),
            ("patch", "clusterqueues.kueue.x-k8s.io", "", "q", ""),
        ),
        (
            "DELETE /apis/batch/v1/namespaces/a/jobs",
            (),
            ("deletecollection", "jobs.batch", "a", "", ""),
        ),
        ("DELETE /apis/batch/v1/namespaces/a/jobs/j", (), ("delete", "jobs.batch", "a", "j", "")),
        ("GET /version", (), ("list", "", "", "", "")),
    ],
)
def test_calls_are_recognised(line, headers, expected):
    call = RequestRecognizer().recognise("manager-1", "server", _request(line, b"", *headers))
    assert (call.verb, call.resource, call.namespace, call.name, call.subresource) == expected


def test_calls_that_are_alike_are_counted():
    calls = RequestRecognizer()
    lines = ["GET /api/v1/nodes/a", "GET /api/v1/nodes/b", "GET /api/v1/nodes/a"]
    found = [calls.recognise("manager-1", "server", _request(line)) for line in lines]
    assert [call.ordinal for call in found] == [0, 0, 1]
    assert calls.recognise("manager-2", "server", _request(lines[0])).ordinal == 0


def test_reviews_name_what_they_are_about():
    resource = {"group": "batch", "resource": "jobs"}
    review = {"request": {"resource": resource, "namespace": "a", "name": "j"}}
    raw = _request("POST /mutate", orjson.dumps(review))
    call = RequestRecognizer().recognise("server", "webhook@manager-1", raw)
    assert call.title == "webhook jobs.batch a/j"
    garbage = RequestRecognizer().recognise(
        "server", "webhook@manager-1", _request("POST /mutate", b"no")
    )
    assert (garbage.verb, garbage.resource) == ("webhook", "")
