"""SPDY/3.1 as `kubectl` and kube-apiserver speak it: streams over one connection, without I/O.

Flow control is left to the connection, as in Go's spdystream: windows and settings are ignored.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Final

import attrs

from kueuelib.errors import KueuelibError

_NAMES: Final = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language"
    " accept-ranges age allow authorization cache-control connection content-base content-encoding"
    " content-language content-length content-location content-md5 content-range content-type date"
    " etag expect expires from host if-match if-modified-since if-none-match if-range"
    " if-unmodified-since last-modified location max-forwards pragma proxy-authenticate"
    " proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade"
    " user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url"
    " public set-cookie keep-alive origin"
)
_TEXT: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    "401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    "503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 "
    "Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,"
    "application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age="
    "gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY: Final = (
    b"".join(
        struct.pack(">I", len(name)) + name.replace("_", " ").encode() for name in _NAMES.split()
    )
    + _TEXT.encode()
)
"""What the headers of the protocol's draft 3 are compressed with."""

VERSION: Final = 3
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY, _HEADERS = 1, 2, 3, 6, 7, 8
_FIN: Final = 1
_CONTROL: Final = 0x80000000
_ID: Final = 0x7FFFFFFF
_CANCEL: Final = 5
LIMIT: Final = 64 * 1024
"""Bytes of the longest control frame, and of its headers."""
PIECE: Final = 32 * 1024
"""Bytes of the longest data frame that is sent."""


class SpdyError(KueuelibError):
    """The other side breaks the protocol: the connection cannot be used any longer."""


@attrs.frozen
class StreamOpened:
    """The other side opens a stream.

    Attributes:
        id: of the stream.
        headers: with names in lower case; of several values, the first.
        fin: whether it sends nothing.
    """

    id: int
    headers: Mapping[str, str]
    fin: bool


@attrs.frozen
class StreamData:
    """A piece of what the other side sends on a stream.

    Attributes:
        id: of the stream.
        data: the piece, which may be empty.
        fin: whether it is the last one.
    """

    id: int
    data: bytes
    fin: bool


@attrs.frozen
class StreamReset:
    """The other side gives up a stream."""

    id: int


@attrs.frozen
class WentAway:
    """The other side opens no more streams."""


StreamEvent = StreamOpened | StreamData | StreamReset | WentAway


class SpdyConnection:
    """One end of a connection.

    Attributes:
        answers: bytes to send because of what was received; to be emptied then.
    """

    def __init__(self) -> None:
        self.answers = bytearray()
        self._buffer = bytearray()
        self._of_data = (0, 0, False)
        """The stream whose data frame has begun, how many bytes are missing, whether it is last."""
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def receive(self, data: bytes) -> list[StreamEvent]:
        """What bytes mean, with those that came before; pieces of data do not wait for the rest.

        Raises:
            SpdyError: they break the protocol.
        """
        self._buffer += data
        events: list[StreamEvent] = []
        while True:
            if self._of_data[0]:
                if not self._take(events):
                    return events
            elif len(self._buffer) < 8:
                return events
            else:
                first, second = struct.unpack_from(">II", self._buffer)
                flags, size = second >> 24, second & 0xFFFFFF
                if not first & _CONTROL:
                    if not first:
                        raise SpdyError("a data frame is for no stream")
                    del self._buffer[:8]
                    self._of_data = first, size, bool(flags & _FIN)
                    continue
                if size > LIMIT:
                    raise SpdyError(f"a control frame has {size} bytes")
                if len(self._buffer) < 8 + size:
                    return events
                body = bytes(self._buffer[8 : 8 + size])
                del self._buffer[: 8 + size]
                self._control(first & 0xFFFF, flags, body, events)

    def _take(self, events: list[StreamEvent]) -> bool:
        """Takes what there is of a data frame; returns whether it is complete."""
        stream, missing, fin = self._of_data
        data = bytes(self._buffer[:missing])
        del self._buffer[:missing]
        complete = len(data) == missing
        if data or complete:
            events.append(StreamData(stream, data, fin and complete))
        self._of_data = (0, 0, False) if complete else (stream, missing - len(data), fin)
        return complete

    def _control(self, type_: int, flags: int, body: bytes, events: list[StreamEvent]) -> None:
        try:
            if type_ == _SYN_STREAM:
                stream = struct.unpack_from(">I", body)[0] & _ID
                events.append(StreamOpened(stream, self._headers(body[10:]), bool(flags & _FIN)))
            elif type_ in (_SYN_REPLY, _HEADERS):
                self._headers(body[4:])  # the state of the compression depends on it
            elif type_ == _RST_STREAM:
                events.append(StreamReset(struct.unpack_from(">I", body)[0] & _ID))
            elif type_ == _PING and struct.unpack(">I", body)[0] % 2:
                self.answers += _frame(_PING, body)
            elif type_ == _GOAWAY:
                events.append(WentAway())
        except (struct.error, zlib.error, IndexError) as error:
            raise SpdyError(f"a frame of type {type_} cannot be read: {error}") from error

    def _headers(self, packed: bytes) -> dict[str, str]:
        raw = self._inflate.decompress(packed, LIMIT)
        if self._inflate.unconsumed_tail:
            raise SpdyError("headers are too long")
        at, texts = 4, []
        for _ in range(2 * struct.unpack_from(">I", raw)[0]):
            (size,) = struct.unpack_from(">I", raw, at)
            if at + 4 + size > len(raw):
                raise SpdyError("headers are cut off")
            texts.append(raw[at + 4 : at + 4 + size].decode(errors="replace"))
            at += 4 + size
        return {
            name.lower(): value.partition("\0")[0]
            for name, value in zip(texts[::2], texts[1::2], strict=True)
        }

    # ---- what is sent

    def open(self, stream: int, headers: Mapping[str, str]) -> bytes:
        """Opens a stream, with an odd number on the side of a client."""
        return _frame(_SYN_STREAM, struct.pack(">IIH", stream, 0, 0) + self._packed(headers))

    def reply(self, stream: int) -> bytes:
        """Accepts a stream that the other side has opened."""
        return _frame(_SYN_REPLY, struct.pack(">I", stream) + self._packed({}))

    def _packed(self, headers: Mapping[str, str]) -> bytes:
        pairs = [text.encode() for pair in headers.items() for text in pair]
        raw = struct.pack(">I", len(headers))
        raw += b"".join(struct.pack(">I", len(text)) + text for text in pairs)
        return self._deflate.compress(raw) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def data(self, stream: int, data: bytes, *, fin: bool = False) -> bytes:
        """Data on a stream, in frames that are not too long."""
        pieces = [data[at : at + PIECE] for at in range(0, len(data), PIECE)] or [b""]
        heads = [struct.pack(">II", stream, len(piece)) for piece in pieces]
        if fin:
            heads[-1] = struct.pack(">II", stream, _FIN << 24 | len(pieces[-1]))
        return b"".join(part for pair in zip(heads, pieces, strict=True) for part in pair)

    def reset(self, stream: int) -> bytes:
        """Gives up a stream."""
        return _frame(_RST_STREAM, struct.pack(">II", stream, _CANCEL))

    def go_away(self) -> bytes:
        """Says that this side ends."""
        return _frame(_GOAWAY, struct.pack(">II", 0, 0))


def _frame(type_: int, body: bytes) -> bytes:
    return struct.pack(">HHI", 0x8000 | VERSION, type_, len(body)) + body
