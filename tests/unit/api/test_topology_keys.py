"""Labels and annotations that ask for a topology without effect."""

from __future__ import annotations

import pytest

from kueuelib.api.names import TOPOLOGY_KEYS
from kueuelib.api.topology_keys import KNOWN_KEYS, ignored_topology_keys

DOMAIN = "kueue.x-k8s.io"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        (f"{DOMAIN}/podset-required-toplogy", "podset-required-topology"),
        (f"{DOMAIN}/pod-set-required-topology", "podset-required-topology"),
        (f"{DOMAIN}/podset-prefered-topology", "podset-preferred-topology"),
        (f"{DOMAIN}/required-topology", "podset-required-topology"),
        ("kueue.k8s.io/podset-required-topology", "podset-required-topology"),
        ("podset-required-topology", "podset-required-topology"),
        (f"{DOMAIN}/podset-slice-sise", "podset-slice-size"),
        (f"{DOMAIN}/podset-groupname", "podset-group-name"),
    ],
)
def test_a_misspelled_annotation_is_named_with_the_one_that_is_meant(key: str, meant: str) -> None:
    (one,) = ignored_topology_keys({"annotations": {key: "x"}}, of_pods=True)
    assert one.text("metadata") == (
        f"metadata.annotations[{key}] has no effect: this version does not know it; "
        f"did you mean {DOMAIN}/{meant}?"
    )
    (elsewhere,) = ignored_topology_keys({"labels": {key: "x"}}, of_pods=False)
    assert elsewhere.why.endswith(f"{DOMAIN}/{meant}, in the annotations of the pod template?")


def test_known_annotations_have_an_effect_in_the_annotations_of_pods_alone() -> None:
    keys = dict.fromkeys(TOPOLOGY_KEYS, "x")
    assert not [*ignored_topology_keys({"annotations": keys}, of_pods=True)]
    for meta, of_pods, place in (
        ({"labels": keys}, True, "the annotations"),
        ({"annotations": keys}, False, "the annotations of the pod template"),
    ):
        ignored = [*ignored_topology_keys(meta, of_pods=of_pods)]
        assert {one.key for one in ignored} == TOPOLOGY_KEYS
        assert {one.why for one in ignored} == {f"it belongs in {place}"}


def test_other_keys_ask_for_no_topology() -> None:
    others = dict.fromkeys(KNOWN_KEYS - TOPOLOGY_KEYS, "x")
    others |= dict.fromkeys(["app", "example.com/podset-required-topology", "topology", "podset"])
    others |= {f"{DOMAIN}/podset-colour": "x", f"{DOMAIN}/something": "x"}
    assert not [*ignored_topology_keys({"annotations": others, "labels": others}, of_pods=True)]
    assert not [*ignored_topology_keys({"annotations": None}, of_pods=True)]
