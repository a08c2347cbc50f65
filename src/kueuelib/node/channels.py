"""The streams of a process over a WebSocket, and how they end: messages and Statuses, without I/O.

Sources: `remotecommand` and `wsstream` of Kubernetes. The first byte of a message is the channel.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import attrs
import orjson

from kueuelib.errors import BadRequest

CHANNELS: Final = ("stdin", "stdout", "stderr", "error", "resize")
"""The streams by the numbers of their channels; also their types in SPDY."""
CLOSED: Final = 255
"""The channel of a message that ends the one whose number follows, from version 5 on."""
V5, V4, PLAIN = "v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io"
BASE64: Final = ("v4.base64.channel.k8s.io", "base64.channel.k8s.io")
"""Protocols whose messages are text: the number as a digit, and the data in base64."""
PROTOCOLS: Final = (V5, V4, BASE64[0], PLAIN, BASE64[1])
_TEXT_ERRORS: Final = ("", PLAIN, BASE64[1])
"""Protocols that report a failure as text, and success as nothing."""


def encode(protocol: str, channel: int, data: bytes) -> bytes | str:
    """A message."""
    if protocol in BASE64:
        return f"{channel}{base64.b64encode(data).decode()}"
    return bytes((channel,)) + data


def decode(protocol: str, message: bytes | str) -> tuple[int, bytes | None] | None:
    """The channel and the data of a message; no data at its end; None for what has no meaning."""
    if protocol in BASE64:
        text = message if isinstance(message, str) else message.decode(errors="replace")
        try:
            return int(text[:1]), base64.b64decode(text[1:])
        except (ValueError, binascii.Error):
            return None
    raw = message.encode() if isinstance(message, str) else message
    if protocol == V5 and raw[:1] == b"\xff":
        return (raw[1], None) if len(raw) == 2 else None
    return (raw[0], raw[1:]) if raw else None


# ---- what is asked for ---------------------------------------------------------------------------


@attrs.frozen
class WantedStreams:
    """The streams that a client asks for; a terminal has no stderr of its own."""

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool

    @property
    def names(self) -> frozenset[str]:
        """Their names, with that for the end, and for sizes of a terminal."""
        flags = (self.stdin, self.stdout, self.stderr, True, self.tty)
        return frozenset(name for name, wanted in zip(CHANNELS, flags, strict=True) if wanted)


def wanted_streams(query: Mapping[str, str]) -> WantedStreams:
    """What the parameters of a request ask for.

    Raises:
        BadRequest: nothing.
    """
    tty, stdin, stdout, stderr = (
        query.get(name) == "1" for name in ("tty", "input", "output", "error")
    )
    stderr = stderr and not tty
    if not (stdin or stdout or stderr):
        raise BadRequest("you must specify at least 1 of stdin, stdout, stderr")
    return WantedStreams(stdin, stdout, stderr, tty)


def size_of(data: bytes) -> tuple[int, int] | None:
    """Width and height of a terminal; None if the message has another form."""
    try:
        size: Any = orjson.loads(data)
        width, height = int(size["Width"]), int(size["Height"])
    except (ValueError, TypeError, KeyError):
        return None
    return (width, height) if 0 < width < 65536 and 0 < height < 65536 else None


# ---- how it ends ---------------------------------------------------------------------------------


def ended(code: int) -> dict[str, Any]:
    """The Status of a process that ended with this code."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def status_message(protocol: str, status: Mapping[str, Any]) -> bytes:
    """What is sent on the channel of errors."""
    if protocol in _TEXT_ERRORS:
        return str(status.get("message", "")).encode()
    return orjson.dumps(status)
