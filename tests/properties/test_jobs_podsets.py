"""What admission adds to a template, a restore takes away."""

from __future__ import annotations

import copy

from hypothesis import assume, given
from hypothesis import strategies as st

from kueuelib.errors import InvalidPodSetUpdate
from kueuelib.jobs.contract.podset_info import PodSetInfo, combine, from_pod_set, merge, restore

KEYS = st.sampled_from(["a", "b", "c"])
MAPS = st.dictionaries(KEYS, st.sampled_from(["1", "2"]), max_size=3)
TOLERATIONS = st.lists(
    st.fixed_dictionaries({"key": KEYS, "operator": st.just("Exists")}), max_size=3
)
INFOS = st.builds(
    PodSetInfo,
    st.just("main"),
    st.integers(0, 3),
    annotations=MAPS,
    labels=MAPS,
    node_selector=MAPS,
    tolerations=TOLERATIONS.map(tuple),
)


@st.composite
def templates(draw):
    """Templates with absent, empty and filled parts."""
    found = {}
    for section, fields in (("metadata", ("labels", "annotations")), ("spec", ("nodeSelector",))):
        found[section] = {name: draw(MAPS) for name in fields if draw(st.booleans())}
    if draw(st.booleans()):
        found["spec"]["tolerations"] = draw(TOLERATIONS)
    found["spec"]["containers"] = [{"name": "c"}]
    return found


def meaning(template):
    """A template without empty parts."""
    return {
        section: {key: value for key, value in template.get(section, {}).items() if value}
        for section in ("metadata", "spec")
    }


def merged(template, info):
    found = copy.deepcopy(template)
    try:
        merge(found, info)
    except InvalidPodSetUpdate:
        assume(False)
    return found


@given(templates(), INFOS)
def test_a_restore_undoes_a_merge(template, info):
    started = merged(template, info)
    changed = restore(started, from_pod_set({"name": "main", "template": template}))
    assert meaning(started) == meaning(template)
    assert changed == (meaning(merged(template, info)) != meaning(template))


@given(templates(), INFOS)
def test_merging_twice_is_merging_once(template, info):
    once = merged(template, info)
    assert merged(once, info) == once


@given(templates(), INFOS)
def test_a_merge_adds_and_takes_nothing_away(template, info):
    started = merged(template, info)
    for section, field in (("metadata", "labels"), ("metadata", "annotations")):
        assert template[section].get(field, {}).items() <= started[section].get(field, {}).items()
    assert info.node_selector.items() <= started["spec"].get("nodeSelector", {}).items()
    for toleration in info.tolerations:
        assert toleration in started["spec"]["tolerations"]


@given(templates(), INFOS, INFOS)
def test_two_infos_are_merged_together_as_one_after_the_other(template, first, second):
    try:
        both = combine(first, second)
    except InvalidPodSetUpdate:
        assume(False)
    assert merged(template, both) == merged(merged(template, first), second)


@given(templates(), INFOS)
def test_a_refused_merge_leaves_the_template_as_it_was(template, info):
    before = copy.deepcopy(template)
    try:
        merge(template, info)
    except InvalidPodSetUpdate:
        assert template == before
