"""Messages of WebSockets for a process, and how its end is reported."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kueuelib.errors import BadRequest
from kueuelib.node.channels import (
    PROTOCOLS,
    V5,
    decode,
    encode,
    ended,
    size_of,
    status_message,
    wanted_streams,
)

ALL = ["", *PROTOCOLS]


@given(st.sampled_from(ALL), st.integers(0, 9), st.binary(max_size=50))
def test_a_message_is_read_as_it_was_written(protocol, channel, data):
    assert decode(protocol, encode(protocol, channel, data)) == (channel, data)


@given(st.sampled_from(ALL), st.binary(max_size=9) | st.text(max_size=9))
def test_no_message_is_an_error(protocol, message):
    found = decode(protocol, message)
    assert found is None or isinstance(found[0], int)
    size_of(message.encode() if isinstance(message, str) else message)


def test_only_the_fifth_version_ends_a_stream():
    assert decode(V5, b"\xff\0") == (0, None)
    assert decode(V5, b"\xff") is None
    assert decode("v4.channel.k8s.io", b"\xff\0") == (255, b"\0")


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"output": "1"}, {"stdout", "error"}),
        ({"input": "1", "error": "1"}, {"stdin", "stderr", "error"}),
        ({"output": "1", "error": "1", "tty": "1"}, {"stdout", "error", "resize"}),
    ],
)
def test_a_client_asks_for_streams(query, names):
    assert wanted_streams(query).names == names


@pytest.mark.parametrize("query", [{}, {"tty": "1"}, {"error": "1", "tty": "1"}, {"input": "true"}])
def test_a_client_asks_for_one_stream_at_least(query):
    with pytest.raises(BadRequest, match="at least 1 of stdin, stdout, stderr"):
        wanted_streams(query)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (b'{"Width":80,"Height":25}', (80, 25)),
        (b'{"Width":0,"Height":25}', None),
        (b'{"Width":80}', None),
        (b"[]", None),
        (b'{"Width":99999,"Height":25}', None),
    ],
)
def test_the_size_of_a_terminal_is_read(data, size):
    assert size_of(data) == size


def test_an_exit_code_is_a_status_or_a_text():
    status = json.loads(status_message("v4.channel.k8s.io", ended(3)))
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]
    assert (status["status"], status["reason"]) == ("Failure", "NonZeroExitCode")
    assert json.loads(status_message(V5, ended(0))) == {"metadata": {}, "status": "Success"}
    text = b"command terminated with non-zero exit code: exit status 3"
    assert status_message("channel.k8s.io", ended(3)) == text
    assert status_message("", ended(0)) == b""
