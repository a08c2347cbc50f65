from __future__ import annotations

import tracemalloc

import orjson

from kueuelib.embedded.storage import encoded

OBJ = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": "x" * 3000}}
COUNT = 200


def test_an_encoded_object_is_its_json() -> None:
    assert orjson.loads(encoded(OBJ)) == OBJ


def test_an_encoded_object_takes_no_more_memory_than_its_json() -> None:
    tracemalloc.start()
    try:
        kept = [encoded(OBJ) for _ in range(COUNT)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1.1 * sum(map(len, kept))
