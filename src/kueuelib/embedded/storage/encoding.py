"""JSON that is kept."""

from __future__ import annotations

import orjson

from kueuelib.api.meta import Obj


def encoded(obj: Obj) -> bytes:
    """The JSON of an object in memory of exactly its size.

    `orjson.dumps` leaves the room that it wrote into behind its result, several times what the
    result needs. That is nothing for an answer that is sent and forgotten, and most of the memory
    of a server that keeps thousands of them; so the bytes are copied once.
    """
    return bytes(memoryview(orjson.dumps(obj)))
