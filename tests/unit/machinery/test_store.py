"""What the store promises beyond agreeing with a dictionary."""

from __future__ import annotations

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.machinery.store import (
    NAMESPACE_INDEX,
    Delta,
    DeltaKind,
    Store,
    namespace_of,
    same_version,
)

A, B = ObjectKey("n", "a"), ObjectKey("m", "b")


def obj(key, version="1", uid="u"):
    meta = {"namespace": key.namespace, "name": key.name, "resourceVersion": version, "uid": uid}
    return {"metadata": meta}


def test_a_failing_index_function_leaves_the_store_as_it_was():
    store = Store({NAMESPACE_INDEX: namespace_of, "strict": lambda o: [o["must"]]})
    store.put(A, {"metadata": {"namespace": "n"}, "must": 1})
    with pytest.raises(KeyError):
        store.put(A, {"metadata": {"namespace": "other"}})
    assert store.get(A)["must"] == 1
    assert store.keys_by_index(NAMESPACE_INDEX, "n") == (A,)
    assert store.keys_by_index(NAMESPACE_INDEX, "other") == ()


def test_the_namespace_index_leaves_out_cluster_scoped_objects():
    store = Store({NAMESPACE_INDEX: namespace_of})
    store.put(A, obj(A))
    store.put(ObjectKey("", "c"), {"metadata": {"name": "c"}})
    assert store.index_values(NAMESPACE_INDEX) == ("n",)


def test_an_index_name_belongs_to_one_function():
    store = Store({NAMESPACE_INDEX: namespace_of})
    store.add_index(NAMESPACE_INDEX, namespace_of)
    with pytest.raises(ValueError, match="exists with another function"):
        store.add_index(NAMESPACE_INDEX, lambda _: ())
    with pytest.raises(KeyError):
        store.by_index("unknown", 1)


def test_a_relist_echo_makes_no_delta_and_keeps_the_old_object():
    store = Store()
    first = obj(A)
    store.replace([(A, first), (B, obj(B))], initial=True)
    deltas = store.replace([(A, obj(A)), (B, obj(B, "2"))], same=same_version)
    assert [(delta.key, delta.initial) for delta in deltas] == [(B, False)]
    assert store.get(A) is first


def test_an_object_that_was_replaced_unseen_is_an_update_with_another_uid():
    store = Store()
    store.put(A, obj(A, "1", "old"))
    (delta,) = store.replace([(A, obj(A, "1", "new"))], same=same_version)
    assert delta.kind is DeltaKind.UPDATED
    assert delta.old["metadata"]["uid"] == "old"
    assert delta.last["metadata"]["uid"] == "new"


def test_a_deletion_carries_the_last_known_state():
    store = Store()
    store.put(A, obj(A))
    delta = store.remove(A)
    assert delta == Delta(DeltaKind.DELETED, A, obj(A))
    assert delta.last == obj(A)
    assert store.remove(A) is None
    assert A not in store
    assert len(store) == 0


def test_objects_without_a_version_are_never_the_same():
    assert not same_version({"metadata": {}}, {"metadata": {}})
