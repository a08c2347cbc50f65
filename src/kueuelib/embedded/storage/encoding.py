"""Encodes JSON that is kept in memory."""

from __future__ import annotations

import orjson

from kueuelib.api.meta import Obj


def encoded(obj: Obj) -> bytes:
    """The JSON of an object, in exactly as much memory as it needs.

    The result of `orjson.dumps` keeps its whole buffer, several times its size. That does not
    matter for an answer that is sent and dropped, but for thousands of kept objects it would be
    most of the server's memory. So the bytes are copied once.
    """
    return bytes(memoryview(orjson.dumps(obj)))
