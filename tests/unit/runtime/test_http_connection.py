from __future__ import annotations

import pytest

from kueuelib.runtime.http_connection import MOST, Headers, whole

LENGTH = b"HTTP/1.1 201 Created\r\nDate: now\r\ncontent-Length: 12\r\n\r\n{'a':'\r\n\r\n'}"
CHUNKS = (
    b"HTTP/1.1 409 Conflict\r\nWarning: one\r\nTransfer-Encoding: chunked\r\n"
    b"warning:two: 2 \r\n\r\n"
    b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"
)


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [(LENGTH, 201, b"{'a':'\r\n\r\n'}"), (CHUNKS, 409, b"abc0123456789")],
)
def test_a_common_answer_is_read_once_its_last_byte_is_here(answer, status, body):
    for length in range(len(answer)):
        assert whole(answer[:length]) is None
    found = whole(answer)
    assert found is not None
    assert (found.status, found.body) == (status, body)


def test_headers_are_found_whatever_their_case():
    found = whole(CHUNKS)
    assert found is not None
    assert found.headers.all("Warning") == ["one", "two: 2"]
    assert found.headers.first("transfer-encoding") == "chunked"
    assert found.headers.first("Warn") is None
    assert Headers(b"A: warning").all("Warning") == []


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Encoding: gzip\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n folded: x\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP",
        b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\nx\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nx\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nHTTP",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * MOST,
    ],
)
def test_any_other_answer_is_refused(answer):
    with pytest.raises(ValueError, match="common|follows"):
        whole(answer)
