"""SPDY/3.1 in pieces of any size, also as Go's implementation writes it, and what breaks it."""

from __future__ import annotations

import random
import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kueuelib.node import spdy
from kueuelib.node.spdy import (
    SpdyConnection,
    SpdyError,
    StreamData,
    StreamOpened,
    StreamReset,
    WentAway,
)

OF_GO = bytes.fromhex(
    "800300010000002a0000000100000000000078f9e3c6a7c26260606004a7b392a2d4c45c6851c29a5a54945f0400"
    "0000ffff800300010000001f00000003000000000000824ab114e41795303030b05818581800000000ffff000000"
    "0301000002686980030006000000040000000180030003000000080000000100000005800300090000000800000001"
    "0000000980030007000000080000000000000000"
)
"""Two streams, data, a ping, a reset, a window and an end, as spdystream 0.5.1 writes them."""
HEADERS = st.dictionaries(
    st.text(st.characters(codec="ascii", categories=["Ll", "Nd"]), min_size=1, max_size=9),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
    max_size=4,
)
IDS = st.integers(1, 2**31 - 1)
SENT = st.one_of(
    st.builds(StreamOpened, IDS, HEADERS, st.just(value=False)),
    st.builds(StreamData, IDS, st.binary(max_size=70), st.booleans()),
    st.builds(
        lambda stream, size: StreamData(stream, b"x" * size, fin=True), IDS, st.integers(0, 70_000)
    ),
    st.builds(StreamReset, IDS),
    st.just(WentAway()),
)


def written(connection, event):
    match event:
        case StreamOpened(id, headers):
            return connection.open(id, headers)
        case StreamData(id, data, fin):
            return connection.data(id, data, fin=fin)
        case StreamReset(id):
            return connection.reset(id)
    return connection.go_away()


def joined(events):
    """Events in which neighbouring pieces of one stream are one."""
    found = []
    for event in events:
        last = found[-1] if found else None
        both = isinstance(event, StreamData) and isinstance(last, StreamData)
        if both and last.id == event.id and not last.fin:
            found[-1] = StreamData(event.id, last.data + event.data, event.fin)
        else:
            found.append(event)
    return found


def read(connection, data, random_):
    events, at = [], 0
    while at < len(data):
        size = random_.choice((1, 7, 8, 9, 100, 5000, 100_000))
        events += connection.receive(data[at : at + size])
        at += size
    return events


@given(st.lists(SENT, max_size=12), st.randoms(use_true_random=False))
def test_what_is_sent_is_received_in_pieces_of_any_size(sent, random_):
    writer = SpdyConnection()
    data = b"".join(written(writer, event) for event in sent)
    assert joined(read(SpdyConnection(), data, random_)) == joined(sent)


def test_what_gos_implementation_sends_is_read():
    assert zlib.adler32(spdy.DICTIONARY) == 0xE3C6A7C2
    connection = SpdyConnection()
    events = read(connection, OF_GO, random.Random(1))
    assert joined(events) == [
        StreamOpened(1, {"streamtype": "error"}, fin=False),
        StreamOpened(3, {"port": "8080"}, fin=False),
        StreamData(3, b"hi", fin=True),
        StreamReset(1),
        WentAway(),
    ]
    assert bytes(connection.answers) == struct.pack(">HHII", 0x8003, 6, 4, 1)


def headed(raw):
    """A frame that opens a stream, with this block of headers."""
    packer = zlib.compressobj(zdict=spdy.DICTIONARY)
    packed = packer.compress(raw) + packer.flush(zlib.Z_SYNC_FLUSH)
    return struct.pack(">HHIIIH", 0x8003, 1, 10 + len(packed), 1, 0, 0) + packed


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (struct.pack(">II", 0, 5), "for no stream"),
        (struct.pack(">HHI", 0x8003, 1, 10**7), "has 10000000 bytes"),
        (struct.pack(">HHI", 0x8003, 1, 4) + b"abcd", "cannot be read"),
        (struct.pack(">HHIIIH", 0x8003, 1, 14, 1, 0, 0) + b"abcd", "cannot be read"),
        (headed(bytes(10**7)), "too long"),
        (headed(struct.pack(">II", 2**30, 1) + b"a"), "cannot be read"),
        (headed(struct.pack(">II", 1, 2**31) + b"a"), "cut off"),
    ],
)
def test_what_breaks_the_protocol_ends_the_connection(data, why):
    with pytest.raises(SpdyError, match=why):
        SpdyConnection().receive(data)


@given(st.binary(max_size=300), st.integers(0, len(OF_GO)))
def test_noise_is_an_error_or_nothing(noise, at):
    with suppress(SpdyError):
        SpdyConnection().receive(OF_GO[:at] + noise)
