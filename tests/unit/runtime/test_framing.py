"""Where answers end: by their length, by chunks, or with the connection."""

from __future__ import annotations

import gzip

import pytest

from kueuelib.runtime.http_connection import (
    MOST_HEAD,
    Chunked,
    Framing,
    Sized,
    Unsized,
    decoder_of,
    framing_of,
    head_of,
    stays,
)
from kueuelib.runtime.network_errors import BrokenAnswer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\n%b\r\n\r\n"


def read(framing: Framing, data: bytes, step: int) -> tuple[bytes, bytes | None]:
    """The body in the data, which comes in steps, and what follows it."""
    body = b""
    for start in range(0, len(data), step):
        part, rest = framing.feed(data[start : start + step])
        body += part
        if rest is not None:
            return body, rest + data[start + step :]
    return body, None


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("made", "data", "body", "rest"),
    [
        (lambda: Sized(5), b"12345more", b"12345", b"more"),
        (lambda: Sized(5), b"123", b"123", None),
        (lambda: Sized(0), b"more", b"", b"more"),
        (Unsized, b"all\r\n0\r\n\r\n", b"all\r\n0\r\n\r\n", None),
        (Chunked, b"3\r\nabc\r\n0A;x=y\r\n0123456789\r\n0\r\n\r\nmore", b"abc0123456789", b"more"),
        (Chunked, b"1\r\n\n\r\n0\r\nTrailer: x\r\nOther: y\r\n\r\n", b"\n", b""),
        (Chunked, b"3 \r\nab", b"ab", None),
    ],
)
def test_a_body_ends_where_its_form_says(made, data, body, rest, step):
    assert read(made(), data, step) == (body, rest)


@pytest.mark.parametrize(
    "data", [b"-1\r\n", b"x\r\n", b"1\r\nab\r\n", b"\r\n", b"1" * 16 + b"\r\n", b"1" * 70_000]
)
@pytest.mark.parametrize("step", [1, 70_000])
def test_what_has_no_chunks_is_refused(data, step):
    with pytest.raises(BrokenAnswer):
        read(Chunked(), data, step)


@pytest.mark.parametrize(
    ("form", "data", "whole"),
    [
        (Sized(2), b"1", False),
        (Sized(0), b"", True),
        (Unsized(), b"1", True),
        (Chunked(), b"0\r\n", False),
    ],
)
def test_a_connection_that_ends_completes_bodies_without_a_length_only(form, data, whole):
    form.feed(data)
    assert form.ends() is whole


@pytest.mark.parametrize(
    ("lines", "form", "again"),
    [
        (b"Content-Length: 2", Sized, True),
        (b"Content-Length: 2\r\ncontent-length: 2", Sized, True),
        (b"Content-Length: 2\r\nConnection: Close", Sized, False),
        (b"Transfer-Encoding: Chunked\r\nContent-Length: 2", Chunked, True),
        (b"X: y", Unsized, False),
    ],
)
def test_a_head_says_how_its_body_ends_and_whether_the_connection_stays(lines, form, again):
    head = head_of(HEAD % lines)
    framing = framing_of(head, has_body=True)
    assert (type(framing), stays(head, framing)) == (form, again)


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: +2",
        b"Content-Length: 2, 3",
        b"Content-Length: 2\r\nContent-Length: 3",
        b"Content-Length: 1111111111111111",
        b"Transfer-Encoding: gzip, chunked",
    ],
)
def test_a_head_that_says_two_things_is_refused(lines):
    with pytest.raises(BrokenAnswer):
        framing_of(head_of(HEAD % lines), has_body=True)


@pytest.mark.parametrize(
    ("first", "has_body"),
    [(b"HTTP/1.1 204 No Content", True), (b"HTTP/1.1 304 Same", True), (b"HTTP/1.1 200", False)],
)
def test_some_answers_have_no_body_whatever_they_say(first, has_body):
    head = head_of(first + b"\r\nContent-Length: 7\r\n\r\n")
    assert framing_of(head, has_body=has_body).ends()


def test_an_old_server_has_to_say_that_the_connection_stays():
    for lines, again in ((b"", False), (b"Connection: keep-alive\r\n", True)):
        head = head_of(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n" + lines + b"\r\n")
        assert stays(head, framing_of(head, has_body=True)) is again


def test_a_head_comes_in_pieces():
    whole = HEAD % b"Folded: a\r\n  b"
    assert [head_of(whole[:length]) for length in range(len(whole))] == [None] * len(whole)
    head = head_of(whole + b"body")
    assert (head.status, head.size, head.headers.first("folded")) == (200, len(whole), "a b")


@pytest.mark.parametrize(
    "got",
    [
        b"SSH-2.0\r\n",
        b"S",
        b"HTTP/2",
        b"HTTP/1.1 20 OK\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x" * MOST_HEAD,
    ],
)
def test_what_is_not_a_head_is_refused(got):
    with pytest.raises(BrokenAnswer):
        head_of(got)


def test_compressed_bodies_are_known_by_their_coding():
    for lines, decoded in ((b"Content-Encoding: gzip", b"{}"), (b"Content-Encoding: br", None)):
        decoder = decoder_of(head_of(HEAD % lines))
        assert (decoder and decoder.decompress(gzip.compress(b"{}"))) == decoded
