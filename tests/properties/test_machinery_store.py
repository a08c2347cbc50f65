"""The store against a plain dictionary, and its indexes against a rebuild."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kueuelib.api.meta import ObjectKey
from kueuelib.machinery.store import DeltaKind, Store, StoreUpdate

keys = st.builds(ObjectKey, st.sampled_from(["", "n", "m"]), st.sampled_from("abcd"))
values = st.lists(st.sampled_from("xyz"), max_size=4).map(tuple)
pairs = st.lists(st.tuples(keys, values), max_size=8)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), keys, values),
        st.tuples(st.just("remove"), keys),
        st.tuples(st.just("replace"), pairs, st.booleans()),
    ),
    max_size=25,
)


def lengths(value):
    return (len(value),)


def rebuilt(store):
    fresh = Store({"letters": tuple, "lengths": lengths})
    fresh.apply(StoreUpdate(key, store.get(key)) for key in store)
    return fresh


def played(model, deltas):
    """What a handler that only sees deltas believes."""
    for delta in deltas:
        assert model.get(delta.key) == delta.old
        if delta.kind is DeltaKind.DELETED:
            assert delta.new is None
            del model[delta.key]
        else:
            assert (delta.kind is DeltaKind.ADDED) == (delta.key not in model)
            model[delta.key] = delta.new
    return model


@settings(max_examples=100, deadline=None)
@given(steps)
def test_content_deltas_and_indexes_agree_with_a_dictionary(history):
    store = Store({"letters": tuple})
    store.add_index("lengths", lengths)
    truth, believed = {}, {}
    for step in history:
        if step[0] == "put":
            truth[step[1]] = step[2]
            deltas = [store.put(step[1], step[2])]
        elif step[0] == "remove":
            gone = truth.pop(step[1], None)
            deltas = store.apply([StoreUpdate(step[1], None)])
            assert len(deltas) == (gone is not None)
        else:
            truth = dict(step[1])
            same = (lambda old, new: old == new) if step[2] else None
            deltas = store.replace(step[1], same=same)
            kinds = [delta.kind for delta in deltas]
            assert kinds == sorted(kinds, key=lambda kind: kind is not DeltaKind.DELETED)
            if step[2]:
                assert all(delta.old != delta.new for delta in deltas)
        played(believed, deltas)
        assert {key: store.get(key) for key in store} == truth == believed
        fresh = rebuilt(store)
        for name in ("letters", "lengths"):
            assert set(store.index_values(name)) == set(fresh.index_values(name))
            for value in fresh.index_values(name):
                assert set(store.keys_by_index(name, value)) == set(
                    fresh.keys_by_index(name, value)
                )
                assert sorted(store.by_index(name, value)) == sorted(fresh.by_index(name, value))


@given(pairs)
def test_a_late_handler_is_told_the_whole_content(content):
    store = Store()
    store.replace(content)
    deltas = store.as_initial()
    assert all(delta.initial and delta.kind is DeltaKind.ADDED for delta in deltas)
    assert played({}, deltas) == dict(content)
