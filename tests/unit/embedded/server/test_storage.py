"""The storage keeps what was written, and remembers for a while how it came to be."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kueuelib.api.meta import ObjectKey
from kueuelib.embedded.storage import Compacted, StaleWrite, Storage

KEYS = [ObjectKey(namespace, name) for namespace in ("a", "b") for name in ("x", "y", "z")]


def obj(key, **data):
    meta = {"name": key.name, "namespace": key.namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def no_fields(_):
    return {}


def put(storage, key, **data):
    table = storage.table("t")
    return storage.put(table, key, obj(key, **data), no_fields, table.get(key)).after


def remove(storage, key):
    table = storage.table("t")
    entry = table.get(key)
    return storage.remove(table, entry.obj(), no_fields, entry)


def test_every_write_has_a_later_version():
    storage = Storage()
    first, second = put(storage, KEYS[0]), put(storage, KEYS[0], a="1")
    assert second.revision == first.revision + 1 == storage.revision
    assert second.obj()["metadata"]["resourceVersion"] == str(second.revision)
    assert first.obj()["data"] == {}


def test_a_write_on_an_older_state_is_stale():
    storage = Storage()
    table = storage.table("t")
    first = put(storage, KEYS[0])
    put(storage, KEYS[0], a="1")
    with pytest.raises(StaleWrite):
        storage.put(table, KEYS[0], obj(KEYS[0]), no_fields, first)
    with pytest.raises(StaleWrite):
        storage.put(table, KEYS[0], obj(KEYS[0]), no_fields, None)
    with pytest.raises(StaleWrite):
        storage.remove(table, first.obj(), no_fields, first)


def test_entries_start_with_kind_and_apiversion():
    storage = Storage()
    raw = put(storage, KEYS[0]).raw
    assert raw.startswith(b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{')


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), max_size=40))
def test_the_table_is_what_a_dictionary_would_be_now_and_at_every_past_moment(steps):
    storage = Storage()
    table = storage.table("t")
    model: dict[ObjectKey, int] = {}
    history = {storage.revision: dict(model)}
    for key, wanted in steps:
        if wanted:
            model[key] = put(storage, key).revision
        elif key in model:
            remove(storage, key)
            del model[key]
        history[storage.revision] = dict(model)
    assert [entry.key for entry in table.entries()] == sorted(model)
    assert [entry.key for entry in table.entries("a")] == sorted(k for k in model if k[0] == "a")
    assert len(table) == len(model)
    for after in KEYS:
        assert [e.key for e in table.entries("", after)] == sorted(k for k in model if k > after)
    for revision, then in history.items():
        past = {entry.key: entry.revision for entry in table.entries()}
        for key, entry in table.as_of(revision).items():
            if entry is None:
                past.pop(key, None)
            else:
                past[key] = entry.revision
        assert past == then


def test_readers_are_told_when_the_log_has_gone_on_without_them():
    storage = Storage()
    table = storage.table("t")
    first = put(storage, KEYS[0]).revision
    position = table.position(first)
    for i in range(5):
        put(storage, KEYS[0], i=str(i))
    assert [change.revision for change in table.since(position)] == list(
        range(first + 1, first + 6)
    )
    table.compact(3)
    with pytest.raises(Compacted):
        table.since(position)
    with pytest.raises(Compacted):
        table.position(first)
    with pytest.raises(Compacted):
        table.as_of(first)
    kept = table.position(table.compacted)
    assert [change.revision for change in table.since(kept)] == [
        first + 3,
        first + 4,
        first + 5,
    ]


async def test_those_who_wait_are_woken_by_a_change_or_by_time():
    storage = Storage()
    table = storage.table("t")
    waiting = [asyncio.create_task(table.changed(60)) for _ in range(3)]
    await asyncio.sleep(0)
    put(storage, KEYS[0])
    await asyncio.wait_for(asyncio.gather(*waiting), 1)
    await asyncio.wait_for(table.changed(0.01), 1)
    cancelled = asyncio.create_task(table.changed(60))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    assert not table._waiters


def test_the_log_is_bounded_by_its_bytes():
    storage = Storage()
    table = storage.table("t")
    for i in range(700):
        put(storage, KEYS[0], text="x" * 20_000, i=str(i))
    assert table.end - table.position(table.compacted) < 700
    assert table.get(KEYS[0]).obj()["data"]["i"] == "699"
